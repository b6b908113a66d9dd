"""`rmsplugin simulate --ledger`: what a live cluster's ledger tells becomes a workload, by the ledger's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.reported import NOON, Told

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.history import reading
from rmsplugin.model.operation import OperationKind
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.workload import History, history_of
from rmsplugin.simulation.measured import Went
from rmsplugin.workload.activity import Phase
from rmsplugin.workload.faults import FaultCode

K = OperationKind
UNTIL = NOON + 10_000
CLUSTER = ("--nodes", "2", "--cpus-per-node", "4", "--memory-per-node", "4096")


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Job 1 slept in the middle, job 2 lost its state, and both have ended."""
    told = Told(tmp_path)
    told.submit(1, vms=2, memory_mib=512)
    told.at(5).submit(2, cpus=2, memory_mib=1024, partition="vlong")
    told.at(0).start(1, "n1", "n2")
    told.at(110).suspend(1)
    told.at(300).resume(1, "n1", "n1")
    told.at(20).start(2, "n2", seconds=25)
    told.at(200).lose(2)
    told.at(400).start(2, "n1")
    told.at(530).end(1)
    told.at(810).end(2)
    return told


def history(told: Told, window_s: float = 60, **options: Any) -> History:
    with reading(told.path) as connection:
        return history_of(LedgerReader(connection, UNTIL), UNTIL, window_s=window_s, **options)


