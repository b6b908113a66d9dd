"""The report: lives of jobs, the replays without context switches, totals, utilisation, and what it cannot know."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.reported import NOON, UIDS, K, Told

from rmsplugin.adapters.rms.slurm_accounting import Run
from rmsplugin.decision.result import Decision, Reason, ReasonCode
from rmsplugin.engine.ledger.history import reading
from rmsplugin.errors import ReportError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.report import samples, sharing, writing
from rmsplugin.report.build import Question, Report, Site, build
from rmsplugin.report.document import Job, Node
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.utilisation import MOST_STEPS

HOUR = 3600.0
NODES = (Node("n1", 2, 4096), Node("n2", 2, 4096))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def run_of(job_id: int, submit: float, run_s: int, limit_s: float = math.nan, **more: object) -> Run:
    at = int(NOON + submit)
    return Run(job_id, "physics", at, at, run_s, 0, limit_s, "COMPLETED")._replace(**more)


def report(
    told: Told,
    until: float,
    *,
    since: float = 0.0,
    runs: Iterable[Run] | Exception = (),
    nodes: tuple[Node, ...] = NODES,
    overhead_mib: int = 0,
    owner: int | None = None,
    host_cpus: dict[str, int] | None = None,
    **more: object,
) -> Report:
    """The report of the time from ``since`` to ``until``, in seconds after NOON."""

    def ask(_since: float) -> Iterable[Run]:
        if isinstance(runs, Exception):
            raise runs
        return runs

    question = Question(NOON + since, NOON + until, NOON + until, **{"with_lives": True, **more})  # type: ignore[arg-type]
    site = Site(nodes, "" if nodes else "nobody knows the nodes", overhead_mib, host_cpus or {}, {}, ask)
    with reading(told.path) as connection:
        return build(LedgerReader(connection, question.until, owner), question, site)


def jobs_of(made: Report) -> dict[str, Job]:
    return {job.id: job for job in made.jobs()}


def spans(job: Job) -> list[tuple[str, float, float, tuple[str, ...]]]:
    """State, begin and end in seconds after NOON, hosts."""
    return [(each.state, each.begin - NOON, each.until - NOON, each.nodes) for each in job.intervals]


def counts(made: Report) -> dict[str, int]:
    return {note.code: note.count for note in made.head.notes}


# -- lives -------------------------------------------------------------------------------------------------------------


def test_one_that_was_paused_slept_and_made_way_once_even_if_it_was_saved_then(told: Told) -> None:
    job, saved = told.at(0).submit(1), told.submit(2)
    told.at(90).start(job, "n1")  # runs from 100 on
    told.at(190).start(saved, "n2")  # runs from 200 on
    told.at(300).pause(job, error="no")  # runs on from 301
    told.at(400).pause(job)
    told.at(410).pause(saved)
    told.at(420).suspend(saved, error="disk full")  # is paused as before
    told.at(450).suspend(saved)
    told.at(498).unpause(job, "n1", error="no")
    told.at(599).unpause(job, "n1")  # runs from 600 on
    told.at(970).resume(saved, "n1")  # runs from 1000 on
    told.at(1200).end(job)
    told.at(1300).suspend(saved)
    made = jobs_of(report(told, HOUR))
    assert spans(made["1"]) == [
        ("waiting", 0, 100, ()),
        ("running", 100, 300, ("n1",)),
        ("sleeping", 300, 301, ()),
        ("running", 301, 400, ("n1",)),
        ("sleeping", 400, 600, ()),
        ("running", 600, 1200, ("n1",)),
    ]
    assert (made["1"].suspends, made["1"].resumes, made["1"].asleep_s) == (1, 1, 201)
    assert [span[:3] for span in spans(made["2"])][2:] == [
        ("sleeping", 410, 1000),
        ("running", 1000, 1300),
        ("sleeping", 1300, 3600),
    ]
    assert (made["2"].suspends, made["2"].resumes) == (2, 1)


def test_one_that_is_paused_now_sleeps(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(90).start(job, "n1")
    told.at(400).pause(job)
    [made] = report(told, HOUR).jobs()
    assert (made.state, made.asleep_s) == ("sleeping", HOUR - 400)


def test_a_job_that_slept_and_moved_is_told_from_submission_to_end(told: Told) -> None:
    job = told.at(0).submit(1, vms=2)
    told.at(90).start(job, "n1", "n1")  # runs from 100 on
    told.at(200).migrate(job, 1, "n2")
    told.at(500).suspend(job)
    told.at(970).resume(job, "n2", "n2")  # runs from 1000 on
    told.at(1600).end(job)
    [made] = report(told, HOUR).jobs()
    assert (made.state, made.start, made.end) == ("ended", NOON + 100, NOON + 1600)
    assert (made.wait_s, made.run_s, made.asleep_s, made.completion_s) == (100, 1000, 500, 1600)
    assert (made.suspends, made.resumes, made.migrations, made.slowdown) == (1, 1, 1, 1.6)
    assert spans(made) == [
        ("waiting", 0, 100, ()),
        ("running", 100, 205, ("n1", "n1")),
        ("running", 205, 500, ("n1", "n2")),
        ("sleeping", 500, 1000, ()),
        ("running", 1000, 1600, ("n2", "n2")),
    ]


def test_a_suspend_that_fails_costs_its_time_and_a_resume_that_fails_lets_the_job_sleep_on(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(0).start(job, "n1")
    told.at(100).suspend(job, 20, error="no space")
    told.at(200).suspend(job, 20)
    told.at(300).resume(job, "n1", seconds=30, error="no answer")
    told.at(400).resume(job, "n1", seconds=30)
    told.at(500).end(job)
    [made] = report(told, HOUR).jobs()
    assert [(state, begin, until) for state, begin, until, _ in spans(made)] == [
        ("waiting", 0, 10),
        ("running", 10, 100),
        ("sleeping", 100, 120),
        ("running", 120, 200),
        ("sleeping", 200, 430),
        ("running", 430, 500),
    ]
    assert (made.suspends, made.resumes) == (1, 1)


def test_a_job_that_is_lost_waits_again_and_its_replay_does_its_work_once(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(0).start(job, "n1")
    told.at(310).lose(job)
    told.at(390).start(job, "n2")
    told.at(1000).end(job)
    made = report(told, HOUR)
    [lost] = made.jobs()
    assert (lost.wait_s, lost.run_s, lost.completion_s) == (100, 900, 1000)
    assert lost.without["fcfs"] is not None and lost.without["fcfs"].end - lost.without["fcfs"].start == 600
    assert counts(made)["repeated"] == 1


def test_a_job_that_goes_back_to_its_checkpoint_sleeps_until_it_is_resumed(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(0).start(job, "n1")
    told.at(300).lose(job, back=True, seconds=15)
    assert [span[:3] for span in spans(jobs_of(report(told, 400))["1"])][-2:] == [
        ("waiting", 300, 315),
        ("sleeping", 315, 400),
    ]
    told.at(500).resume(job, "n2")
    told.at(600).end(job)
    assert jobs_of(report(told, HOUR))["1"].asleep_s == 215


def test_jobs_that_never_ran_or_have_not_ended_are_compared_with_nothing_and_counted(told: Told) -> None:
    told.at(0).cancel_waiting(told.submit(1))
    told.at(10).submit(2)
    told.at(20).start(told.submit(3), "n1")
    told.at(60).start(told.submit(4), "n1")
    told.suspend(4)
    told.at(300)
    made = report(told, 300)
    found = jobs_of(made)
    assert [found[name].state for name in "1234"] == ["never-ran", "waiting", "running", "sleeping"]
    assert all(job.completion_s is None and set(job.without.values()) == {None} for job in found.values())
    taken_for_granted = ("replayed", "slowed", "hosts-unknown", "no-limit", "unknown-to-accounting")
    assert counts(made) | dict.fromkeys(taken_for_granted, 0) == {
        "never-ran": 1, "waiting": 1, "not-ended": 2, "asleep": 1, "replayed": 0, "slowed": 0, "hosts-unknown": 0,
        "no-limit": 0, "unknown-to-accounting": 0,
    }  # fmt: skip
    assert made.head.totals["all"][0].worth.jobs == 0


def test_what_came_after_the_time_asked_for_is_not_known_in_it(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(0).start(job, "n1")
    told.at(100).suspend(job)
    told.at(200).resume(job, "n1")
    told.at(300).end(job)
    told.at(5000).submit(2)
    [made] = report(told, 150).jobs()
    assert (made.state, made.end, made.asleep_s, made.suspends, made.resumes) == ("sleeping", None, 50, 1, 0)
    assert jobs_of(report(told, 6000, since=1000)).keys() == {"2"}


def test_an_id_that_was_given_out_again_is_the_new_job(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(0).start(job, "n1")
    told.at(500).end(job)
    old = told.ledger.vjob(job)
    told.at(1000)
    told.ledger.renew_vjob(replace(old, state=type(old.state).WAITING, submitted=told.now, state_since=told.now))
    told.at(1100)
    [made] = report(told, 1200).jobs()
    assert (made.state, made.submit, made.run_s, made.wait_s) == ("waiting", NOON + 1000, 0, 200)


ACTS = st.lists(
    st.tuples(st.sampled_from(("suspend", "resume", "migrate", "lose", "fail")), st.integers(1, 500)), max_size=8
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS, wait_s=st.integers(0, 1000))
def test_no_second_of_a_life_is_created_or_lost(
    acts: list[tuple[str, int]], wait_s: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    told = Told(tmp_path_factory.mktemp("life"))
    job = told.at(0).submit(1)
    told.at(wait_s).start(job, "n1")
    lost = False
    for act, seconds in acts:
        told.now += seconds
        state = str(told.ledger.vjob(job).state)
        if act in ("suspend", "fail") and state == "running":
            told.suspend(job, error="why" if act == "fail" else "")
        elif act == "resume" and state == "sleeping":
            told.resume(job, "n2")
        elif act == "migrate" and state == "running":
            told.migrate(job, 0, "n2")
        elif act == "lose" and state == "running":
            told.lose(job)
            told.start(job, "n1")
            lost = True
    told.now += 7
    told.end(job)
    [made] = report(told, 10 * HOUR).jobs()
    assert made.end is not None and made.completion_s is not None
    assert made.wait_s + made.run_s + made.asleep_s == pytest.approx(made.completion_s) == made.end - made.submit
    edges = [(each.begin, each.until) for each in made.intervals]
    assert edges[0][0] == made.submit and edges[-1][1] == made.end
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    if not lost:
        assert made.run_s == pytest.approx(told.ledger.vjob(job).ran_s)


# -- replays -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(told: Told) -> Told:
    """Two nodes of 2 CPUs: a job of 2 CPUs for 1000 s, one of 4 for 500 s, one of 1 for 200 s; all ran at once."""
    for job_id, vms, run_s in ((1, 2, 1000), (2, 4, 500), (3, 1, 200)):
        job = told.at(job_id).submit(job_id, vms=vms)
        told.at(job_id).start(job, *["n1"] * vms, seconds=0.0)
        told.at(job_id + run_s).end(job)
    return told


def test_the_replays_are_fcfs_and_easy_by_the_limits_that_accounting_has(queue: Told) -> None:
    limits = {1: 1200.0, 2: 600.0, 3: 300.0}
    found = jobs_of(report(queue, HOUR, runs=[run_of(job, job, 1, limit) for job, limit in limits.items()]))
    assert {
        name: (job.without["fcfs"].start - NOON, job.without["easy"].start - NOON) for name, job in found.items()
    } == {  # type: ignore[union-attr]
        "1": (1, 1),
        "2": (1001, 1001),
        "3": (1501, 3),  # EASY lets it pass: by its limit it ends before the second may start
    }
    late = jobs_of(report(queue, HOUR, runs=[run_of(3, 3, 1, 5000.0)]))
    assert late["3"].without["easy"].start == NOON + 1501  # type: ignore[union-attr]
    assert late["3"].limit_s == 5000 and late["1"].limit_s is None


def test_what_was_gained_is_the_difference_of_the_completions(queue: Told) -> None:
    [total] = report(queue, HOUR).head.totals["all"]
    fcfs = total.without["fcfs"]
    assert (total.jobs, total.ended, fcfs.worth.jobs) == (3, 3, 3)
    assert fcfs.gained_s == (1001 - 2) + (1501 - 3)
    assert (fcfs.sooner, fcfs.later) == (2, 0)
    assert fcfs.worth.completion_s is not None and fcfs.own.completion_s is not None
    assert fcfs.worth.completion_s.mean == pytest.approx((1000 + 1499 + 1698) / 3, abs=0.1)
    assert fcfs.own.completion_s.mean == pytest.approx((1000 + 500 + 200) / 3, abs=0.1)


def test_memory_counts_where_it_is_what_is_short_and_what_is_too_large_is_left_out(told: Told) -> None:
    for job_id, memory_mib in ((1, 2048), (2, 1024), (3, 9000)):
        job = told.at(job_id).submit(job_id, vms=2, memory_mib=memory_mib)
        told.at(job_id).start(job, "n1", "n2", seconds=0.0)
        told.at(job_id + 100).end(job)
    made = report(told, HOUR, overhead_mib=512)
    found = jobs_of(made)
    assert counts(made)["too-large"] == counts(made)["by-memory"] == 1
    assert found["3"].without == {"fcfs": None, "easy": None}
    [total] = made.head.totals["all"]
    assert (total.ended, total.without["easy"].own.jobs, total.without["easy"].worth.jobs) == (3, 2, 2)
    assert found["2"].without["easy"].start == NOON + 101  # type: ignore[union-attr]  # all memory is taken till then


def test_without_nodes_nothing_is_replayed_and_the_report_says_why(queue: Told) -> None:
    made = report(queue, HOUR, nodes=())
    assert made.head.others == () and [job.without for job in made.jobs()] == [{}, {}, {}]
    assert "nobody knows the nodes" in next(note.sentence for note in made.head.notes if note.code == "no-replay")


# -- what sharing CPUs cost --------------------------------------------------------------------------------------------


def crowd(told: Told) -> None:
    """Three VMs of 1 CPU each on n1 from 0 to 1000, of two jobs; the first job's second VM demands half a CPU."""
    told.at(0).submit(1, vms=2)
    told.at(0).submit(2)
    told.at(0).start(1, "n1", "n1", seconds=0.0)
    told.at(0).start(2, "n1", seconds=0.0)
    told.at(0).demand(1, 1, 50)


