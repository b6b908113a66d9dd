"""`rmsplugin simulate --rules` and `rmsplugin compare --rules` as users run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main
from rmsplugin.simulation.capacity import Cluster

#: Two users, whose jobs fit on one node together.
TRACE = "".join(
    f"{line(job_id=number, submit_s=0, run_s=600, allocated_processors=1, requested_s=600, user=number)}\n"
    for number in (1, 2)
)
CLUSTER = ("--workload", "t.swf", "--nodes", "1", "--cpus-per-node", "2", "--memory-per-node", "4096")
SPLIT = '[rule.rivals]\nkind = "split"\nper = "user"\n'


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace and rules."""
    monkeypatch.chdir(tmp_path)
    Path("t.swf").write_text(TRACE)
    Path("r.toml").write_text(SPLIT)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command in this process: status, standard output, standard error."""
    try:
        status = main(list(words))
    except SystemExit as error:
        status = int(str(error.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "rjsp", "mixed"])
def test_who_may_not_be_beside_another_waits_for_its_end(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    without = simulated(capsys, "--policy", policy)
    found = simulated(capsys, "--policy", policy, "--rules", "r.toml")
    assert (without["rules"], found["rules"]) == (0, 1)
    assert found["makespan_s"] >= 1200 > without["makespan_s"]


def test_a_person_reads_how_many_rules_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--rules", "r.toml")
    assert "2 jobs under fcfs on 1 node of 2 CPUs and 4096 MiB with 1 placement rule: makespan" in out
    status, out, _ = call(capsys, "compare", *CLUSTER, "--policies", "fcfs,easy", "--rules", "r.toml")
    assert status == 0 and out.endswith("VMs obey 1 placement rule.\n")


def test_all_policies_of_a_comparison_obey_the_same_rules(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "compare", *CLUSTER, "--policies", "fcfs,rjsp", "--rules", "r.toml", "--json")
    assert status == 0
    assert [each["rules"] for each in json.loads(out)["policies"]] == [1, 1]
    assert all(each["makespan_s"] >= 1200 for each in json.loads(out)["policies"])


def test_rules_go_with_energy(capsys: pytest.CaptureFixture[str]) -> None:
    watts = {"idle_w": 120, "busy_w": 300, "off_w": 8, "transition_w": 150, "off_s": 30, "on_s": 120}
    Path("e.json").write_text(json.dumps({"classes": [{"nodes": "*", **watts}]}))
    found = simulated(capsys, "--policy", "fcfs", "--rules", "r.toml", "--energy", "e.json")
    assert found["makespan_s"] >= 1200 and found["energy"]["kwh"] > 0


def test_a_job_that_rules_let_run_nowhere_is_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.toml").write_text('[rule.none]\nkind = "capacity"\nusers = ["2"]\nmost = 0\n')
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--rules", "r.toml", "--json")
    found = answer_of(out)
    assert status == 0 and found["jobs"] == 1
    assert found["trace"]["reasons"] == {"rule": 1}
    assert "t.swf:2: job 2 never runs by the placement rules: needs 1 CPU and 2048 MiB in 1 VM; 1 node" in err
    assert "selects no job" not in err
    Path("r.toml").write_text('[rule.none]\nkind = "ban"\nnodes = "n1"\n')
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--rules", "r.toml")
    assert (status, out) == (2, "")
    assert "has no job that can be simulated" in err and "fences and bans leave it no node" in err


def test_of_two_jobs_that_are_alike_none_is_left_out_with_the_names_of_the_others_vms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("r.toml").write_text('[rule.none]\nkind = "capacity"\nmost = 0\n')
    _, _, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--rules", "r.toml")
    told = [line.partition(" never runs ")[2] for line in err.splitlines() if " never runs " in line]
    assert len(told) == 2 and told[0] == told[1]
    assert "1 node with room for vm0, but rule none: capacity: at most 0 of 'vm0' on 'n1' bars it from 1" in told[0]


def test_a_rule_that_selects_nobody_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.toml").write_text('[rule.x]\nkind = "spread"\nusers = ["77"]\n')
    status, _, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--rules", "r.toml")
    assert status == 0 and "r.toml: [rule.x] selects no job" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rule.x", "r.toml: no TOML"),
        ("x = " + "[" * 3000, "r.toml: lists and sections are nested too deeply"),
        ("rule = 3", "r.toml: has no section [rule.NAME]"),
        ("[rule]\nx = 3", "r.toml: rule.x is no section"),
        ('[rule."a b"]\nkind = "spread"', "r.toml: 'a b' is no name of a rule"),
        ('[rule.x]\nkind = "near"', "r.toml: rule.x.kind: Input should be 'spread'"),
        ('[rule.x]\nkind = "fence"', "r.toml: rule.x: fence needs nodes: add it"),
        ('[rule.x]\nkind = "fence"\nnode = "n1"', "r.toml: rule.x.node: unknown key"),
        ('[rule.x]\nkind = "fence"\nnodes = "n[1-3]"', "[rule.x]: there is no node n2; they are n1 to n1"),
        ('[rule.x]\nkind = "spread"\nnames = ["a*"]', "[rule.x] selects by names, which the jobs do not have"),
        ('[rule.x]\nkind = "spread"\naccounts = ["a"]', "[rule.x] selects by accounts, which the jobs do not have"),
        ('[rule.x]\nkind = "split"\nper = "account"', "[rule.x] selects by accounts, which the jobs do not have"),
        ('[rule.x]\nkind = "reserve"\nnodes = "n1"\ncpus = 3', "more is reserved on n1 than it has"),
    ],
)
def test_rules_that_cannot_be_replayed_are_refused(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.toml").write_text(text)
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--rules", "r.toml")
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--platform", "native"], "--rules is not for --platform native"),
        (["--memory", "observed"], "--rules does not go with --memory observed"),
        (["--rules", "none.toml"], "none.toml: No such file or directory"),
    ],
)
def test_what_does_not_go_with_rules_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "rjsp", "--rules", "r.toml", *words)
    assert (status, out) == (2, "")
    assert message in err


def test_rules_need_nodes_with_memory(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "t.swf", "--nodes", "1", "--cpus-per-node", "2", "--policy", "easy", "--rules", "r.toml")
    status, out, err = call(capsys, "simulate", *words)
    assert (status, out) == (2, "")
    assert "--rules needs --memory-per-node" in err


def test_the_help_names_nodes_as_clusters_of_each_size_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = call(capsys, "simulate", "--help")
    said = " ".join(text.split())
    for number, words in ((8, "of eight"), (25, "of one of 25"), (120, "of one of 120")):
        nodes = Cluster(number, 1).node_names
        assert f"{nodes[0]} to {nodes[-1]} of" in said and words in said
