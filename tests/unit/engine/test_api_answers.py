"""Every request of the API is answered in the form that its route describes, and takes the values that it describes.

The service, its engine and its ledger are real, its neighbours simulated. `Served.ask` compares each answer with its
form.
"""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator
from patience import PATIENCE_S
from scenarios.world import World
from unit.api_forms import route_of
from unit.hosts import Hosts
from unit.served import ME, Served

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.adapters.rms.base import Readings
from rmsplugin.api.routes import ROUTES, Key, Route, path_of
from rmsplugin.decision.reservation import Reservation, Reservations
from rmsplugin.engine.context.machines import state_path
from rmsplugin.engine.controllers.shared_writes import SharedWrites
from rmsplugin.engine.ledger.checkpoints import CheckpointVM
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.engine.reconcile.reconcile import Directive
from rmsplugin.engine.serve import routes
from rmsplugin.engine.territory.territory import territory_of
from rmsplugin.groups.given import Given, text_of
from rmsplugin.groups.told import heard
from rmsplugin.model.vjob import VJobState

NAME = pwd.getpwuid(ME).pw_name
S, K = VJobState, OperationKind

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, which may make every request")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, controllers=Hosts("head", "backup").leader())
    yield served
    served.close()


@pytest.fixture(scope="module")
def asked_often(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.close()


class Teller:
    """Asks for all kinds of requests, and remembers which were answered."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.answered: set[str] = set()

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.served.ask(method, path, body)
        assert status == 200, f"{method} {path}: {answer}"
        route = route_of(method, path)
        assert route is not None
        self.answered.add(route.name)
        return answer


def test_every_request_is_answered_in_the_form_that_its_route_describes(served: Served) -> None:
    ask, world = Teller(served), served.world
    monitoring(ask, world)
    hooks_and_wrapper(ask, world)
    control(ask, world)
    orders(ask, world)
    saved_states(ask, world)
    report(ask)
    summary(ask, world)
    assert ask.answered == {route.name for route in ROUTES}


def monitoring(ask: Teller, world: World) -> None:
    ask("GET", "/v1/nodes")  # before the first look
    world.rms.nodes["n1"] = replace(world.rms.nodes["n1"], readings=Readings(0.41, 23149, 310, 41))
    job, big = world.running(), world.submit(vms=3, cpus=2)
    world.tick()
    ledger = world.context.ledger
    for _ in range(3):
        ledger.failures.node_failed("n1", "migrate", NAME, "no way")
    ledger.reservations.write(Reservations((Reservation("n2", f"vjob{job}-0", 5.0, frozenset({f"vjob{job}-0"})),)))
    ledger.checkpoints.intend(job, [CheckpointVM(f"vjob{job}-0", ("n1",))], ["n1"])
    ledger.checkpoints.is_whole(1, [CheckpointVM(f"vjob{job}-0", ("n1",), 5, "00")], taken=5.0, ran_s=1.0)
    vjob = ask("GET", f"/v1/jobs/{job}")["vjob"]
    assert vjob["state"] == "running" and vjob["checkpoint"]
    assert {row["job_id"] for row in ask("GET", "/v1/vjobs?ended=1")["vjobs"]} >= {job, big}
    assert ask("GET", f"/v1/vjobs?vjob={job}")["next"] is None
    ask("GET", f"/v1/vjobs?ended=1&before={big + 10}")
    stranger = world.submit()
    ask("GET", "/v1/unmet?user=nobody")
    assert "cpus" not in ask("GET", f"/v1/jobs/{stranger}")["vjob"], "no cycle has met it"
    assert ask("GET", "/v1/vms")["vms"] and ask("GET", "/v1/groups")["groups"]
    nodes = ask("GET", "/v1/nodes")["nodes"]
    keys = ("cpu_load", "memory_free_mib", "watts", "temperature_c")
    assert [[node[key] for key in keys] for node in nodes] == [[0.41, 23149, 310, 41], [None] * 4, [None] * 4]
    assert [node["name"] for node in nodes if node["rests"]] == ["n1"]
    assert [node["name"] for node in nodes if node["guests"]] == ["n2"]
    assert ask("GET", "/v1/events?limit=1000")["events"]
    assert ask("GET", f"/v1/jobs/{job}/decisions")["decisions"]
    number = ask("GET", "/v1/cycles")["cycles"][-1]["number"]
    assert ask("GET", f"/v1/cycles/{number}")["steps"]
    assert ask("GET", "/v1/plan?dot=1")["decision"]
    assert ask("GET", f"/v1/jobs/{job}/usage")["usage"]
    ask("GET", "/v1/schedule")
    ask("GET", f"/v1/page/news?after={ask('GET', '/v1/page?node=n1')['number']}")
    ask("GET", "/v1/status")
    assert ask("GET", "/v1/config")["settings"]["slurm"]["partitions"]
    assert len(ask("GET", "/v1/openapi.json")["paths"]) == len({route.path for route in ROUTES})


def summary(ask: Teller, world: World) -> None:
    """As the engine of a group would answer."""
    shared = world._ledger_path.parent
    EpochFiles(shared / "site", "given").write(7, text_of(Given(7, 2, {"left": ("n1", "n2")})))
    territory = territory_of("left", shared)
    territory.hear()
    territory.remember_in(world.context.ledger)
    territory.done = territory.version
    ask.served.service._answers._territory = territory
    answer = ask("GET", "/v1/summary")
    assert (answer["group"], answer["seen"], answer["released"]) == ("left", [7, 2], [])
    assert answer["vjobs"] and answer["summary"]["nodes"] == 2
    epoch, said = heard(answer)
    assert (epoch, said.seen) == (world.context.epoch, (7, 2))
    assert {str(state) for state in said.vjobs.values()} == {*answer["vjobs"].values()}


def hooks_and_wrapper(ask: Teller, world: World) -> None:
    job = world.running()
    ask("POST", f"/v1/jobs/{job}/prolog")
    account = {"name": "nobody", "uid": 65534, "gid": 65534, "gecos": "", "home": "/home/alice", "shell": "/bin/sh"}
    ask("POST", f"/v1/jobs/{job}/account", {**account, "groups": [["nogroup", 65534, []]], "people": []})
    assert ask("GET", f"/v1/jobs/{job}/access?wrapper=1&run=0&host=front1")["private_key"]
    for verb, body in (("started", None), ("attached", None), ("finished", {}), ("requeued", {"by": "others"})):
        ask("POST", f"/v1/jobs/{job}/{verb}", body)
    ask("POST", f"/v1/jobs/{job}/epilog")
    ask("POST", "/v1/rooms/7/report", {"hook": "prolog", "node": "n1", "problem": "", "ended": [], "age_s": 1.5})
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert "vms" not in ask("GET", f"/v1/jobs/{job}/access")


def control(ask: Teller, world: World) -> None:
    job = world.running()
    for verb in ("suspend", "resume", "migrate"):
        number = ask("POST", f"/v1/jobs/{job}/{verb}", {})["operation"]
        assert ask("GET", f"/v1/operations/{number}?wait=20")["actions"]
        world.until(job, S.SLEEPING if verb == "suspend" else S.RUNNING)
    for state in ("running", "auto"):
        assert ask("POST", f"/v1/jobs/{job}/prefer", {"state": state}) == {"vjobs": [str(job)], "refused": {}}
    assert ask("POST", f"/v1/jobs/{job}/resize", {"cpus": 1}) == {"vjobs": [str(job)], "refused": {}}


def orders(ask: Teller, world: World) -> None:
    assert ask("POST", "/v1/pause")["paused"]["by"] == NAME
    assert ask("GET", "/v1/status")["paused"]
    assert ask("POST", "/v1/unpause") == {"changed": True, "paused": None}
    assert ask("POST", "/v1/handover", {})["to"] == "backup"
    assert ask("GET", "/v1/status")["cluster"]["standbys"][0]["host"] == "backup"
    held = Held(99, "99", NAME, Directive(K.STOP, "not seen"), proved=False)
    world.cycle.brake.let_through([held], 9)
    assert ask("GET", "/v1/status")["held"]
    assert ask("POST", "/v1/confirm", {"vjobs": ["99"]})["confirmed"] == ["99"]
    world.context.ledger.markers.set("n3", "f" * 32)
    ask("POST", "/v1/new-store", {"store": "n3"})
    world.kill_node("n3")
    ask("POST", "/v1/nodes/n3/gone")
    assert any(row["gone_by"] for row in ask("GET", "/v1/nodes")["nodes"])
    ask("POST", "/v1/nodes/n3/back")
    fencing = world.cycle.fencing
    nodes = fencing._settings.nodes.model_copy(update={"fence": ("true", "{node}"), "fence_status": ()})
    fencing._settings = fencing._settings.model_copy(update={"nodes": nodes})
    ask("POST", "/v1/nodes/n3/fence")
    ask("POST", "/v1/nodes/n3/back")
    world.revive_node("n3")


def saved_states(ask: Teller, world: World) -> None:
    """Two times the states of a vjob are put aside, because one was damaged; once they are mended and taken back."""
    put_aside(world)
    put_aside(world, mended=True)
    first, second = ask("GET", "/v1/states")["states"]
    assert ask("POST", f"/v1/states/{second['number']}/take-back")["operation"]
    ask("POST", f"/v1/states/{first['number']}/drop")


def put_aside(world: World, *, mended: bool = False) -> None:
    job = world.sleeping()
    (vm,) = world.context.ledger.vms(job)
    path = state_path(world.context.settings, vm)
    intact = world.files.get(vm.image_node, path)
    world.files.damage(vm.image_node, path)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    if mended:
        assert intact is not None
        aside = world.context.ledger.set_aside.all()[-1]
        world.files.put(vm.image_node, path.replace("/vjob", f"/aside-{aside.id}.vjob"), intact)


def report(ask: Teller) -> None:
    number = ask("POST", "/v1/reports", {})["report"]
    while not (answer := ask("GET", f"/v1/reports/{number}?wait=5"))["made"]:
        assert answer["doing"]
    assert answer["bytes"] == len(answer["text"])


# -- the values that requests take ------------------------------------------------------------------------------------

_WRONG: Mapping[str, list[Any]] = {
    "string": ["\x07;", 7, None],
    "integer": [-1, "x", 2**60],
    "number": [-1, "x", True],
    "boolean": ["yes", 1],
    "array": ["x", 7],
}
_KEYS = [(route, key) for route in ROUTES for key in (*route.variables, *route.query, *route.body)]


def asked(served: Served, route: Route, key: Key, value: object) -> tuple[int, str]:
    """Status and sentence of the answer to a request that has examples for all its keys, and this value for one."""
    values = {each.name: each.schema["examples"][0] for each in (*route.variables, *route.query, *route.body)}
    values[key.name] = value
    if "wait" in values and key.name != "wait":
        values["wait"] = 0
    words = {each.name: quote(str(values[each.name]), safe="") for each in (*route.variables, *route.query)}
    query = "&".join(f"{each.name}={words[each.name]}" for each in route.query)
    body = {each.name: values[each.name] for each in route.body}
    path = path_of(route, words) + (f"?{query}" if query else "")
    status, answer = served.ask(route.method, path, body or None)
    return status, str(answer.get("error", ""))


def wrong_values(key: Key, *, in_path: bool) -> list[object]:
    """Values that do not fit the schema of the key, as they can be sent."""
    kinds = key.schema["type"] if isinstance(key.schema["type"], list) else [key.schema["type"]]
    values = [value for value in _WRONG[kinds[0]] if not Draft202012Validator(key.schema).is_valid(value)]
    # In a path all values are texts, and 7 is one as well: numbers are wrong only where a number is wanted.
    return [value for value in values if isinstance(value, str) or not in_path or _is_number(value, kinds[0])]


def _is_number(value: object, kind: str) -> bool:
    return kind in ("integer", "number") and type(value) in (int, float)


@pytest.mark.parametrize(("route", "key"), _KEYS, ids=lambda each: each.name)
def test_a_request_takes_the_values_that_its_route_describes_and_no_others(
    asked_often: Served, route: Route, key: Key
) -> None:
    for example in key.schema["examples"]:
        assert asked(asked_often, route, key, example)[0] != 400
    in_body = key in route.body
    for value in wrong_values(key, in_path=not in_body):
        assert asked(asked_often, route, key, value)[0] == 400, f"{key.name}={value!r}"
    assert wrong_values(key, in_path=not in_body), "nothing was tried"


def test_a_ledger_that_does_not_answer_is_said_with_the_reason(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_: Path) -> float:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(routes, "_LEDGER_S", 0.1)
    writes = SharedWrites(tmp_path, is_full)
    writes.try_one()
    monkeypatch.setattr(served.service._answers, "_controllers", Hosts("head").leader(writes))
    writing, done = threading.Event(), threading.Event()

    def hang() -> None:
        with served.ledger.transaction():
            writing.set()
            done.wait(PATIENCE_S)

    thread = threading.Thread(target=hang)
    thread.start()
    assert writing.wait(PATIENCE_S)
    try:
        status, answer = served.ask("GET", "/v1/status")
        assert status == 503 and "the ledger does not answer: the shared directory" in answer["error"]
        assert "cannot be written: No space left" in answer["error"]
    finally:
        done.set()
        thread.join()
    assert served.ask("GET", "/v1/status")[0] == 200
