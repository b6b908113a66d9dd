"""A replay in which memory is observed: what VMs are expected to need, what they are seen to need, and what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmsplugin.cli.main import main
from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.simulation.outcome import JobRun, Outcome, events_of
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.05)
SHARING = ("load-sharing", "v-reconfiguration", "mixed", "slowdown")


def job(number: int, size_mib: int, used_mib: int | None, submit_s: float = 0, run_s: float = 600, **more: Any) -> Job:
    return Job(number, submit_s, run_s, more.pop("vms", 1), 2 * run_s, size_mib, number, used_mib=used_mib, **more)


def replayed(jobs: list[Job], nodes: int, policy: str = "load-sharing", memory_mib: int = 2000, **how: Any) -> Outcome:
    decision = Parameters(search=SEARCH, exempt_s=how.pop("exempt_s", 0.0))
    proposal = ProposalParameters(policy, decision=decision, search=SEARCH)
    memory = None if "memory" in how else MemoryParameters(**how)
    cluster = Cluster(nodes, 16, memory_mib)
    return replay(jobs, cluster, ReplayParameters(proposal, memory=memory))


def runs(outcome: Outcome, number: int) -> JobRun:
    return next(run for run in outcome.jobs if run.job.job_id == number)


def happened(outcome: Outcome, *kinds: str) -> list[tuple[str, int]]:
    return [(event.event, event.job_id) for event in events_of(outcome) if event.event in kinds]


def together(outcome: Outcome) -> int:
    """The most VMs that run at a time."""
    changes = sorted(
        (time_s, change * run.vms)
        for run in outcome.jobs
        for each in run.intervals
        if each.state is VJobState.RUNNING
        for time_s, change in ((each.begin_s, 1), (each.end_s, -1))
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("policy", SHARING)
def test_vms_that_use_a_third_of_their_request_run_three_times_as_many_together(policy: str) -> None:
    jobs = [job(number, 900, 300) for number in range(1, 13)]
    assert together(replayed(jobs, 1, policy, memory=None)) == 2
    assert together(replayed(jobs, 1, policy, unknown=1 / 3, threshold=0.9)) == 6


@pytest.mark.parametrize("policy", SHARING)
def test_who_is_submitted_later_starts_beside_vms_that_use_less_than_they_requested(policy: str) -> None:
    jobs = [job(n, 900, 300, submit_s=0 if n < 3 else 100, run_s=1000) for n in range(1, 7)]
    assert together(replayed(jobs, 1, policy)) == 6


def test_who_waits_is_expected_to_need_what_its_users_jobs_of_this_size_were_seen_to_use() -> None:
    first = [job(1, 1000, 200, user="a"), job(2, 1000, 900, user="b")]
    later = [job(n, 1000, 200, submit_s=700, user="a") for n in (3, 4, 5, 6)]
    outcome = replayed([*first, *later], 1, unknown=0.9, threshold=0.9)
    starts = {run.job.job_id: run.start_s for run in outcome.jobs}
    assert starts[1] < 100 and starts[2] < 100
    assert len({starts[n] for n in (3, 4, 5, 6)}) == 1, "all four at once: 200 MiB each are expected, not 900"


def test_of_an_unknown_program_or_size_the_share_for_the_unknown_is_expected() -> None:
    first = [job(1, 1000, 200, user="a", program="x")]
    for other in ({"user": "b", "program": "x"}, {"user": "a", "program": "y"}):
        later = [job(n, 1000, 200, submit_s=700, **other) for n in (2, 3, 4)]
        starts = {run.job.job_id: run.start_s for run in replayed([*first, *later], 1, unknown=1.0).jobs}
        assert starts[2] < starts[3] == starts[4], "1,000 MiB are expected, until one of them runs"


def test_a_vm_that_outgrows_its_node_makes_it_short_and_somebody_migrates_within_a_cycle() -> None:
    jobs = [job(1, 1750, 700), job(2, 1750, 700), job(3, 1900, 1200)]
    outcome = replayed(jobs, 2, unknown=0.4, threshold=0.9)
    moved = happened(outcome, "migrate", "suspend")
    assert len(moved) == 1 and moved[0][0] == "migrate"
    seen_s = max(run.start_s for run in outcome.jobs)
    (move,) = (move for run in outcome.jobs for move in run.moves)
    assert move.begin_s <= seen_s + 30


@pytest.mark.parametrize("policy", ["load-sharing", "v-reconfiguration"])
def test_where_nobody_can_go_the_last_of_the_queue_is_suspended_and_resumes_when_there_is_room(policy: str) -> None:
    """What else would have relieved the node is no event: the policy has decided it."""
    outcome = replayed([job(1, 1800, 1500), job(2, 1800, 700, run_s=2000)], 1, policy, unknown=0.4, threshold=0.9)
    assert outcome.notes == ()
    assert happened(outcome, "suspend", "sleep", "resume") == [("suspend", 2), ("sleep", 2), ("resume", 2)]
    assert runs(outcome, 1).end_s < runs(outcome, 2).end_s


def test_a_computation_waits_for_pages_while_its_node_has_less_memory_than_its_vms_need() -> None:
    """Both are exempt from suspension for 300 s, and there is no other node."""
    jobs = [job(1, 1800, 1500), job(2, 1400, 700)]
    short = replayed(jobs, 1, unknown=0.5, threshold=0.9, exempt_s=300.0)
    ample = replayed(jobs, 1, memory_mib=4000, unknown=0.5, threshold=0.9, exempt_s=300.0)
    assert 600 < runs(ample, 1).end_s < 700
    assert runs(short, 1).end_s == pytest.approx(runs(ample, 1).end_s + 0.9 * 300, abs=60)


def blocked() -> list[Job]:
    """Five nodes: beside the large one 700 MiB, on the others 1,200, where neither it nor its neighbour has room.

    One of the others has room for the large one after 300 s, when its second VM has ended.
    """
    neighbours = [job(1, 1000, 700, run_s=20000), *(job(n, 1100, 550, run_s=20000) for n in range(2, 6))]
    small = [job(n, 1300, 650, run_s=300 if n == 7 else 1500) for n in range(7, 11)]
    return [*neighbours, job(6, 1800, 1200, run_s=9000), *small]


def test_virtual_reconfiguration_reserves_a_node_for_who_finds_room_nowhere_and_releases_it() -> None:
    outcome = replayed(blocked(), 5, "v-reconfiguration", unknown=0.5, threshold=0.9)
    notes = [each.note for each in outcome.notes]
    assert [note.what for note in notes] == ["reserved", "served", "released"]
    assert notes[0].numbers["vm"] == "6-0"
    assert happened(outcome, "suspend") == []


def test_a_reserved_node_without_room_in_time_is_given_up_and_the_short_one_is_relieved_otherwise() -> None:
    jobs = [each._replace(run_s=20000) if each.job_id > 6 else each for each in blocked()]
    outcome = replayed(jobs, 5, "v-reconfiguration", unknown=0.5, threshold=0.9)
    reserved, full = outcome.notes
    assert (reserved.note.what, full.note.what) == ("reserved", "full")
    assert full.time_s == reserved.time_s + 600
    assert any(0 <= move.begin_s - full.time_s < 60 for run in outcome.jobs for move in run.moves)


def test_load_sharing_reserves_nothing() -> None:
    assert replayed(blocked(), 5, "load-sharing", unknown=0.5, threshold=0.9).notes == ()


def test_a_vm_larger_than_what_is_planned_of_a_node_has_one_to_itself() -> None:
    outcome = replayed([job(1, 2000, 2000), job(2, 100, 100)], 2, unknown=1.0, threshold=0.9)
    assert all(run.end_s < 700 for run in outcome.jobs)


def test_a_job_that_has_no_room_up_to_the_threshold_is_too_large() -> None:
    jobs = [job(1, 1000, 100, vms=4), job(2, 900, 100, vms=4), job(3, 2000, 100, vms=2)]
    faults = Faults()
    assert [each.job_id for each in fitting(jobs, Cluster(2, 16, 2000), faults, most_mib=1800)] == [2, 3]
    assert len(faults) == 1


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    lines = []
    for each in blocked():
        known = [each.job_id, 0, -1, each.run_s, 1, -1, (each.used_mib or 0) << 10, 1, 2 * each.run_s]
        lines.append(" ".join(map(str, [*known, (each.memory_mib or 0) << 10, 1, each.job_id, *[-1] * 6])))
    Path("t.swf").write_text("\n".join([*lines, ""]))
    return "t.swf"


WHERE = ("--nodes", "5", "--cpus-per-node", "16", "--memory-per-node", "2000", "--exempt", "1")
OBSERVED = (*WHERE, "--memory", "observed", "--memory-unknown", "0.5", "--policy", "v-reconfiguration")


def test_the_command_tells_what_was_reserved_for_whom_and_why(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", trace, *OBSERVED, "--events", "e.jsonl", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["context_switches"]["shortages"]["reserved"] >= 1
    events = [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()]
    assert [each["time"] for each in events] == sorted(each["time"] for each in events)
    reserved = next(each for each in events if each["event"] == "reserved")
    assert reserved["vm"] == "6-0" and reserved["node"] in reserved["why"]
    assert main(["simulate", "--workload", trace, *OBSERVED]) == 0
    assert "reserved" in capsys.readouterr().out.splitlines()[0]


def test_the_page_shows_a_replay_with_observed_memory(trace: str) -> None:
    assert main(["simulate", "--workload", trace, *OBSERVED, "--html", "p.html"]) == 0
    assert Path("p.html").stat().st_size > 10000


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--policy", "easy", "--memory", "observed"), "not for fcfs and easy"),
        (("--policy", "mixed", "--memory-threshold", "0.5"), "--memory-threshold goes with --memory observed"),
        (("--policy", "mixed", "--memory-unknown", "0.5"), "--memory-unknown goes with --memory observed"),
        (
            ("--policy", "mixed", "--memory", "observed", "--memory-threshold", "2"),
            "not a number above 0, and 1 at most",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    trace: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--workload", trace, *WHERE, *words])
    assert ended.value.code == 2 and why in capsys.readouterr().err


def test_memory_of_a_ledger_is_not_observed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--ledger", "l.sqlite", *OBSERVED])
    assert ended.value.code == 2 and "goes with --workload, not with --ledger" in capsys.readouterr().err
