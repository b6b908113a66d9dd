"""`rmsplugin plan --memory-threshold`: VMs are planned up to a share of the memory, and nodes are reserved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of

from rmsplugin.cli.main import main

REAL_MIB = 2000


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMSPLUGIN_CONFIG", raising=False)
    Path("i.json").write_text(json.dumps(blocked()))


def blocked() -> dict[str, Any]:
    """n0 is short by 100 MiB at a threshold of 0.9: its large vjob has outgrown it; 1,830 MiB are idle, in pieces."""
    demands = {"n0": {"large": 1200, "a0": 700}, **{f"n{i}": {f"a{i}": 590, f"b{i}": 600} for i in (1, 2, 3)}}
    vjobs = [
        {
            "name": name,
            "state": "running",
            "ran_s": 100,
            "vms": [{"name": f"{name}-0", "cpu": 0.1, "memory_mib": mib, "host": node}],
        }
        for node, here in demands.items()
        for name, mib in here.items()
    ]
    return {"nodes": [{"name": node, "cpu": 8, "memory_mib": REAL_MIB} for node in demands], "vjobs": vjobs}


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", "--instance", "i.json", "--json", "--deterministic-limit", "0.2", *words]) == 0
    told: dict[str, Any] = answer_of(capsys.readouterr().out)
    return told


def actions(told: dict[str, Any]) -> list[str]:
    return [f"{action['action']} {action['vm']}" for pool in told["plan"]["pools"] for action in pool]


PRICED = ("compaction", "reservation", "suspension")


@pytest.mark.parametrize(("policy", "compared"), [("mixed", PRICED), ("slowdown", PRICED), ("v-reconfiguration", ())])
def test_a_node_is_reserved_for_a_vm_that_outgrows_its_own_and_the_notes_say_why(
    capsys: pytest.CaptureFixture[str], policy: str, compared: tuple[str, ...]
) -> None:
    told = planned(capsys, "--policy", policy, "--memory-threshold", "0.9")
    (note,) = told["notes"]
    assert (note["note"], note["numbers"]["vm"]) == ("reserved", "large-0")
    assert tuple(way for way in PRICED if f"{way} " in note["sentence"]) == compared
    assert actions(told) == [], "it waits for its reserved node where it is"
    assert main(["plan", "--instance", "i.json", "--policy", policy, "--memory-threshold", "0.9"]) == 0
    assert f"\n{note['sentence']}.\n" in capsys.readouterr().out


def test_load_sharing_reserves_nothing_and_relieves_the_short_node_by_the_cheapest_migration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = planned(capsys, "--policy", "load-sharing", "--memory-threshold", "0.9")
    assert told["notes"] == []
    assert actions(told) != []


def test_without_a_threshold_the_whole_memory_is_planned_with_and_there_are_no_notes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = planned(capsys, "--policy", "v-reconfiguration")
    assert actions(told) == [] and "notes" not in told
    whole = planned(capsys, "--policy", "v-reconfiguration", "--memory-threshold", "1")
    assert {**whole, "seconds": 0} == {**told, "seconds": 0, "notes": []}


@pytest.mark.parametrize("wrong", ["0", "1.01", "-1", "nan", "much"])
def test_a_share_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--instance", "i.json", "--memory-threshold", wrong])
    assert ended.value.code == 2
    assert f"'{wrong}' is not a number above 0, and 1 at most" in capsys.readouterr().err


def test_it_is_not_for_the_live_cluster_whose_settings_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--live", "--memory-threshold", "0.9"])
    assert ended.value.code == 2
    assert "--memory-threshold is for --instance" in capsys.readouterr().err
