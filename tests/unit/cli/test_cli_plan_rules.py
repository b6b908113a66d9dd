"""`rmsplugin plan` and `rmsplugin pack` for files with placement rules: the answers, the reasons, and bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmsplugin.cli.main import main


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMSPLUGIN_CONFIG", raising=False)


def write(state: str, vms: int, *rules: Any) -> None:
    nodes = [{"name": f"n{i}", "cpu": 4, "memory_mib": 4096} for i in (1, 2, 3)]
    host = {"host": "n1"} if state == "running" else {}
    members = [{"name": f"a-{i}", "cpu": 1, "memory_mib": 512, **host} for i in range(vms)]
    data = {"nodes": nodes, "vjobs": [{"name": "a", "state": state, "vms": members}], "rules": list(rules)}
    Path("i.json").write_text(json.dumps(data))


SPREAD = {"rule": "spread", "vms": ["a-0", "a-1"]}
ALL_SPREAD = {"rule": "spread", "vms": [f"a-{i}" for i in range(4)]}


def test_a_decision_names_the_rule_that_stood_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    write("waiting", 4, ALL_SPREAD)
    assert main(["plan", "--instance", "i.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["decision"]["a"]
    assert (told["state"], told["code"]) == ("waiting", "rule")
    assert told["reason"] == (
        "needs 4 CPUs and 2048 MiB in 4 VMs; 3 nodes have room for one of its VMs, but spread of 4 VMs has each on a "
        "node of its own"
    )
    assert (told["numbers"]["rule"], told["numbers"]["nodes_with_room"]) == ("spread of 4 VMs", 3)


@pytest.mark.parametrize("heuristic", [(), ("--heuristic", "ffd"), ("--heuristic", "better-fit")])
def test_a_plan_separates_those_that_are_spread(capsys: pytest.CaptureFixture[str], heuristic: tuple[str, ...]) -> None:
    write("running", 2, SPREAD)
    assert main(["plan", "--instance", "i.json", "--json", *heuristic]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len({at["host"] for at in told["target"].values()}) == 2
    assert heuristic or (told["plan"]["optimal"] and told["plan"]["cost"] == 512)


def test_pack_packs_by_the_rules_and_says_where_they_leave_no_place(capsys: pytest.CaptureFixture[str]) -> None:
    write("running", 2, SPREAD)
    assert main(["pack", "--instance", "i.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["nodes_used"], told["lower_bound"], told["ffd_nodes_used"]) == (2, 2, 2) and told["optimal"]
    assert main(["pack", "--instance", "i.json", "--heuristic", "better-fit"]) == 1
    assert "better-fit knows no rules about VMs beside each other, and breaks one" in capsys.readouterr().err
    write("running", 4, ALL_SPREAD)
    assert main(["pack", "--instance", "i.json"]) == 1
    assert "rules and the room on nodes leave no place for all VMs together" in capsys.readouterr().err


def test_a_file_with_a_faulty_rule_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write("running", 2, {"rule": "spread", "vms": ["a-0", "b-9"]})
    for command in ("plan", "pack"):
        assert main([command, "--instance", "i.json"]) == 2
        assert "i.json: $.rules[0].vms[1]: there is no VM 'b-9'" in capsys.readouterr().err
