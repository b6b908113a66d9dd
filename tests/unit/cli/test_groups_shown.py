"""`rmsplugin groups`: the groups of VM hosts, by the real command and the real service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios import world
from unit.cli.json_documents import answer_of
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.cli.main import main
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    sections = {"left": {"hosts": world.NODES[0]}, "right": {"hosts": ",".join(world.NODES[1:])}}
    monkeypatch.setitem(world._SETTINGS, "group", sections)
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["groups", *words]) == 0
    return capsys.readouterr().out


def test_there_are_none_before_the_first_decision(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_of(said(capsys, "--json")) == {"groups": []}


def test_each_group_is_shown_with_what_is_free_and_what_is_demanded(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    job = served.world.submit(vms=1, cpus=1, memory_mib=256)
    served.world.until(job, VJobState.RUNNING)
    served.world.submit(vms=1, cpus=world.CPUS * 2, memory_mib=256)
    served.world.tick()
    left, right = answer_of(said(capsys, "--json"))["groups"]
    assert (left["name"], left["nodes"], left["hosts"]) == ("left", 1, [world.NODES[0]])
    assert (right["name"], right["nodes_up"]) == ("right", len(world.NODES) - 1)
    assert left["running"] + right["running"] == 1
    assert left["cpus"] + right["cpus"] == world.CPUS * len(world.NODES)
    assert left["cpus_free"] + right["cpus_free"] == world.CPUS * len(world.NODES) - 1
    assert left["cpus_largest"] <= world.CPUS
    assert left["waiting"] + right["waiting"] == 1
    assert left["cpus_demanded"] + right["cpus_demanded"] == world.CPUS * 2 + 1
    lines = said(capsys, "--format=group,nodes,running,hosts").splitlines()
    assert lines[0].split() == ["GROUP", "NODES", "RUNNING", "HOSTS"]
    assert lines[1].split()[0] == "left" and lines[1].endswith(world.NODES[0])


def test_while_the_engine_is_paused_the_groups_are_shown(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.ledger.plans.set_pause("root")
    served.world.tick()
    assert [group["name"] for group in answer_of(said(capsys, "--json"))["groups"]] == ["left", "right"]
