"""GET /metrics: what Prometheus' own parser reads of it, who is told nothing, and that a slow reader harms nobody."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S
from prometheus_client.parser import text_string_to_metric_families
from scenarios.world import NODES, World
from unit.listening import Listening
from unit.told_metrics import metrics_of, tick, value, values

from rmsplugin.adapters.nodes.answers import UnownedError
from rmsplugin.adapters.nodes.base import NodeCheck
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.energy.lateness import Lateness, LateSums
from rmsplugin.engine.context.agents_told import AgentsTold
from rmsplugin.engine.execute.operations.allocation import back_behind_gate
from rmsplugin.engine.ledger.tally import ACTION_KINDS, BOUNDS_S, Tally
from rmsplugin.engine.metrics import listener as listener_module
from rmsplugin.engine.metrics.catalogue import METRICS, Kind
from rmsplugin.engine.metrics.listener import MOST
from rmsplugin.engine.metrics.metrics import open_metrics
from rmsplugin.engine.serve import connections
from rmsplugin.errors import (
    NodeGoneError,
    NoStoreError,
    OperationFailedError,
    RmspluginError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings
from rmsplugin.settings.metrics import Metrics as Section

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, urgent=True)
    yield world
    world.close()


# -- the text --------------------------------------------------------------------------------------------------------


def test_every_metric_is_told_with_its_kind_its_help_and_no_other_labels(world: World) -> None:
    metrics = metrics_of(world)
    world.sleeping()
    text = tick(world, metrics).decode()
    told = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(told) == {f"rmsplugin_{metric.name}" for metric in METRICS}
    for metric in METRICS:
        family = told[f"rmsplugin_{metric.name}"]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), sample


def test_what_sensors_show_is_told_in_sum(world: World) -> None:
    power = world.settings.power.model_copy(update={"sense_s": 1.0, "hot_c": 45.0})
    world.settings = world.settings.model_copy(update={"power": power})
    world.start_engine()
    metrics = metrics_of(world)
    world.power.bmcs["n1"].temperature_c = 50.5
    world.power.bmcs["n3"].silent = True
    for _ in range(6):
        text = tick(world, metrics)
    assert value(text, "hot_nodes") == 1
    assert value(text, "sensed_nodes") == 2
    assert value(text, "sensed_watts") == 200
    assert value(text, "highest_temperature_celsius") == 50.5


def test_how_late_vjobs_are_because_nodes_were_off_is_told_with_what_may_be(world: World) -> None:
    metrics = metrics_of(world)
    assert not [name for name, _ in values(tick(world, metrics)) if name.startswith("late_") and "ratio" in name]
    sums = LateSums(late_s=3.0, vjobs_s=100.0, off_s=2e4, seen_s=1e3)
    world.cycle.powering.felt.lateness = Lateness(0.02, sums)
    text = tick(world, metrics)
    assert [value(text, f"late_{name}") for name in ("ratio", "at_most_ratio", "kept_nodes")] == [0.03, 0.02, 2]


def test_an_agent_is_up_if_it_answered_when_it_was_asked_last(world: World) -> None:
    metrics = metrics_of(world)

    def agents() -> list[float]:
        text = tick(world, metrics)
        return [value(text, "agents", state) for state in ("up", "silent", "unknown")]

    before = agents()
    assert sum(before) == len(NODES)
    for node in NODES:
        world.context.nodes.check(node)
    assert agents() == [len(NODES), 0, 0]
    world.nodes.set_reachable("n1", False)
    with pytest.raises(UnavailableError):
        world.context.nodes.check("n1")
    assert agents() == [len(NODES) - 1, 1, 0]
    world.nodes.set_reachable("n1", True)
    with pytest.raises(NoStoreError):  # to refuse is to answer
        world.context.nodes.list_files("n1", shared=True)
    assert agents() == [len(NODES), 0, 0]


@pytest.mark.parametrize(
    ("error", "up"),
    [
        (UnavailableError("refused"), False),
        (TimedOutError("a frozen agent"), False),
        (NoStoreError("no marker"), True),
        (UnownedError("it has come up anew"), True),
        (OperationFailedError("no such file"), True),
    ],
)
def test_an_error_is_an_answer_unless_nobody_was_heard(error: RmspluginError, up: bool) -> None:
    told = AgentsTold()
    told.note("n1", error, shared=False)
    assert told.answers == {"n1": up}


def test_an_agent_of_a_node_that_is_gone_was_not_asked(world: World) -> None:
    told = AgentsTold()
    told.note("n1", NodeGoneError("n1 is gone"), shared=False)
    assert told.answers == {}


@pytest.mark.parametrize("shared", [False, True])
def test_room_in_stores_is_told_as_the_agents_said_it_last(tmp_path: Path, shared: bool) -> None:
    world = World(tmp_path, shared=shared)
    metrics = metrics_of(world)
    text = tick(world, metrics)
    assert value(text, "stores") == value(text, "store_free_bytes") == 0
    world.context.stores.require("n1")
    world.context.stores.require("n2")
    free = [world.context.nodes.space(node, shared=shared).free_bytes for node in ("n1", "n2")]
    text = tick(world, metrics)
    assert value(text, "stores") == (1 if shared else 2)
    assert value(text, "store_free_bytes") == (free[0] if shared else sum(free)) > 0
    world.close()


def test_templates_are_told_once_nodes_were_checked(world: World) -> None:
    metrics = metrics_of(world)
    assert not re.search(r"^rmsplugin_template", tick(world, metrics).decode(), re.MULTILINE)
    world.context.agents_told.note("n1", _checked(3, 7 << 20), shared=False)
    world.context.agents_told.note("n2", _checked(1, 1 << 20), shared=False)
    world.context.agents_told.note("other", _checked(9, 1), shared=False)
    text = tick(world, metrics)
    assert (value(text, "templates"), value(text, "template_bytes")) == (4, 8 << 20)


def _checked(templates: int, size_bytes: int) -> NodeCheck:
    return NodeCheck("simulated", {}, {}, 0.0, True, "raw", frozenset(), templates=(templates, size_bytes))


def test_seconds_of_solvers_are_added_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, propose = metrics_of(world), world.propose
    world.submit(vms=1, cpus=1)
    monkeypatch.setattr(world, "propose", lambda *words: replace(propose(*words), solver_s=0.25))
    for _ in range(2):
        text = tick(world, metrics)
    assert value(text, "solver_seconds_total") >= 0.25


@pytest.mark.parametrize(("by_script", "counted"), [(False, {"engine": 1}), (True, {})])
def test_a_job_that_an_operation_sends_back_counts_unless_its_script_has_caused_that(
    world: World, by_script: bool, counted: dict[str, int]
) -> None:
    job = world.running()
    ledger = world.context.ledger
    ledger.update_vjob(job, begins_anew=by_script)
    task: Any = SimpleNamespace(job_id=job, context=world.context, vjob=lambda: ledger.vjob(job))
    for _ in range(2):  # then it is behind the gate
        back_behind_gate(task)
        assert world.context.rms.job(job).state is JobState.PENDING
    assert ledger.tally.now().requeues == counted


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
        assert not re.search(r"_(mib|ms|total|minutes|kb)\b", metric.name)
        assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_a_duration_is_in_the_bucket_of_its_bound_and_in_all_above() -> None:
    tally = Tally()
    for took_s in (-1.0, BOUNDS_S[0], BOUNDS_S[0] + 0.001, 10 * BOUNDS_S[-1]):
        tally.action_ended(1, "run", False, took_s, 0)
    durations = tally.now().actions["run", False]
    assert (durations.counts[0], durations.counts[1], durations.counts[-1]) == (2, 1, 1)
    assert durations.total_s == pytest.approx(2 * BOUNDS_S[0] + 0.001 + 10 * BOUNDS_S[-1])


def test_actions_of_kinds_that_are_not_known_are_told_as_other() -> None:
    tally = Tally()
    tally.action_began(1, "vjob12-0 of alice")
    assert tally.now().under_way == {1: "other"} and "other" in ACTION_KINDS
    tally.action_ended(1, "vjob12-0 of alice", True, 1.0, 7)
    now = tally.now()
    assert (set(now.actions), now.moved_bytes["other"], now.under_way) == ({("other", True)}, 7, {})


def test_what_is_undone_is_not_counted(world: World) -> None:
    ledger = world.context.ledger
    with pytest.raises(RuntimeError), ledger.transaction():
        ledger.event("requeue", "undone")
        raise RuntimeError
    with ledger.transaction():
        with pytest.raises(RuntimeError), ledger.transaction():
            ledger.event("requeue", "undone, inside of another")
            raise RuntimeError
        ledger.event("requeue-asked", "it stays")
        assert not ledger.tally.now().requeues  # it may be undone yet
    assert ledger.tally.now().requeues == {"script": 1}


# -- nothing is asked, nothing waits ---------------------------------------------------------------------------------


def test_a_scrape_asks_nobody_and_needs_neither_the_cycle_nor_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = metrics_of(world)
    world.running()
    tick(world, metrics)
    for adapter in (world.rms, world.hypervisor, world.nodes, world.guests):
        monkeypatch.setattr(type(adapter), "__getattribute__", _asked, raising=False)
    made: list[bytes] = []
    with world.cycle.lock, world.context.ledger.transaction():
        scrape = threading.Thread(target=lambda: made.append(metrics.text()))
        scrape.start()
        scrape.join(PATIENCE_S)
        assert made, "the scrape waits"
    monkeypatch.undo()


def _asked(self: object, name: str) -> Any:
    raise AssertionError(f"{type(self).__name__}.{name} was asked for")


def test_a_fault_of_what_is_told_never_ends_a_cycle_and_is_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = metrics_of(world)
    monkeypatch.setattr(world.context.ledger, "vjobs", lambda: 1 / 0)
    for _ in range(3):
        metrics.cycle_ended()
    assert caplog.text.count("metrics are of an older cycle") == 1


# -- privacy ---------------------------------------------------------------------------------------------------------


def test_no_job_user_vm_node_or_sentence_of_a_populated_ledger_is_told(world: World) -> None:
    metrics = metrics_of(world)
    secret = {"user": "zebulon", "uid": 65534, "account": "accountancy", "job_name": "zeppelin"}
    known = {key: each for key, each in secret.items() if key in ("user", "uid")}
    jobs = [world.sleeping(**known), world.running(**known), world.submit(vms=500, **known)]
    ledger = world.context.ledger
    ledger.update_vjob(jobs[1], job_name=secret["job_name"], reason="zirconium waits", partition="gone-partition")
    text = tick(world, metrics).decode()
    labels = set(re.findall(r'="([^"]*)"', text))
    events = {event.message for event in ledger.events(limit=1000)}
    assert events and not labels & events
    for word in ("zebulon", "zeppelin", "zirconium", "gone-partition", "nobody", *(f"vjob{job}" for job in jobs)):
        assert word not in text
    assert not labels & {str(job) for job in jobs} and not labels & set(world.sizes)
    assert value(text.encode(), "vjobs", "other", "running") == 1


# -- the listener ----------------------------------------------------------------------------------------------------


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def test_only_get_of_metrics_is_answered() -> None:
    with Listening() as listening:
        assert listening.ask() == (200, b"text")
        assert [listening.ask(method)[0] for method in ("POST", "HEAD", "PUT")] == [405, 405, 405]
        assert [listening.ask(path=path)[0] for path in ("/", "/v1/status", "/metrics/x")] == [404, 404, 404]


def test_many_readers_cost_as_little_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_FRESH_S", PATIENCE_S)
    with Listening() as listening:
        assert {listening.ask() for _ in range(5)} == {(200, b"text")}
        assert listening.made == 1


def test_a_slow_client_harms_nobody_and_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENT_S", 10 * PATIENCE_S)  # only their number ends them
    with Listening(text=b"x" * 4_000_000) as listening:
        slow = [listening.connect() for _ in range(3 * MOST)]
        for number, each in enumerate(slow):  # silent, half a request, or an answer that is not read
            told = (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")[number % 3]
            try:
                each.sendall(told)
            except OSError:
                assert number < 2 * MOST  # the oldest ones made room
        slow[0].settimeout(10.0)
        assert slow[0].recv(1) == b"", "the oldest one made room"
        until(lambda: listening.listener.connections == MOST, "so many connections, and no more")
        assert listening.ask() == (200, b"x" * 4_000_000)
        for each in slow:
            each.close()


def test_clients_that_never_read_their_answer_make_room_for_those_who_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENT_S", 10 * PATIENCE_S)
    with Listening(text=b"x" * 40_000_000) as listening, contextlib.ExitStack() as clients:
        for _ in range(2 * MOST):
            deaf = clients.enter_context(contextlib.closing(listening.connect()))
            deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert deaf.recv(1) == b"H", "it is being answered"
        until(lambda: listening.listener.connections == MOST, "so many, and no more")
        assert listening.ask()[0] == 200


def test_a_client_that_never_reads_its_answer_is_ended_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENT_S", 0.5)
    with Listening(text=b"x" * 40_000_000) as listening, contextlib.closing(listening.connect()) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: listening.made > 0, "its answer")
        until(lambda: listening.listener.connections == 0, "its end")


def test_an_address_that_is_taken_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_RETRY_S", 0.01)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        listening = Listening(port=port)
        assert f"cannot listen on 127.0.0.1:{port}" in caplog.text
    with listening:
        until(lambda: listening.listener._server is not None, "the address")
        assert listening.ask() == (200, b"text")


# -- settings --------------------------------------------------------------------------------------------------------


def test_it_is_off_by_default(world: World) -> None:
    assert Section().listen == ""
    assert open_metrics(world.capacities(), world.cycle, world.context.agents_told) is None


def test_without_prometheus_client_the_settings_are_refused_with_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert (
        open_metrics(world.capacities(), world.cycle, world.context.agents_told) is None
    )  # who wants none needs no package
    with pytest.raises(SettingsError, match=r"prometheus_client is not installed: pip install .rmsplugin\[metrics\]"):
        metrics_of(world)


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ({"listen": "0.0.0.0:9341"}, "other hosts reach 0.0.0.0:9341"),
        ({"listen": "10.1.0.1:9341"}, "beyond_loopback = true"),
        ({"groups": {"g1": "[2001:db8::1]:9341"}}, "other hosts reach"),
        ({"listen": "localhost:9341"}, "is no ADDRESS:PORT"),
        ({"listen": "9341"}, "is no ADDRESS:PORT"),
        ({"listen": "127.0.0.1:0"}, "no port between"),
        ({"listen": "127.0.0.1:x"}, "no port between"),
        ({"listen": "127.0.0.1:1", "groups": {"g1": "127.0.0.1:1"}}, "two engines cannot both"),
    ],
)
def test_addresses_that_are_wrong_or_not_allowed_are_refused(section: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        Section.model_validate(section)


def test_another_address_is_allowed_explicitly() -> None:
    for listen in ("127.0.0.1:9341", "[::1]:9341"):
        assert Section(listen=listen).listen == listen
    assert Section(listen="0.0.0.0:9341", beyond_loopback=True).beyond_loopback


def test_the_engine_of_a_group_has_its_own_address_or_none(world: World) -> None:
    section = {"listen": "127.0.0.1:1", "groups": {"g1": "127.0.0.1:2"}}
    changes = {
        "metrics": Section.model_validate(section),
        "cluster": world.settings.cluster.model_copy(
            update={"coordination": "zookeeper", "shared_dir": Path("/shared")}
        ),
    }
    settings: Settings = world.settings.model_copy(update=changes)
    assert [settings.of_group(name).metrics.listen for name in ("g1", "g2")] == ["127.0.0.1:2", ""]


# -- the guide -------------------------------------------------------------------------------------------------------


def test_the_guide_has_a_table_of_all_metrics() -> None:
    guide = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(rmsplugin_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", guide, re.MULTILINE)
    wanted = [
        (metric.full_name, str(metric.kind), ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in METRICS
    ]
    assert rows == wanted


def test_a_partition_of_the_settings_is_told_before_it_has_a_vjob(world: World) -> None:
    text = tick(world, metrics_of(world))
    for partition in ("vjob", "urgent"):
        assert value(text, "vjobs", partition, str(VJobState.WAITING)) == 0
        assert value(text, "vjob_losses_total", partition) == 0
