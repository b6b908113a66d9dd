"""`rmsplugin plan` with vjobs that are paused: files, the option, the answer as JSON and for a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of

from rmsplugin.cli.main import main


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMSPLUGIN_CONFIG", raising=False)


def vjob(name: str, state: str, memory_mib: int = 1024, **keys: Any) -> dict[str, Any]:
    host = {"host": "n1"} if state in ("running", "paused") else {}
    return {
        "name": name,
        "state": state,
        "vms": [{"name": f"{name}-0", "cpu": 1, "memory_mib": memory_mib, **host}],
        **keys,
    }


def planned(capsys: pytest.CaptureFixture[str], vjobs: list[dict[str, Any]], *words: str) -> dict[str, Any]:
    Path("i.json").write_text(json.dumps({"nodes": [{"name": "n1", "cpu": 1, "memory_mib": 4096}], "vjobs": vjobs}))
    assert main(["plan", "--instance", "i.json", "--json", *words]) == 0
    told: dict[str, Any] = answer_of(capsys.readouterr().out)
    assert told["plan"]["optimal"]
    return told


def actions(told: dict[str, Any]) -> list[list[str]]:
    return [[f"{action['action']} {action['vm']}" for action in pool] for pool in told["plan"]["pools"]]


def test_one_that_makes_way_is_saved_without_the_option_and_paused_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    queue = [vjob("short", "waiting"), vjob("long", "running")]
    saved = planned(capsys, queue)
    assert (actions(saved), saved["plan"]["cost"]) == ([["suspend long-0", "run short-0"]], 1024)
    paused = planned(capsys, queue, "--pause-limit", "600")
    assert (actions(paused), paused["plan"]["cost"]) == ([["pause long-0"], ["run short-0"]], 0)
    assert paused["decision"]["long"]["state"] == "paused"
    assert paused["target"]["long-0"] == {"state": "paused", "host": "n1"}
    assert paused["plan"]["makespan_s"]["dependencies"] == 6.0  # that of a boot


def test_and_saved_when_somebody_needs_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    queue = [vjob("short", "waiting", 3584), vjob("long", "paused", state_s=10)]
    told = planned(capsys, queue, "--pause-limit", "600")
    assert actions(told) == [["suspend long-0"], ["run short-0"]]
    assert told["plan"]["pools"][0][0]["paused"] is True


@pytest.mark.parametrize("words", [(), ("--pause-limit", "600")], ids=["saved at once", "paused"])
def test_one_that_is_paused_goes_on_for_nothing(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    told = planned(capsys, [vjob("long", "paused")], *words)
    assert (actions(told), told["plan"]["cost"]) == ([["unpause long-0"]], 0)
    action = told["plan"]["pools"][0][0]
    assert (action["from"], action["to"]) == ("n1", "n1")


def test_a_target_pauses(capsys: pytest.CaptureFixture[str]) -> None:
    told = planned(capsys, [vjob("long", "running", target="paused")])
    assert actions(told) == [["pause long-0"]]


def test_a_person_reads_that_it_was_saved_from_memory(capsys: pytest.CaptureFixture[str]) -> None:
    planned(capsys, [vjob("long", "paused", target="sleeping"), vjob("head", "running")])
    assert main(["plan", "--instance", "i.json"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("1 of 2 vjobs run: 1 is saved; 1 action in 1 pool, cost 1024 MiB.\n")
    assert "1024 paused" in " ".join(told.split())


def test_the_graph_has_a_pause_as_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    planned(capsys, [vjob("long", "running", target="paused")])
    assert main(["plan", "--instance", "i.json", "--dot", "-"]) == 0
    assert '"node n1" -> "node n1" [label="I. pause long-0\\n1024 MiB"];' in capsys.readouterr().out


def test_how_long_a_vjob_may_be_paused_live_is_not_a_matter_of_this_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--live", "--pause-limit", "60"])
    assert "--pause-limit is for --instance" in capsys.readouterr().err