def simulate(told: Told, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        status = main(["simulate", "--config", str(told.settings), "--ledger", str(told.path), *CLUSTER, *words])
    except SystemExit as ended:
        status = int(str(ended.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def test_a_job_runs_for_as_long_as_it_ran_without_its_sleeps_and_since_its_last_loss(told: Told) -> None:
    found = history(told, unpreemptible=("vlong",))
    slept, lost = found.workload.jobs
    assert (slept.submit_s, slept.run_s, slept.processors, slept.cpus_per_vm) == (0, 100 + 200, 2, 1)
    assert (slept.memory_mib, slept.estimate_s, slept.preemptible) == (512, slept.run_s, True)
    assert (lost.submit_s, lost.run_s, lost.processors, lost.cpus_per_vm) == (5, 400, 2, 2)
    assert (lost.memory_mib, lost.preemptible) == (1024, False)
    assert [(job.user, job.account, job.partition) for job in (slept, lost)] == [
        ("alice", "", "vjob"),
        ("alice", "", "vlong"),
    ]
    assert (found.workload.unestimated, found.workload.header) == (2, {"UnixStartTime": [str(int(NOON))]})
    assert found.activity == {}


def test_demands_that_were_observed_are_what_a_job_does_and_a_fall_was_a_window_before(told: Told) -> None:
    # Of job 1's second run, which begins at 330 s; its other VM was never seen to demand less.
    told.ledger.close()
    again = Told(told.path.parent / "again") if (told.path.parent / "again").mkdir() is None else told
    again.submit(1, vms=2)
    again.start(1, "n1", "n2")
    again.at(190).demand(1, 0, 20)
    again.at(300).demand(1, 0, 90)
    again.at(400).suspend(1)
    again.at(420).resume(1, "n1", "n2")
    again.at(500).end(1)
    whole, idle, busy = Phase(120.0, (1.0, 1.0)), Phase(170.0, (0.2, 1.0)), Phase(100.0, (0.9, 1.0))
    found = history(again).activity[1]
    # What led to the first sample began a window before, at 130, after 120 s of work.
    assert found == (whole, idle, busy, Phase(50.0, (1.0, 1.0)))
    assert history(again, window_s=6).activity[1][0].work_s == 174


def test_how_operations_went_is_read_since_a_vjob_last_began_anew(told: Told) -> None:
    told.at(850).submit(3)
    told.at(860).start(3, "n1", seconds=129, error="no answer")
    told.at(1000).start(3, "n1", seconds=37)
    told.at(1100).suspend(3, seconds=8)
    assert history(told).measured is None
    measured = history(told, measured=True).measured
    assert measured is not None
    assert [measured.went(3, K.START, number) for number in range(2)] == [Went(129, failed=True), Went(37)]
    assert measured.went(2, K.START, 0) == Went(10), "its second start, for what was before the loss is void"
    assert [measured.went(1, kind, 0) for kind in (K.SUSPEND, K.RESUME, K.STOP)] == [Went(20), Went(30), Went(3)]
    assert measured.went(1, K.SUSPEND, 1) == Went(14), "the median of those that went well"
    assert measured.went(2, K.MIGRATE, 0) is None


def test_measured_operations_take_what_they_took_and_fail_if_they_did(
    told: Told, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told.at(1000).submit(3)
    told.at(1000).start(3, "n1", seconds=129, error="no answer")
    told.at(1130).start(3, "n1", seconds=37)
    told.at(1300).end(3)
    # Job 3 begins at 1000, fails at 1129, and is begun again 1 s later.
    assert starts(told, capsys, "--measured") == {1: 10, 2: 15, 3: 1130 + 37}
    assert starts(told, capsys) == {1: 6, 2: 5 + 6, 3: 1000 + 6}


def test_a_decision_comes_a_look_after_what_calls_for_it_and_sees_what_happened_meanwhile(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    # Job 2 is submitted while the engine looks because of job 1; nobody looks for job 3 before it is there.
    told.at(1000).submit(3)
    told.start(3, "n1", seconds=37)
    told.at(1300).end(3)
    assert starts(told, capsys, "--measured", "--look", "7") == {1: 7 + 10, 2: 7 + 10, 3: 1000 + 7 + 37}


def starts(told: Told, capsys: pytest.CaptureFixture[str], *words: str) -> dict[int, float]:
    """When each job begins to run under mixed."""
    status, out, err = simulate(told, capsys, "--policy", "mixed", "--cycle", "1", "--jobs-out", "-", *words)
    assert status == 0, err
    rows = [line.split(",") for line in out.splitlines()[1:]]
    return {int(row[0]): float(row[2]) for row in rows}


def test_measured_demands_are_known_when_they_were_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Job 2 fits beside job 1 once job 1 was seen to idle; it had begun to idle before that."""
    told = Told(tmp_path)
    told.submit(1, vms=2)
    told.submit(2, vms=2)
    told.start(1, "n1", "n1", seconds=10)
    told.at(100).demand(1, 0, 10)
    told.demand(1, 1, 10)
    told.start(2, "n1", "n1", seconds=20)
    told.at(300).end(1)
    told.at(400).end(2)
    small = ("--nodes", "1", "--cpus-per-node", "3")
    assert starts(told, capsys, *small, "--measured") == {1: 10, 2: 100 + 20}
    # Without: from 40 on it idles, after 30 s of work; boots of 6 s, and the window in which nothing more is seen.
    late = starts(told, capsys, *small)[2]
    assert 6 + 30 + 60 + 6 <= late <= 6 + 30 + 60 + 6 + 3


def test_what_was_measured_is_not_slowed_down_once_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both compute on the one node, which has CPUs for one of them, until the later one is suspended."""
    told = Told(tmp_path)
    told.submit(1)
    told.submit(2)
    told.start(1, "n1", seconds=10)
    told.at(20).demand(1, 0, 0)
    told.start(2, "n1", seconds=10)
    told.at(60).demand(1, 0, 100)
    told.suspend(2, seconds=20)
    told.at(110).end(1)
    told.at(115).resume(2, "n1", seconds=10)
    told.at(175).end(2)
    words = ("--nodes", "1", "--cpus-per-node", "1", "--policy", "mixed", "--cycle", "1", "--exempt", "10")
    status, out, err = simulate(told, capsys, *words, "--jobs-out", "-", "--measured")
    assert status == 0, err
    ends = {row[0]: (float(row[3]), row[7]) for row in (line.split(",") for line in out.splitlines()[1:])}
    assert ends == {"1": (110, "0"), "2": (pytest.approx(113 + 10 + 50, abs=1), "1")}


def test_jobs_that_still_run_or_never_ran_are_left_out_and_said(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.at(820).start(told.submit(3), "n1")
    told.at(820).submit(4)
    told.cancel_waiting(told.at(830).submit(5, name="5_1"))
    counts = history(told).workload.faults.counts
    assert counts == {FaultCode.NOT_ENDED: 2, FaultCode.NEVER_RAN: 1}
    status, out, err = simulate(told, capsys, "--policy", "mixed", "--json")
    assert status == 0
    document = answer_of(out)
    assert (document["jobs"], document["trace"]["lines"], document["trace"]["not_simulated"]) == (2, 5, 3)
    assert err.splitlines() == [
        f"rmsplugin simulate: warning: {told.path}: {words}"
        for words in (
            "job 3 has not ended: it runs",
            "job 4 has not ended: it waits",
            "job 5_1 ended before it ran",
            "3 of 5 jobs are not simulated: 2 not ended yet; 1 ended before the job ran",
        )
    ]


def test_vms_of_different_sizes_are_placed_each_by_its_own(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--policy", "fcfs", "--jobs-out", "-")
    assert simulate(told, capsys, *words)[1].splitlines()[1:] == ["1,0.0,0,300.0,2,300.0", "2,5.0,5,405.0,2,400.0"]
    narrow = ("--nodes", "2", "--cpus-per-node", "1")  # no node hosts the VM of job 2
    status, out, err = simulate(told, capsys, *words, *narrow)
    assert (status, out.splitlines()[1:]) == (0, ["1,0.0,0.0,300.0,2,300.0"])
    assert "job 2 needs 2 processors, and the cluster has room for 0 such VMs" in err


def test_time_limits_are_those_of_accounting_where_it_is_asked(
    told: Told, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sacct = tmp_path / "sacct"
    sacct.write_text(f"#!/bin/sh\necho '1|physics|{int(NOON)}|{int(NOON)}|300|00:00:00|20|COMPLETED'\n")
    sacct.chmod(0o755)
    _, out, _ = simulate(told, capsys, "--policy", "easy", "--jobs-out", "-", "--ask-slurm")
    assert [line.split(",")[-1] for line in out.splitlines()] == ["estimate", "1200.0", "400.0"]
    sacct.unlink()
    status, out, err = simulate(told, capsys, "--policy", "easy", "--ask-slurm")
    assert (status != 0, out) == (True, "") and "sacct" in err


def test_for_a_job_of_an_unpreemptible_partition_another_makes_way(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    """Job 1, first in the queue, idles; job 2 starts beside it on the one node, and makes way when job 1 computes."""
    doing = told.path.parent / "activity.json"
    idle, busy = {"seconds": 400, "cpus": 0.1}, {"seconds": 400, "cpus": 1}
    doing.write_text(json.dumps({"jobs": {"1": [idle, busy], "2": [{"seconds": 1000, "cpus": 2}]}}))
    words = ("--policy", "rjsp", "--activity", str(doing), "--nodes", "1", "--cpus-per-node", "3", "--jobs-out", "-")
    suspends = [
        [line.split(",")[-2] for line in simulate(told, capsys, *words, *more)[1].splitlines()]
        for more in ((), ("--unpreemptible", "vlong"))
    ]
    assert suspends == [["suspends", "0", "1"], ["suspends", "1", "0"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workload", "t.swf"), "not allowed with argument"),
        (("--cpus-per-vm", "2"), "--cpus-per-vm goes with --workload, not with --ledger"),
        (("--trace-memory", "bytes-per-job"), "--trace-memory goes with --workload, not with --ledger"),
        (("--unpreemptible", "plain"), "the ledger has no job of partition 'plain'"),
        (("--ledger", "none.sqlite"), "there is no ledger none.sqlite"),
        (("--jobs-out", "{ledger}"), "--jobs-out would replace the ledger of --ledger"),
    ],
)
def test_what_makes_no_sense_is_refused(
    told: Told, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    given = [word.format(ledger=told.path) for word in words]
    before = told.path.read_bytes()
    status, out, err = simulate(told, capsys, "--policy", "easy", *given)
    assert (status, out) == (2, "") and message in err
    assert told.path.read_bytes() == before


def test_a_ledger_without_a_job_that_ended_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(tmp_path)
    assert simulate(told, capsys, "--policy", "easy")[0] == 2
    told.submit(1)
    status, _, err = simulate(told, capsys, "--policy", "easy")
    assert status == 2 and "has no job that can be simulated" in err and "it waits" in err
