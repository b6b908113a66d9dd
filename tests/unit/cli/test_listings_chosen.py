"""Listings of some nodes, VMs and events, and operations on several jobs: the real commands and the real service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.cli.main import main
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


class Said:
    """What a command says."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        assert main(list(words)) == status
        out, self.error = self._capsys.readouterr()
        return out

    def names(self, key: str, *words: str, status: int = 0) -> list[Any]:
        (rows,) = (each for each in answer_of(self(*words, "--json", status=status)).values() if isinstance(each, list))
        return [row[key] for row in rows]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def test_some_nodes_are_listed_and_those_that_are_none_are_named(served: Served, said: Said) -> None:
    served.world.tick()
    assert said.names("name", "nodes", "n3", "n[1-2]") == ["n1", "n2", "n3"]
    assert said.names("name", "nodes", "n2", "x[1-2]", status=1) == ["n2"]
    assert said.error == "".join(f"rmsplugin nodes: {each} is no node that may host VMs\n" for each in ("x1", "x2"))


def test_the_vms_of_some_vjobs_are_listed_by_any_of_their_ids(served: Served, said: Said) -> None:
    world = served.world
    first, second, other = world.running(), world.running(vms=2), world.running()
    assert said.names("name", "vms", str(second)) == [f"vjob{second}-0", f"vjob{second}-1"]
    assert said.names("vjob", "vms", str(first), str(other)) == [str(first), str(other)]
    served.ledger.update_vjob(other, display_id="50_1")
    served.add_vjob(77, 0, display_id="50_2")
    assert said.names("name", "vms", "50_1") == said.names("name", "vms", str(other)) == [f"vjob{other}-0"]
    assert len(said.names("name", "vms", "50")) == 2
    assert said.names("name", "vms", str(first), "99", status=1) == [f"vjob{first}-0"]
    assert said.error == "rmsplugin vms: no vjob 99\n"


def test_events_are_chosen_by_time_node_user_and_kind(served: Served, said: Said) -> None:
    ledger, now = served.ledger, time.time()
    served.add_vjob(12, 5)
    lost, back = "lost", "went-back"
    for kind, vjob, node in ((lost, "12", "n1"), (back, "12", "n2"), (back, "13", "n1")):
        ledger.event(kind, "for a test", vjob=vjob, node=node)
    ledger._db.execute("update events set time = ? where vjob = '12'", [now - 5000])
    ledger._db.execute("update events set time = ? where vjob = '13'", [now - 500])

    def found(*words: str) -> list[tuple[str, str]]:
        rows = answer_of(said("events", "--json", *words))["events"]
        return [(row["kind"], row["node"]) for row in rows]

    assert found("--node", "n1") == [(lost, "n1"), (back, "n1")]
    assert found("--kind", f"{back},requeue") == [(back, "n2"), (back, "n1")]
    assert found("--user", "u5", "--kind", back) == [(back, "n2")]
    assert found("--since", "1h") == [(back, "n1")]
    assert found("--since", "1") == [(back, "n2"), (back, "n1")]
    cursor = answer_of(said("events", "--json", "-n", "1"))["cursor"]
    assert found("--since", cursor) == []
    ledger.event(lost, "for a test", node="n2")
    assert found("--since", cursor) == [(lost, "n2")]
    with pytest.raises(SystemExit) as ended:
        main(["events", "--since", "soon"])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        main(["events", "--since", "17,group"])
    assert ended.value.code == 2


def test_a_partition_a_node_or_a_user_that_there_is_not_is_an_error_and_the_rest_is_shown(
    served: Served, said: Said
) -> None:
    job = served.world.running()
    (node,) = {row.host for row in served.ledger.vms(job)}
    partition = served.ledger.vjob(job).partition
    served.ledger.event("a", "for a test", node="n1")
    served.ledger.event("a", "for a test", node="gone-long-ago")

    def told(status: int, *words: str) -> list[str]:
        said(*words, status=status)
        return said.error.splitlines()

    assert said.names("display_id", "vjobs", "-p", f"{partition},batch", status=2) == [str(job)]
    assert said.error == f"rmsplugin vjobs: batch is no partition of vjobs; there are {partition}\n"
    assert said.names("display_id", "vjobs", "-w", f"{node},n9", status=2) == [str(job)]
    assert said.error == "rmsplugin vjobs: n9 is no node that may host VMs\n"
    assert set(said.names("node", "events", "--node", "n9,n1", status=2)) == {"n1"}
    assert said.error == "rmsplugin events: n9 is no node that may host VMs\n"
    assert told(2, "events", "--follow", "--node", "n9") == ["rmsplugin events: n9 is no node that may host VMs"]
    assert told(2, "events", "--user", "nobody-here") == ["rmsplugin events: no user nobody-here"]
    assert said.names("node", "events", "--node", "gone-long-ago") == ["gone-long-ago"]
    assert said.names("job_id", "vjobs", "-A", "no-such-account", "-n", "no-such-name", "-u", "root") == []