def test_a_job_that_shared_cpus_runs_shorter_in_the_replays(told: Told) -> None:
    crowd(told)
    told.at(600).end(2)  # from here on n1 has 1.5 CPUs to give for 1.5
    told.at(1000).end(1)
    made = report(told, HOUR, host_cpus={"n1": 2, "n2": 2})
    found = jobs_of(made)
    # 2.5 are demanded of 2 CPUs, so everything takes a quarter longer: of 600 s 480 are work.
    assert (found["1"].run_s, found["1"].slowed_s) == (1000, 120)
    assert (found["2"].run_s, found["2"].slowed_s) == (600, 120)
    for policy in ("fcfs", "easy"):
        alone = {name: job.without[policy] for name, job in found.items()}
        assert [there.end - there.start for there in alone.values() if there] == [880, 480]
    assert counts(made)["shared"] == 2 and "hosts-unknown" not in counts(made)
    unknown = report(told, HOUR)
    assert [job.slowed_s for job in unknown.jobs()] == [0, 0] and counts(unknown)["hosts-unknown"] == 2


def test_a_job_is_slowed_where_its_vms_are_while_they_are_there_and_before_its_last_loss_for_nothing(
    told: Told,
) -> None:
    crowd(told)
    told.submit(3)
    told.at(100).lose(1, seconds=0.0)  # what it lost by sharing before that is of no work that was kept
    told.at(200).start(1, "n1", "n2", seconds=0.0)  # now 2 CPUs are demanded of n1's 2, and 1 of n2's 1
    told.at(300).start(3, "n2", seconds=0.0)  # 2 of 1: twice as long
    told.at(400).migrate(3, 0, "n1", seconds=0.0)  # 3 of 2
    told.at(700).suspend(3, seconds=0.0)
    told.at(800).resume(3, "n3", seconds=0.0)  # whose CPUs nobody knows
    for job in (1, 2, 3):
        told.at(1000).end(job)
    found = jobs_of(report(told, HOUR, host_cpus={"n1": 2, "n2": 1}))
    assert found["3"].slowed_s == pytest.approx(100 / 2 + 300 / 3, abs=0.1)
    assert found["2"].slowed_s == pytest.approx(100 / 5 + 300 / 3, abs=0.1)
    # On n1 its first VM lost 100 s, on n2 its second one 50: it was as slow as the slower.
    assert found["1"].slowed_s == pytest.approx(100, abs=0.1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lives=st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 500), st.integers(1, 3), st.sampled_from(("n1", "n2")),
                  st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300)), max_size=3)),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_what_sharing_cost_is_what_second_by_second_was_not_got(
    lives: list[tuple[int, int, int, str, list[tuple[int, int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    told = Told(tmp_path_factory.mktemp("shared"))
    has = {"n1": 2, "n2": 3}
    events: list[tuple[int, int, str, int]] = []
    for job, (begin, runs, _, _, demands) in enumerate(lives, start=1):
        events += [(60 * begin, job, "start", 0), (60 * (begin + runs), job, "end", 0)]
        events += [(60 * (begin + after), job, "demand", much) for after, much in demands if after < runs]
    wants: list[dict[int, float]] = [{} for _ in range(1100)]  # by minute
    last: dict[int, dict[int, float]] = {job: {} for job in range(1, len(lives) + 1)}
    for at, job, what, much in sorted(events, key=lambda event: (event[0], event[2] != "start")):
        begin, runs, cpus, node, _ = lives[job - 1]
        if what == "start":
            told.at(at).start(told.submit(job, cpus=cpus), node, seconds=0.0)
            last[job][begin] = cpus
        elif what == "demand":
            told.at(at).demand(job, 0, much)
            last[job][at // 60] = min(much / 100, cpus)
        else:
            told.at(at).end(job, seconds=0.0)
    for job, (begin, runs, _, _, _) in enumerate(lives, start=1):
        for minute in range(begin, begin + runs):
            wants[minute][job] = last[job][max(since for since in last[job] if since <= minute)]
    lost = dict.fromkeys(last, 0.0)
    for wanted in wants:
        for node, cpus in has.items():
            there = {job: want for job, want in wanted.items() if lives[job - 1][3] == node}
            share = min(1.0, cpus / (sum(there.values()) or 1.0))
            for job, want in there.items():
                lost[job] += 60 * (1 - share) * want / lives[job - 1][2]
    made = jobs_of(report(told, 1200 * 60, host_cpus=has))
    assert {job: made[str(job)].slowed_s for job in lost} == pytest.approx(lost, abs=0.2)


def test_what_sharing_cost_is_the_same_in_windows_of_few_samples(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, moves and demands that begin in one window and end in another; one that nothing is seen of for long."""
    for job, cpus in ((1, 2), (2, 1), (3, 3)):
        told.at(0).start(told.submit(job, vms=2, cpus=cpus), "n1", "n2", seconds=0.0)
    for number, job in enumerate((1, 2, 1, 1, 2, 1, 1, 2, 1), start=1):
        told.at(number * 100 + job).demand(job, number % 2, 37 * number % 200)
    told.at(450).migrate(2, 1, "n1", seconds=0.0)
    told.at(520).suspend(1, seconds=0.0)
    told.at(640).resume(1, "n2", "n1", seconds=0.0)
    for job in (1, 2, 3):
        told.at(1000 + job).end(job)
    cpus = {"n1": 3, "n2": 4}
    whole = report(told, HOUR, host_cpus=cpus)
    monkeypatch.setattr(sharing, "_EVERY", 1)
    for size in (1, 2, 4):
        for module in (sharing, samples):
            monkeypatch.setattr(module, "SLICE", size)
        parts = report(told, HOUR, host_cpus=cpus)
        assert [job.slowed_s for job in parts.jobs()] == [job.slowed_s for job in whole.jobs()]
        used = [[point.cpu_used for point in made.head.utilisation] for made in (parts, whole)]
        assert used[0] == pytest.approx(used[1], abs=0.002)
    assert all(job.slowed_s > 50 for job in whole.jobs())


def test_a_small_part_of_the_time_has_the_samples_of_that_time(told: Told) -> None:
    """They are looked up by time there, and not by VM."""
    for job, at in ((1, 0), (2, 99 * 86400)):
        told.at(at).start(told.submit(job, vms=2, cpus=2), "n1", "n1", seconds=0.0)
        for after, centi_cpus in ((120, 50), (300, 100)):
            for vm in (0, 1):
                told.at(at + after).demand(job, vm, centi_cpus)
        told.at(at + 600).end(job)
    for since in (0.0, 99.0 * 86400):
        head = report(told, 100 * 86400, since=since).head
        jobs = 2 if since == 0 else 1
        used_s = sum(point.cpu_used for point in head.utilisation) * head.utilisation_step_s
        assert used_s == pytest.approx(jobs * (4 * 120 + 1 * 180 + 2 * 300), rel=0.02)


# -- accounting --------------------------------------------------------------------------------------------------------


def test_the_runs_of_a_requeued_job_are_one_and_each_counts_once(told: Told) -> None:
    job = told.at(0).submit(1)
    told.at(0).start(job, "n1")
    told.at(900).end(job)
    runs = [
        run_of(1, -5000, 77),  # of an older job that had this id
        run_of(1, 0, 300, state="REQUEUED"),
        run_of(1, 0, 300, state="REQUEUED"),  # a week later it was asked for again
        run_of(1, 400, 500, 3600.0, asleep_s=60),
        run_of(9, 10, 5),
    ]
    made = report(told, HOUR, runs=runs)
    [found] = made.jobs()
    assert found.account == "physics" and found.slurm is not None
    assert (found.slurm.runs, found.slurm.run_s, found.slurm.asleep_s, found.slurm.state) == (2, 800, 60, "COMPLETED")
    assert counts(made)["unknown-to-ledger"] == 1


def test_a_run_time_that_accounting_has_otherwise_is_counted(told: Told) -> None:
    for job_id in (1, 2):
        told.at(0).start(told.submit(job_id), "n1")
        told.at(1000).end(job_id)
    assert counts(report(told, HOUR, runs=[run_of(1, 0, 1005), run_of(2, 0, 1400)]))["differs"] == 1


def test_accounting_that_does_not_answer_is_said_and_the_report_goes_on(queue: Told) -> None:
    made = report(queue, HOUR, runs=UnavailableError("slurmdbd is down"))
    assert counts(made)["no-accounting"] == 3 and made.head.totals["account"][0].name == ""
    assert any("slurmdbd is down" in note.sentence for note in made.head.notes)
    with pytest.raises(ReportError, match="slurmdbd is down"):
        report(queue, HOUR, runs=UnavailableError("slurmdbd is down"), accounts=("physics",))


# -- reports of one user's jobs ----------------------------------------------------------------------------------------


@pytest.fixture
def shared(told: Told) -> Told:
    """Alice's job of 2 CPUs, then bob's of 4 on a node and in a partition of his own, and one of his that waits."""
    told.at(0).start(told.submit(1, user="alice", vms=2), "n1", "n1", seconds=0.0)
    told.at(10).start(told.submit(2, user="bob", vms=4, partition="bobs"), *["bobnode"] * 4, seconds=0.0)
    told.demand(2, 0, 50)
    told.at(20).start(told.submit(3, user="alice", vms=3), *["n2"] * 3, seconds=0.0)
    told.at(100).switch([2], K.SUSPEND, 1024, 40)
    told.suspend(2)
    told.at(200).resume(2, *["bobnode"] * 4)
    for job in (1, 2, 3):
        told.at(1000).end(job)
    told.at(1500).submit(4, user="bob")
    return told


BOBS_RUN = run_of(2, 10, 5000, account="bobsaccount")


def test_an_owner_is_told_of_their_jobs_as_in_the_report_of_all(shared: Told) -> None:
    runs = [run_of(1, 0, 1000), BOBS_RUN]
    own, whole = report(shared, HOUR, runs=runs, owner=UIDS["alice"]), report(shared, HOUR, runs=runs)
    assert jobs_of(own) == {name: whole_job for name, whole_job in jobs_of(whole).items() if name in "13"}
    late = jobs_of(own)["3"].without["fcfs"]
    assert late is not None and late.start == NOON + 1000 + jobs_of(whole)["2"].run_s  # bob's is before it there
    assert own.head.totals["all"] == report(shared, HOUR, runs=runs, users=("alice",)).head.totals["all"]


def test_an_owner_is_told_nothing_of_others(shared: Told) -> None:
    runs = [run_of(1, 0, 1000), BOBS_RUN, run_of(9, 10, 5)]
    own = report(shared, HOUR, runs=runs, owner=UIDS["alice"])
    text = "".join(writing.json_text(own.head, own.rows(), {}))
    assert "bob" in "".join(writing.json_text((whole := report(shared, HOUR, runs=runs)).head, whole.rows(), {}))
    assert "bob" not in text
    assert own.head.switches == () and all(cost.actions == 0 for cost in own.head.costs.values())
    assert counts(own) == {
        "own-only": 2, "unknown-to-accounting": 1, "replayed": 2, "slowed": 2, "hosts-unknown": 2, "no-limit": 2,
    }  # fmt: skip
    for policy in ("fcfs", "easy"):
        used = sum(point.without[policy] for point in own.head.utilisation) * own.head.utilisation_step_s
        assert used == pytest.approx(2 * 1000 + 3 * 980, rel=0.01)
    for of in ("cpu_used", "cpu_booked", "cpu_demanded"):
        used = sum(getattr(point, of) for point in own.head.utilisation) * own.head.utilisation_step_s
        assert used == pytest.approx(2 * 1000 + 3 * 980, rel=0.01), of


@pytest.mark.parametrize(
    "asked",
    [{"jobs": ("2",)}, {"jobs": ("1", "4")}, {"partitions": ("bobs",)}, {"accounts": ("bobsaccount",)},
     {"users": ("bob",)}, {"users": ("alice", "bob")}],
)  # fmt: skip
def test_an_owner_who_asks_for_others_jobs_is_told_what_they_were_told_if_there_were_none(
    shared: Told, asked: dict[str, tuple[str, ...]]
) -> None:
    with pytest.raises(ReportError) as refused:
        report(shared, HOUR, runs=[run_of(1, 0, 1000), BOBS_RUN], owner=UIDS["alice"], **asked)
    unheard_of = {kind: tuple("99" if kind == "jobs" else "x" for _ in names) for kind, names in asked.items()}
    with pytest.raises(ReportError) as unknown:
        report(shared, HOUR, runs=[run_of(1, 0, 1000), BOBS_RUN], owner=UIDS["alice"], **unheard_of)
    assert "of yours" in str(refused.value)
    own, name = str(refused.value).split(" ")[:5], str(unknown.value).split(" ")[:5]
    assert own == name


# -- totals and utilisation --------------------------------------------------------------------------------------------


def test_the_totals_of_each_kind_add_up(told: Told) -> None:
    for job_id, (user, partition, at) in enumerate(
        (("alice", "vjob", 0), ("bob", "vjob", 100), ("alice", "vlong", 8 * 86400)), start=1
    ):
        told.at(at).start(told.submit(job_id, user=user, partition=partition), "n1")
        told.at(at + 500 * job_id).end(job_id)
    made = report(told, 9 * 86400)
    [whole] = made.head.totals["all"]
    assert [total.name for total in made.head.totals["user"]] == ["alice", "bob"]
    assert [total.name for total in made.head.totals["partition"]] == ["vjob", "vlong"]
    assert [total.name for total in made.head.totals["week"]] == ["2025-11-03", "2025-11-10"]
    for kind in ("user", "account", "partition", "week", "class"):
        parts = made.head.totals[kind]
        assert sum(total.jobs for total in parts) == whole.jobs == 3
        assert sum(total.run_s for total in parts) == pytest.approx(whole.run_s) == 490 + 990 + 1490


def test_of_each_class_it_is_told_who_paid_and_the_longest(told: Told) -> None:
    """Four CPUs: one that runs for an hour and more waits for a short one that EASY would have had wait."""
    for job_id, vms, starts_s, run_s in ((1, 4, 501, 4000), (2, 1, 2, 200)):
        job = told.at(job_id).submit(job_id, vms=vms)
        told.at(starts_s).start(job, *["n1"] * vms, seconds=0.0)
        told.at(starts_s + run_s).end(job)
    long, short = report(told, 2 * HOUR).head.totals["class"]
    assert (long.name, short.name) == ("long and narrow", "short and narrow")
    easy = long.without["easy"]
    assert (easy.later, easy.paid_s, long.worth.longest_s, easy.worth.longest_s) == (1, 500, 4500, 4000)
    easy = short.without["easy"]
    assert (easy.sooner, easy.later, easy.paid_s) == (1, 0, 0)
    assert (short.worth.longest_s, easy.worth.longest_s) == (200, 4199)


def test_jobs_of_more_than_eight_cpus_are_wide_ones(told: Told) -> None:
    for job_id, vms in ((1, 8), (2, 9)):
        told.at(job_id).start(told.submit(job_id, vms=vms), *["n1"] * vms, seconds=0.0)
        told.at(job_id + 100).end(job_id)
    assert [total.name for total in report(told, HOUR).head.totals["class"]] == ["short and narrow", "short and wide"]


def test_a_choice_has_the_same_replay_as_the_whole(queue: Told) -> None:
    queue.at(5).submit(4, user="bob", name="40_7")
    whole = jobs_of(report(queue, HOUR))
    chosen = jobs_of(report(queue, HOUR, jobs=("2", "3")))
    assert chosen == {name: whole[name] for name in "23"}
    assert jobs_of(report(queue, HOUR, jobs=("40",))).keys() == {"40_7"}
    assert jobs_of(report(queue, HOUR, users=("bob",))).keys() == {"40_7"}
    assert jobs_of(report(queue, HOUR, runs=[run_of(2, 2, 1, account="maths")], accounts=("maths",))).keys() == {"2"}
    for wrong in ({"users": ("eve",)}, {"partitions": ("x",)}, {"jobs": ("77",)}, {"accounts": ("x",)}):
        with pytest.raises(ReportError):
            report(queue, HOUR, **wrong)  # type: ignore[arg-type]


def test_the_utilisation_has_each_cpu_second_once(queue: Told) -> None:
    head = report(queue, HOUR).head
    assert head.utilisation_step_s == 60 and head.utilisation[0].t == NOON
    cpu_s = 2 * 1000 + 4 * 500 + 200
    assert sum(point.cpu_booked for point in head.utilisation) * 60 == pytest.approx(cpu_s, rel=1e-3)
    for policy in ("fcfs", "easy"):
        assert sum(point.without[policy] for point in head.utilisation) * 60 == pytest.approx(cpu_s, rel=1e-3)
    assert head.utilisation[0].cpu_total == 4
    assert report(queue, 400 * 86400).head.utilisation_step_s > 60
    assert len(report(queue, 400 * 86400).head.utilisation) <= MOST_STEPS


def test_what_vms_were_seen_to_demand_is_used_until_they_sleep(told: Told) -> None:
    job = told.at(0).submit(1, vms=2, cpus=2)
    told.at(0).start(job, "n1", "n1", seconds=0.0)
    told.at(120).demand(job, 0, 50)
    told.at(240).suspend(job, 0.0)
    told.at(360).resume(job, "n1", "n1", seconds=0.0)
    told.at(480).end(job)
    points = report(told, 600).head.utilisation
    assert [point.cpu_used for point in points] == [4, 4, 2.5, 2.5, 0, 0, 4, 4, 0, 0]
    assert [point.cpu_booked for point in points] == [4, 4, 4, 4, 0, 0, 4, 4, 0, 0]
    assert [point.cpu_demanded for point in points] == [4, 4, 4, 4, 4, 4, 4, 4, 0, 0]


def test_memory_queue_and_saved_states_over_time(told: Told) -> None:
    job = told.at(0).submit(1, vms=2, memory_mib=1024)
    told.at(60).start(job, "n1", "n1", seconds=60.0)
    told.bytes = 512 << 20
    told.at(240).suspend(job, 60.0)
    told.at(420).resume(job, "n1", "n1", seconds=60.0)
    told.at(600).lose(job, seconds=60.0)
    told.at(700).cancel_waiting(job)
    other = told.at(700).submit(2, user="bob")
    told.at(705).cancel_waiting(other)
    points = report(told, 720, owner=UIDS["alice"]).head.utilisation
    assert [point.waiting for point in points] == pytest.approx([1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2 / 3], abs=0.001)
    assert [point.asleep for point in points] == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    assert [point.mem_booked_mib for point in points] == [0, 0, 2048, 2048, 0, 0, 0, 0, 2048, 2048, 0, 0]
    # From the end of the suspend to that of the resume.
    assert [point.store_mib for point in points] == [0, 0, 0, 0, 0, 1024, 1024, 1024, 0, 0, 0, 0]
    assert {point.mem_total_mib for point in points} == {8192}


def test_losses_are_told_by_job_to_whom_they_may_be(told: Told) -> None:
    for job_id, user in ((1, "alice"), (2, "bob")):
        job = told.at(0).submit(job_id, user=user, name=f"40_{job_id}")
        told.at(1).start(job, "n1")
    told.at(100).ledger.event("lost", "vjob1-0 on n1, which is gone", vjob="40_1")
    told.at(200).ledger.event("went-back", "it goes on", vjob="40_2")
    told.at(300).ledger.event("migrated", "to n2", vjob="40_2")
    told.at(5000).ledger.event("lost", "later than the report", vjob="40_2")
    losses = report(told, HOUR).head.losses
    assert [(each.at - NOON, each.id, each.kind) for each in losses] == [
        (100, "40_1", "lost"),
        (200, "40_2", "went-back"),
    ]
    assert losses[0].sentence == "vjob1-0 on n1, which is gone"
    assert [each.id for each in report(told, HOUR, owner=UIDS["alice"]).head.losses] == ["40_1"]
    assert [each.id for each in report(told, HOUR, users=("bob",)).head.losses] == ["40_2"]
    assert report(told, HOUR, since=250).head.losses == ()
    head = report(told, HOUR).head
    assert writing.head_of(next(iter(writing.lines(head, [])))).losses == losses


def test_vms_of_uneven_tasks_book_and_use_each_what_it_has(told: Told) -> None:
    job = told.at(0).submit(1, vms=3, cpus=2, memory_mib=2048, small=(1, 1024))
    told.at(0).start(job, "n1", "n2", "n2", seconds=0.0)
    told.at(120).demand(job, 0, 150)
    told.at(120).demand(job, 1, 50)
    told.at(240).end(job)
    made = report(told, 360)
    points = made.head.utilisation
    assert [point.cpu_booked for point in points] == [4, 4, 4, 4, 0, 0]
    assert [point.cpu_used for point in points] == [4, 4, 3, 3, 0, 0]
    [shown] = made.jobs()
    assert (shown.vms, shown.cpus, shown.memory_mib) == (3, 2, 2048)
    # Four CPUs hold all of it; six, as VMs of one size would have, they do not.
    assert shown.without["fcfs"] is not None and counts(made)["replayed"] == 1


def test_vms_of_uneven_tasks_slow_each_other_by_what_each_has(told: Told) -> None:
    job = told.at(0).submit(1, vms=2, cpus=2, small=(1, 256))
    told.at(0).start(job, "n1", "n1", seconds=0.0)
    told.at(300).end(job)
    made = report(told, HOUR, host_cpus={"n1": 2})
    assert jobs_of(made)["1"].slowed_s == pytest.approx(100, abs=0.1)


def test_switches_and_what_their_actions_cost_are_told(told: Told) -> None:
    for job in (1, 2):
        told.at(0).start(told.submit(job), "n1")
    told.at(100).switch([1, 2], K.SUSPEND, 1024, 40)
    told.at(100).suspend(1, 20)
    told.at(110).suspend(2, 25, error="why")
    head = report(told, HOUR).head
    [switch] = head.switches
    assert (switch.at, switch.cost_mib, switch.seconds, switch.state) == (NOON + 100, 1024, 40, "done")
    assert (switch.start, switch.suspend, switch.resume, switch.migrate) == (0, 2, 0, 0)
    assert (head.costs["suspend"].actions, head.costs["suspend"].vm_seconds, head.costs["suspend"].bytes) == (
        1,
        20,
        100,
    )
    assert head.costs["migrate"].actions == 0


@pytest.mark.parametrize(("kind", "counted"), [(K.PAUSE, (2, 0)), (K.UNPAUSE, (0, 2))])
def test_pauses_of_a_switch_have_columns_of_their_own(told: Told, kind: K, counted: tuple[int, int]) -> None:
    for job in (1, 2):
        told.at(0).start(told.submit(job), "n1")
    told.at(100).switch([1, 2], kind, 0, 1)
    [switch] = report(told, HOUR).head.switches
    assert (switch.pause, switch.unpause) == counted
    assert (switch.start, switch.suspend, switch.resume, switch.migrate) == (0, 0, 0, 0)


def test_a_ledger_that_begins_later_and_nodes_that_came_and_went_are_said(told: Told) -> None:
    told.at(0).start(told.submit(1), "n1")
    told.ledger.event("room-gone", "room 3 on n2 has ended", node="n2")
    told.at(500).end(1)
    assert counts(report(told, HOUR, since=-1000)) | {"node-changes": 1, "ledger-begins": 1000} == counts(
        report(told, HOUR, since=-1000)
    )
    assert counts(report(told, HOUR, since=100))["earlier"] == 1


def test_jobs_that_placement_rules_kept_out_are_counted_by_rule(told: Told) -> None:
    for job, user in ((1, "alice"), (2, "bob"), (3, "alice"), (4, "alice")):
        told.at(0).submit(job, user=user)
    kept_out = {
        "1": "needs 1 CPU; 2 nodes with room for vjob1-0, but rule few: capacity: at most 1 bars it from 2",
        "2": "needs 1 CPU; 2 nodes, but rule few: capacity bars it from 1 and rule apart: spread of 'x' bars it from 1",
        "3": "needs 1 CPU; 2 nodes, but rule --spread-job: spread of 2 VMs bars it from 2",
    }
    waits = dict.fromkeys(["1", "2", "3", "4"], VJobState.WAITING)
    reasons = {name: Reason(ReasonCode.RULE, sentence) for name, sentence in kept_out.items()}
    reasons["4"] = Reason(ReasonCode.NO_ROOM, "no room, but rule few: is not the reason")
    told.ledger.plans.decided(Decision("mixed", waits, reasons, {}, ""), 0)
    [note] = [note for note in report(told, HOUR).head.notes if note.code == "ruled"]
    assert (note.count, note.sentence) == (
        3,
        "3 jobs waited or slept for placement rules of the site: few 2, --spread-job 1, apart 1",
    )
    [own] = [note for note in report(told, HOUR, owner=UIDS["bob"]).head.notes if note.code == "ruled"]
    assert own.sentence == "1 job waited or slept for placement rules of the site: apart 1, few 1"


def test_a_report_says_how_many_replayed_jobs_had_wishes_that_replays_do_without(told: Told) -> None:
    for number, wish in enumerate(({}, {"switches": 1}, {"wishes": ["alone"]}, {"wishes": ["spread"]}), start=1):
        told.at(number).submit(number, vms=2, **wish)  # type: ignore[arg-type]
    for number in (1, 2, 3):
        told.at(100 * number).start(number, "n1", "n1")
    [note] = [note for note in report(told, HOUR).head.notes if note.code == "wished"]
    assert (note.count, note.sentence) == (
        2,
        "2 jobs asked for VMs apart, alone or on few switches (--spread-job, --exclusive, --switches), which the "
        "replays do without",
    )


def test_an_empty_ledger_makes_an_empty_report(told: Told) -> None:
    made = report(told, HOUR)
    assert list(made.jobs()) == [] and made.head.totals["all"] == () and made.head.notes[0].code == "ledger-begins"
    assert all(point.cpu_booked == 0 for point in made.head.utilisation)


def test_the_json_is_the_same_in_pieces_and_as_a_whole(queue: Told) -> None:
    made = report(queue, HOUR)
    text = "".join(writing.json_text(made.head, made.rows(), {}))
    whole = writing.whole(made.head, made.rows())
    assert json.loads(text) == json.loads(json.dumps(whole)) and list(json.loads(text)) == list(whole)
    assert whole["jobs"][0]["intervals"][0].keys() == {"state", "from", "until", "nodes"}
    empty = report(queue, HOUR, since=HOUR - 1)
    assert json.loads("".join(writing.json_text(empty.head, empty.rows(), {})))["jobs"] == []


def test_names_in_the_json_are_ascii_whatever_they_are(told: Told) -> None:
    """The pieces of a report are counted in bytes on their way from the engine."""
    told.at(0).start(told.submit(1, user="jörg \U0001f600\x1b"), "n1")
    made = report(told, HOUR)
    text = "".join(writing.json_text(made.head, made.rows(), {}))
    assert text.isascii() and json.loads(text)["jobs"][0]["user"] == "jörg \U0001f600\x1b"
    head, row = writing.lines(made.head, made.rows())
    assert head.isascii() and row.isascii() and json.loads(row) == json.loads(text)["jobs"][0]


def test_a_report_without_lives_is_the_same_but_for_the_intervals(queue: Told) -> None:
    def without(job: Job) -> Job:
        return job._replace(intervals=())

    whole, bare = (list(report(queue, HOUR, with_lives=lives).jobs()) for lives in (True, False))
    assert all(job.intervals for job in whole) and bare == list(map(without, whole))


def test_too_many_jobs_are_refused_before_they_are_replayed(queue: Told) -> None:
    done = []

    def few(jobs: int) -> None:
        if jobs > 2:
            raise ReportError(f"{jobs} are too many")

    with reading(queue.path) as connection:
        reader = LedgerReader(connection, NOON + HOUR)
        site = Site(NODES, "", 0, {}, {}, lambda _since: ())
        question = Question(NOON, NOON + HOUR, NOON)
        with pytest.raises(ReportError, match="3 are too many"):
            build(reader, question, site, lambda doing, _part: done.append(doing), few)
        build(reader, replace(question, jobs=("1", "2")), site, check=few)
    assert not any("replaying" in doing for doing in done)
