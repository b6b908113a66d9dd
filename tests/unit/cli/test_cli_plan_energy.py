"""`rmsplugin plan --energy` and `rmsplugin pack --energy`: nodes that have nothing are switched off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of

from rmsplugin.cli.main import main

CLASS = {"nodes": "*", "idle_w": 120, "busy_w": 300, "off_w": 8, "transition_w": 150, "off_s": 30, "on_s": 120}


def vjob(name: str, host: str | None, cpus: float = 1, **more: Any) -> dict[str, Any]:
    vm = {"name": f"{name}-0", "cpu": cpus, "memory_mib": 512, **({"host": host} if host else {})}
    return {"name": name, "state": "running" if host else "waiting", "vms": [vm], **more}


def instance(*vjobs: dict[str, Any], nodes: int = 4, **states: str) -> None:
    """Nodes of 4 CPUs, n1 and so on."""
    all_nodes = [
        {"name": f"n{i}", "cpu": 4, "memory_mib": 8192, **({"state": states[f"n{i}"]} if f"n{i}" in states else {})}
        for i in range(1, nodes + 1)
    ]
    Path("i.json").write_text(json.dumps({"nodes": all_nodes, "vjobs": list(vjobs)}))


def watts(**more: Any) -> None:
    Path("e.json").write_text(json.dumps({"classes": [CLASS], **more}))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMSPLUGIN_CONFIG", raising=False)
    watts()


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status = main([*words, "--instance", "i.json", "--energy", "e.json", "--json"])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


def nodes_of(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["action"], each["node"]) for each in found["plan"].get("nodes", [])]


LONG = {"ran_s": 7200, "time_limit_s": 86400}


def test_nodes_that_have_nothing_in_the_end_are_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    instance(vjob("a", "n1", 2), vjob("b", None))
    found = told(capsys, "plan")
    assert [action["to"] for pool in found["plan"]["pools"] for action in pool] == ["n1"]
    assert nodes_of(found) == [("power-off", name) for name in ("n2", "n3", "n4")]
    assert found["energy"] == {
        "kwh": pytest.approx((120 + 180 * 3 / 4 + 3 * 8) / 1000),
        "kwh_all_on": pytest.approx((4 * 120 + 180 * 3 / 4) / 1000),
        "kwh_oracle": pytest.approx((120 + 180 * 3 / 4 + 3 * 8) / 1000),
        "switched_off": 3,
        "delayed_s_mean": 0.0,
    }


def test_the_reserve_stays_on_and_a_node_that_is_down_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    instance(vjob("a", "n1"), n2="down")
    watts(reserve=1)
    found = told(capsys, "plan")
    assert nodes_of(found) == [("power-off", "n4")]
    assert found["energy"]["kwh_all_on"] == pytest.approx((3 * 120 + 45) / 1000)


def test_a_node_with_a_saved_state_stays_on(capsys: pytest.CaptureFixture[str]) -> None:
    asleep = {"name": "b", "state": "sleeping", "vms": [{"name": "b-0", "cpu": 9, "memory_mib": 512, "image": "n2"}]}
    instance(vjob("a", "n1"), asleep, nodes=2)
    found = told(capsys, "plan")
    assert nodes_of(found) == []
    assert found["energy"]["kwh"] == pytest.approx((2 * 120 + 45) / 1000), "who sleeps uses no CPU"


def test_a_node_that_never_saves_stays_on(capsys: pytest.CaptureFixture[str]) -> None:
    instance(vjob("a", "n1"), nodes=2)
    Path("e.json").write_text(json.dumps({"classes": [{**CLASS, "off_w": 120}]}))
    assert nodes_of(told(capsys, "plan")) == []


def test_a_node_that_is_little_used_is_emptied_and_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    instance(vjob("a", "n1", 2, **LONG), vjob("b", "n2", **LONG), nodes=2)
    assert nodes_of(told(capsys, "plan")) == []
    watts(underload=0.25)
    found = told(capsys, "plan")
    (action,) = [action for pool in found["plan"]["pools"] for action in pool]
    assert (action["action"], action["vm"], action["from"], action["to"]) == ("migrate", "b-0", "n2", "n1")
    assert found["plan"]["nodes"] == [{"action": "power-off", "node": "n2", "needs": [0]}]
    assert found["energy"]["kwh"] == pytest.approx((120 + 180 * 3 / 4 + 8) / 1000)
    assert set(found["decision"]) == {"a", "b"}


def test_a_vjob_that_ends_soon_empties_its_node_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    watts(underload=0.25)
    instance(vjob("a", "n1", 2, **LONG), vjob("b", "n2", ran_s=7200, time_limit_s=7300), nodes=2)
    assert nodes_of(told(capsys, "plan")) == []


def test_nothing_is_emptied_while_the_plan_does_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    watts(underload=0.25)
    instance(vjob("a", "n1", 2, **LONG), vjob("b", "n2", **LONG), vjob("c", None), nodes=2)
    found = told(capsys, "plan")
    assert [action["action"] for pool in found["plan"]["pools"] for action in pool] == ["run"]


def test_a_person_reads_which_nodes_are_switched_and_what_an_hour_takes(capsys: pytest.CaptureFixture[str]) -> None:
    instance(vjob("a", "n1"), nodes=2)
    assert main(["plan", "--instance", "i.json", "--energy", "e.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "power-off n2" in lines
    assert lines[-1] == "an hour takes 0.173 kWh with 1 node off, 0.285 kWh with all on."


def test_a_packing_tells_what_an_hour_takes(capsys: pytest.CaptureFixture[str]) -> None:
    instance(vjob("a", "n1", 2), vjob("b", "n2", 2))
    watts(reserve=1)
    found = told(capsys, "pack")
    assert found["nodes_used"] == 1
    assert found["energy"]["switched_off"] == 2
    assert found["energy"]["kwh"] == pytest.approx((300 + 120 + 2 * 8) / 1000)
    assert found["energy"]["kwh_oracle"] == pytest.approx((300 + 3 * 8) / 1000)
    assert found["energy"]["kwh_all_on"] == pytest.approx((300 + 3 * 120) / 1000)
    assert main(["pack", "--instance", "i.json", "--energy", "e.json"]) == 0
    assert "an hour takes 0.436 kWh with 2 nodes off" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_a_fault_of_the_file_is_status_2(capsys: pytest.CaptureFixture[str], command: str) -> None:
    instance(vjob("a", "n1"))
    Path("e.json").write_text(json.dumps({"classes": [{**CLASS, "nodes": ["n9"]}]}))
    assert main([command, "--instance", "i.json", "--energy", "e.json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "e.json: classes.0.nodes: there is no node 'n9'" in err


def test_energy_is_for_a_file_and_not_for_the_live_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--live", "--energy", "e.json"])
    assert ended.value.code == 2
    assert "--energy is for --instance" in capsys.readouterr().err
