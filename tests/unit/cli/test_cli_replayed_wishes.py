"""`rmsplugin simulate --wishes` and `--topology`, and those of `rmsplugin compare`, as users run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.cli.test_cli_replayed_rules import call
from unit.reported import Told
from unit.simulation.test_workload import line

#: On four nodes of two CPUs: two jobs of two VMs of two CPUs each.
TRACE = "".join(
    f"{line(job_id=number, submit_s=number, run_s=600, allocated_processors=4, requested_s=600, user=number)}\n"
    for number in (1, 2)
)
NODES = ("--nodes", "4", "--cpus-per-node", "2", "--memory-per-node", "4096")
CLUSTER = ("--workload", "t.swf", *NODES, "--cpus-per-vm", "2")
#: One switch has two nodes, so that the jobs run one after the other. n4 is on one by itself.
SWITCHES = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n"
ONE_SWITCH = '{"jobs": {"1": {"switches": 1}, "2": {"switches": 1}}}'


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace, wishes and a topology."""
    monkeypatch.chdir(tmp_path)
    Path("t.swf").write_text(TRACE)
    Path("w.json").write_text(ONE_SWITCH)
    Path("topology.conf").write_text(SWITCHES)


WISHES = ("--wishes", "w.json", "--topology", "topology.conf")


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "rjsp", "mixed"])
def test_a_job_waits_for_nodes_on_one_switch(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    without = simulated(capsys, "--policy", policy)
    found = simulated(capsys, "--policy", policy, *WISHES)
    assert (without["wishes"], found["wishes"], found["rules"]) == (0, 2, 0)
    assert found["makespan_s"] >= 1200 > without["makespan_s"]


def test_wishes_go_with_rules_and_each_policy_of_a_comparison_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.toml").write_text('[rule.still]\nkind = "root"\n')
    words = ("--policies", "fcfs,rjsp", *WISHES, "--rules", "r.toml")
    status, out, err = call(capsys, "compare", *CLUSTER, *words, "--json")
    assert (status, err) == (0, "")
    assert all(each["makespan_s"] >= 1200 for each in json.loads(out)["policies"])
    status, out, _ = call(capsys, "compare", *CLUSTER, *words)
    assert status == 0 and out.endswith("VMs obey 1 placement rule and the wishes of 2 jobs.\n")


def test_a_person_reads_how_many_jobs_had_wishes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", *WISHES)
    assert "on 4 nodes of 2 CPUs and 4096 MiB with the wishes of 2 jobs: makespan" in out


def test_vms_are_apart_and_alone_where_users_wish_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.swf").write_text(line(allocated_processors=2) + "\n" + line(job_id=2, allocated_processors=1) + "\n")
    places = ("--policy", "fcfs", "--events", "e.jsonl", "--wishes", "w.json", "--workload", "t.swf", *NODES)

    def nodes() -> dict[int, list[str]]:
        assert call(capsys, "simulate", *places)[0] == 0
        events = map(json.loads, Path("e.jsonl").read_text().splitlines())
        return {event["job"]: event["nodes"] for event in events if event["event"] == "run"}

    for wishes, apart, alone in (
        ("{}", False, True),
        ('{"spread": true}', True, False),
        ('{"spread": true, "exclusive": "yes"}', True, True),
        ('{"spread": true, "exclusive": "user"}', True, False),  # all are of one user
    ):
        Path("w.json").write_text(f'{{"jobs": {{"1": {wishes}}}}}')
        found = nodes()
        assert (len(set(found[1])) == 2, set(found[1]).isdisjoint(found[2])) == (apart, alone), (wishes, found)


def test_a_job_that_no_switch_is_large_enough_for_is_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.json").write_text('{"jobs": {"2": {"switches": 1}}}')
    Path("topology.conf").write_text("SwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n2\n")
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", *WISHES, "--json")
    assert status == 0 and answer_of(out)["trace"]["reasons"] == {"rule": 1}
    assert "t.swf:2: job 2 never runs by the placement rules: " in err and "--switches=1" in err


def test_what_has_no_effect_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--wishes", "w.json")
    assert "t.swf: 2 jobs asked for --switches, and all nodes are on one switch: add --topology" in err
    Path("w.json").write_text('{"jobs": {"2": {"spread": true}}}')
    _, _, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", *WISHES)
    assert "t.swf: no job that is simulated asks for switches, so --topology says nothing" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topology", "topology.conf"], "--topology goes with --wishes"),
        (["--wishes"], "--wishes needs the name of a file: a trace tells of no wishes"),
        (["--wishes", "w.json", "--platform", "native"], "--wishes is not for --platform native"),
        (["--wishes", "w.json", "--memory", "observed"], "--wishes does not go with --memory observed"),
        (["--wishes", "none.json"], "none.json: No such file or directory"),
        (["--wishes", "t.swf"], "t.swf: no JSON: "),
        (["--wishes", "other.json"], "other.json: names no job that is simulated"),
        ([*WISHES[:3], "w.json"], "w.json: line 1: '{\"jobs\":' is nothing that topology.conf has"),
        ([*WISHES[:3], "far.conf"], "far.conf: there is no node n5; they are n1 to n4"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.json").write_text('{"jobs": {"77": {"switches": 1}}}')
    Path("far.conf").write_text("SwitchName=s1 Nodes=n[1-5]\n")
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "rjsp", *words)
    assert (status, out) == (2, "")
    assert message in err


def test_wishes_need_nodes_with_memory(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "t.swf", "--nodes", "3", "--cpus-per-node", "2", "--policy", "easy", "--wishes", "w.json")
    status, out, err = call(capsys, "simulate", *words)
    assert (status, out) == (2, "")
    assert "--wishes needs --memory-per-node" in err


# -- a ledger ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """Of the same two jobs, each of which asked for one switch."""
    told = Told(tmp_path)
    told.submit(1, vms=2, cpus=2, switches=1)
    told.at(1).submit(2, vms=2, cpus=2, switches=1)
    told.at(5).start(1, "n1", "n2")
    told.at(5).start(2, "n3", "n4")
    told.at(605).end(1)
    told.at(605).end(2)
    told.ledger.close()
    return str(told.path)


def test_a_ledger_tells_what_users_asked_for(ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    def replayed(*words: str) -> tuple[dict[str, Any], str]:
        status, out, err = call(capsys, "simulate", "--ledger", ledger, *NODES, "--policy", "fcfs", "--json", *words)
        assert status == 0, err
        return answer_of(out), err

    found, err = replayed()
    assert found["makespan_s"] < 1000 and found["wishes"] == 0
    assert "wishes of 2 jobs about VMs beside each other are not kept: add --wishes" in err
    found, err = replayed("--wishes", "--topology", "topology.conf")
    assert (found["makespan_s"] > 1000, found["wishes"], err) == (True, 2, "")
    Path("w.json").write_text('{"jobs": {"2": {}}}')  # a file says otherwise of the jobs that it names
    found, _ = replayed("--wishes", "w.json", "--topology", "topology.conf")
    assert found["makespan_s"] < 1000 and found["wishes"] == 1
