"""`rmsplugin simulate` under policies that switch, and `rmsplugin compare`, as users run them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main

#: Under rjsp job 2, which needs all CPUs, waits; job 3 is behind it, and runs while job 1 leaves it room.
TRACE = "".join(
    f"{each}\n"
    for each in (
        line(job_id=1, submit_s=0, run_s=600, allocated_processors=2, requested_s=1000),
        line(job_id=2, submit_s=10, run_s=300, allocated_processors=4, requested_s=300),
        line(job_id=3, submit_s=20, run_s=2000, allocated_processors=1, requested_s=2000),
    )
)
CLUSTER = ("--workload", "t.swf", "--nodes", "2", "--cpus-per-node", "2", "--memory-per-node", "4096")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace in it."""
    monkeypatch.chdir(tmp_path)
    Path("t.swf").write_text(TRACE)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command in this process: status, standard output, standard error."""
    try:
        status = main(list(words))
    except SystemExit as error:
        status = int(str(error.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def simulated(capsys: pytest.CaptureFixture[str], policy: str, *words: str) -> dict[str, Any]:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", policy, "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


def rows(name: str) -> list[dict[str, str]]:
    with open(name) as file:
        return list(csv.DictReader(file))


def test_rjsp_suspends_the_last_of_the_queue_for_the_head(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, "rjsp", "--jobs-out", "j.csv", "--events", "e.jsonl")
    assert found["context_switches"]["suspend"] == found["context_switches"]["resume"] == 1
    assert [row["suspends"] for row in rows("j.csv")] == ["0", "0", "1"]
    third = rows("j.csv")[2]
    # It boots for 6 s, computes 2000 s, a little slower while job 2's VMs come, and sleeps in between.
    assert float(third["end"]) >= float(third["start"]) + 2000 + float(third["asleep"])
    events = [json.loads(text) for text in Path("e.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events if event["job"] == 3] == [
        *("submit", "start", "run", "suspend", "sleep", "resume", "run", "stop", "end"),
    ]
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert next(event["nodes"] for event in events if event["event"] == "suspend") == ["n2"]


def test_vms_hold_their_nodes_while_they_boot_and_until_they_are_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    """Job 1 computes from 6 to 606; its VMs are stopped by 631, and the next cycle, at 640 or later, starts job 2."""
    simulated(capsys, "rjsp", "--jobs-out", "j.csv")
    first, second, _ = rows("j.csv")
    assert (first["start"], first["end"]) == ("6", "606")
    assert float(second["start"]) >= 631 + 6


def test_durations_are_those_that_calibrate_prints(capsys: pytest.CaptureFixture[str]) -> None:
    Path("d.toml").write_text("# what was measured\n[durations]\nrun_s = 50.0\n")
    simulated(capsys, "rjsp", "--jobs-out", "j.csv", "--durations", "d.toml")
    assert rows("j.csv")[0]["start"] == "50"


def test_what_fails_is_tried_again_and_the_seed_tells_which(capsys: pytest.CaptureFixture[str]) -> None:
    found = [simulated(capsys, "mixed", "--failure-rate", "0.5", "--seed", str(seed)) for seed in range(4)]
    assert all(each["jobs"] == 3 for each in found)
    assert len({each["makespan_s"] for each in found}) > 1
    again = simulated(capsys, "mixed", "--failure-rate", "0.5", "--seed", "0")
    assert {**again, "seconds": 0} == {**found[0], "seconds": 0}


def test_an_activity_is_the_work_of_a_job_and_leaves_its_cpus_to_others(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.json").write_text('{"jobs": {"1": [{"seconds": 900, "cpus": 0}, {"seconds": 300, "cpus": [1, 0.5]}]}}')
    simulated(capsys, "rjsp", "--memory-per-vm", "512", "--activity", "a.json", "--jobs-out", "j.csv")
    first, second, _ = rows("j.csv")
    assert float(first["end"]) >= 6 + 1200
    assert float(second["start"]) < float(first["end"]), "it uses the CPUs that job 1 does not"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "no JSON: "),
        ("[]", "the document: has to be an object"),
        ('{"jobs": {"x": []}}', "jobs.x: 'x' is not the number of a job"),
        ('{"jobs": {"1": []}}', "jobs.1: has to be a list of 1 to 100000 phases"),
        ('{"jobs": {"1": [{"seconds": 0, "cpus": 1}]}}', "jobs.1[0].seconds: has to be above 0"),
        ('{"jobs": {"1": [{"seconds": 5}]}}', "jobs.1[0].cpus: has to be a number from 0 to 1e+06, not None"),
        ('{"jobs": {"1": [{"seconds": 5, "cpus": 2}]}}', "jobs.1[0].cpus: 2 is more than the 1 of a VM"),
        ('{"jobs": {"1": [{"seconds": 5, "cpus": [1, 1, 1]}]}}', "has 3 numbers, and the job has 2 VMs"),
        ('{"jobs": {"1": [{"seconds": 5, "cpus": 1, "gpus": 1}]}}', "jobs.1[0]: there is no key 'gpus'"),
    ],
)
def test_what_is_wrong_with_an_activity_is_said_with_its_place(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.json").write_text(text)
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "rjsp", "--activity", "a.json")
    assert (status, out) == (2, "")
    assert err.startswith("rmsplugin simulate: a.json: ")
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run_s = 5", "d.toml: has no section [durations]"),
        ("[durations", "d.toml: no TOML: "),
        ("[durations]\nrun_s = -1", "d.toml: durations.run_s: "),
        ("[durations]\nboot_s = 1", "d.toml: durations.boot_s: "),
        (None, "d.toml: No such file or directory"),
    ],
)
def test_what_is_wrong_with_durations_is_said(
    text: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path("d.toml").write_text(text)
    status, _, err = call(capsys, "simulate", *CLUSTER, "--policy", "rjsp", "--durations", "d.toml")
    assert status == 2
    assert message in err


def test_vms_of_two_cpus_are_half_as_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(capsys, "rjsp", "--cpus-per-vm", "2")["context_switches"]["run"] == 1 + 2 + 1
    assert simulated(capsys, "easy", "--cpus-per-vm", "2")["jobs"] == 3


def test_memory_in_bytes_for_the_whole_job(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.swf").write_text(line(job_id=1, allocated_processors=2, requested_memory_kib=2 << 30) + "\n")
    words = (*CLUSTER[:6], "--memory-per-node", "1024", "--policy", "easy")
    assert call(capsys, "simulate", *words)[0] == 2, "in KiB for each processor it fits nowhere"
    assert call(capsys, "simulate", *words, "--trace-memory", "bytes-per-job")[0] == 0


def test_compare_says_of_each_policy_what_simulate_says(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "compare", *CLUSTER, "--policies", "easy,rjsp", "--json")
    assert (status, err) == (0, "")
    found = answer_of(out)
    for row in found["policies"]:
        alone = simulated(capsys, row["policy"])
        assert row == {key: value for key, value in alone.items() if key not in ("trace", "seconds")}
        assert found["trace"] == alone["trace"]
    assert [row["policy"] for row in found["policies"]] == ["easy", "rjsp"]


def test_compare_has_a_line_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "compare", *CLUSTER, "--policies", "fcfs,easy,rjsp", "--processes", "1")
    assert status == 0
    title, *lines = out.splitlines()
    assert title.split()[:3] == ["POLICY", "MAKESPAN", "UTIL"]
    assert [text.split()[0] for text in lines] == ["fcfs", "easy", "rjsp"]
    assert lines[0].split()[-3:] == ["0", "0", "0"]
    assert lines[2].split()[-3:] == ["1", "1", "0"]


def test_compare_replays_side_by_side_what_it_replays_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", *CLUSTER, "--policies", "rjsp,easy-preempt", "--csv")
    one = call(capsys, *words, "--processes", "1")
    assert one == call(capsys, *words, "--processes", "2")
    assert one[1].splitlines()[0].startswith("policy,jobs,makespan_s,utilisation,wait_s_mean,wait_s_p50")
    assert len(one[1].splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policies", "easy,sjf"), "argument --policies: there is no policy 'sjf'"),
        (("--policies", "easy,easy"), "argument --policies: a policy is there twice"),
        (("--json", "--csv"), "not allowed with argument"),
        (("--workload", "none.swf"), "none.swf: No such file or directory"),
    ],
)
def test_compare_refuses_what_does_not_go_together(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = call(capsys, "compare", *CLUSTER, *words)
    assert (status, out) == (2, "")
    assert message in err