def test_a_kind_that_no_event_has_is_an_error_and_the_rest_is_shown(served: Served, said: Said) -> None:
    ledger = served.ledger
    for kind in ("of-an-older-release", "lost", "requeue"):
        ledger.event(kind, "for a test", node="n1")
    assert said.names("kind", "events", "--kind", "lots,lost", status=2) == ["lost"]
    (line,) = said.error.splitlines()
    assert line.startswith("rmsplugin events: lots is no kind of event; there are account, ")
    assert " vjob-sleeping," in line and " lost," in line
    assert said.names("kind", "events", "--kind", "of-an-older-release,lost", "-n", "1") == ["lost"]
    assert said.names("kind", "events", "--kind", "of-an-older-release", "--since", "100", status=0) == []
    said("events", "--kind", "lots", "--follow", status=2)
    assert said.error.startswith("rmsplugin events: lots is no kind of event; ")


def test_a_list_that_was_cut_says_so_beside_an_unknown_name(served: Served, said: Said) -> None:
    for _ in range(3):
        served.ledger.event("lost", "for a test", node="n1")
    cut, unknown = "only the newest 2 events are shown; see --limit", "n9 is no node that may host VMs"
    served.world.tick()
    words = ("events", "--node", "n1,n9", "--since", "1", "-n", "2")
    said(*words, status=2)
    assert said.error.splitlines() == [f"rmsplugin events: {each}" for each in (cut, unknown)]
    document = json.loads(said(*words, "--json", status=2))
    assert document["warnings"] == [{"description": cut}]
    said("events", "--node", "n9", "--kind", "lost", status=2)
    assert said.error == f"rmsplugin events: {unknown}\n", "the kinds that there are do not explain it"


def test_names_that_nobody_can_judge_pass(served: Served, said: Said) -> None:
    served.world.running()
    served.world.cycle.seen = None  # before its first look an engine knows no node
    assert said.names("job_id", "vjobs", "-w", "n9") == []


def test_several_jobs_are_suspended_and_each_that_cannot_be_has_its_sentence(served: Served, said: Said) -> None:
    world = served.world
    first, second = world.running(), world.running()
    waiting = world.submit(vms=1, cpus=200)
    world.tick()
    out = said("suspend", str(first), str(waiting), "99", str(second), "--no-wait", status=1)
    assert out.count("operation ") == 2
    assert said.error.splitlines() == [
        f"rmsplugin suspend: vjob {waiting} is waiting, not running",
        "rmsplugin suspend: no vjob 99",
    ]
    for job in (first, second):
        world.until(job, VJobState.SLEEPING)
    said("resume", f"{first},{second}", "--no-wait")
    for job in (first, second):
        world.until(job, VJobState.RUNNING)


def test_one_vm_is_of_one_vjob(served: Served, said: Said) -> None:
    said("migrate", "12", "13", "--vm", "0", status=2)
    assert said.error == "rmsplugin migrate: --vm is about one vjob: name one\n"


def test_with_elements_of_an_array_among_several_jobs_all_are_done(served: Served, said: Said) -> None:
    world = served.world
    array, alone = world.submit(vms=1, memory_mib=128, array=(1, 2)), world.running()
    ids = [world.context.ledger.find_vjob(name).job_id for name in _split(world, array)]
    for job in ids:
        world.until(job, VJobState.RUNNING)
    said("suspend", str(array), str(alone), "--no-wait")
    for job in (*ids, alone):
        world.until(job, VJobState.SLEEPING)
    said("suspend", str(array), str(alone), status=1)
    assert said.error.splitlines()[0] == f"rmsplugin suspend: vjobs {array} are sleeping already"


def _split(world: Any, array: int) -> list[str]:
    names = [f"{array}_1", f"{array}_2"]
    for _ in range(20):
        world.tick()
        known = {vjob.display_id for vjob in world.context.ledger.vjobs()}
        if known.issuperset(names):
            return names
    raise AssertionError(f"never met: {names}")
