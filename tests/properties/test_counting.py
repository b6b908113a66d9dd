"""Where all VMs are alike, slowdown decided by counting is slowdown decided by packing: the same replay."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared
from rmsplugin.simulation import replay as module
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.counting import Counting
from rmsplugin.simulation.deciding import Deciding
from rmsplugin.simulation.hosts import NO_SLOWDOWN
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import _Replay, replay
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

K = OperationKind

#: A resume takes as long wherever it is: where VMs are alike, which of them go where is a matter of taste.
DURATIONS = dict(DEFAULTS) | {
    "suspend_s": 20.0,
    "suspend_s_per_mib": 0.0,
    "resume_s": 15.0,
    "resume_s_per_mib": 0.0,
    "remote_resume_s": 15.0,
    "remote_resume_s_per_mib": 0.0,
    "pipeline_s": 0.0,
}

CLUSTERS = (Cluster(8, 1, 1024), Cluster(4, 1, 4096, memory_per_vm_mib=512), Cluster(12, 1, 1000))


def workload(seed: int, cluster: Cluster) -> list[Job]:
    """Short and long jobs, narrow and wide ones, on a cluster that is full now and then; limits are wrong.

    Of every other workload many short ones come at once: a switch for one of them is made for all.
    """
    random = Random(seed)
    bursts = seed % 2 == 1
    jobs, submit_s = [], 0
    for number in range(1, random.randint(15, 50)):
        submit_s += random.choice((0, 5, 60, 300, 900))
        run_s = random.choice((1, 30, 200, 1500, 6000))
        limit_s = random.choice((run_s, 2 * run_s + 30, 7200))
        width = random.choice((1, 1, 2, 3, 5, cluster.nodes))
        if bursts and number % 12 > 4:
            submit_s, run_s, limit_s, width = jobs[-1].submit_s + 1, random.choice((5, 20)), 60, 1
        jobs.append(Job(number, submit_s, run_s, width, max(run_s, limit_s), None, number))
    # Nobody knows whose some are; one user has most.
    users = Random(seed).choices(("ann", "ann", "ben", "cy", ""), k=len(jobs))
    jobs = [job._replace(user=user) for job, user in zip(jobs, users, strict=True)]
    return fitting(jobs, cluster, Faults())


def replayed(seed: int, cluster: Cluster, slurm_priority: str, share: float = 1.0, share_s: float = 0.0) -> Outcome:
    search = Search(time_limit_s=math.inf, deterministic_limit=0.05)
    decision = Parameters(
        search=search,
        exempt_s=60.0,
        durations=SwitchDurations.from_values(DURATIONS),
        slowdown=SlowdownParameters(
            max_delay=0.2, max_delay_s=1500.0, slurm_priority=slurm_priority, user_share=share, user_share_s=share_s
        ),
    )
    proposal = ProposalParameters(
        "slowdown", decision=decision, search=search, durations=Durations.from_values(DURATIONS)
    )
    return replay(workload(seed, cluster), cluster, ReplayParameters(proposal, slowdown=NO_SLOWDOWN))


#: What one decision does: the operation by vjob.
Done = dict[str, OperationKind]


def compared(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *asked: object, seeds: Iterable[int]
) -> Iterator[tuple[list[Done], list[Done]]]:
    """What each decision of some replays does by counting, and by packing, which is carried out."""
    counted: list[Done] = []
    packed: list[Done] = []
    counting, find = Counting.find, Deciding.find

    def both(self: Counting, *arguments: object) -> tuple[list[SimulatedVJob], list[SimulatedVJob]]:
        goes, starts = counting(self, *arguments)
        begins = {v.name: K.RESUME if v.state is VJobState.SLEEPING else K.START for v in starts}
        counted.append({v.name: K.SUSPEND for v in goes} | begins)
        raise Packing

    def packing(self: _Replay, by: Counting, now: float) -> None:
        with contextlib.suppress(Packing):
            carry_out(self, by, now)

    def recorded(self: Deciding, source: Configuration) -> Prepared | None:
        found = find(self, source)
        if len(packed) < len(counted):  # else it was no matter of counting
            packed.append({} if found is None else {step.vjob: step.kind for step in found.steps})
        return found

    carry_out = _Replay._counted
    for seed in seeds:
        counted.clear()
        packed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Counting, "find", both)
            patch.setattr(_Replay, "_counted", packing)
            patch.setattr(Deciding, "find", recorded)
            patch.setattr(_Replay, "_stands_still", lambda *_: False)  # packing is asked each time
            replayed(seed, cluster, *asked)
        yield list(counted), list(packed)


@pytest.mark.parametrize("slurm_priority", ["weight", "order"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda each: f"{each.nodes} nodes")
def test_counting_decides_as_packing_does(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, slurm_priority: str, whole: bool
) -> None:
    make_way, seeds = 0, range(5 if whole else 2)
    for seed, (counted, packed) in zip(seeds, compared(monkeypatch, cluster, slurm_priority, seeds=seeds), strict=True):
        assert counted == packed, f"seed {seed}"
        make_way += sum(K.SUSPEND in done.values() for done in packed)
    assert make_way > 3, "hardly anybody made way: nothing is compared"


@pytest.mark.parametrize(
    ("slurm_priority", "share", "share_s"), [("weight", 0.3, 0.0), ("order", 0.3, 200.0), ("weight", 0.55, 100.0)]
)
def test_counting_decides_as_packing_does_where_users_have_shares(
    monkeypatch: pytest.MonkeyPatch, slurm_priority: str, share: float, share_s: float, whole: bool
) -> None:
    """CI replays one workload on each cluster, in turn one without bursts and one with them."""
    beyond, tried = 0, 0
    for number, cluster in enumerate(CLUSTERS, slurm_priority == "order"):
        asked, seeds = (slurm_priority, share, share_s), range(3) if whole else (number % 2,)
        for seed, (counted, packed) in zip(seeds, compared(monkeypatch, cluster, *asked, seeds=seeds), strict=True):
            assert len(counted) > 10 and counted == packed, f"{cluster.nodes} nodes, seed {seed}"
            beyond += sum(K.SUSPEND in done.values() for done in packed)
            tried += 1
    assert beyond > 2.3 * tried, "hardly anybody made way: nothing is compared"


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda each: f"{each.nodes} nodes")
def test_where_time_alone_changes_nothing_nothing_is_missed(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, whole: bool
) -> None:
    fewer = 0
    for seed in range(40 if whole else 10):
        skipping = replayed(seed, cluster, "weight")
        with monkeypatch.context() as patch:
            patch.setattr(Counting, "_quiet_for_s", lambda *_: 0.0)
            looking = replayed(seed, cluster, "weight")
        assert skipping.jobs == looking.jobs, f"seed {seed}"
        fewer += looking.decisions - skipping.decisions
    assert fewer > 100, "nothing is skipped"


def test_counting_carries_out_what_packing_would(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Which node a VM comes to is a matter of taste, and with it when a step can begin: on average nothing changes."""
    by_counting, by_packing = [], []
    for seed in range(12 if whole else 6):
        by_counting += [run.end_s - run.job.submit_s for run in replayed(seed, CLUSTERS[0], "weight").jobs]
        with monkeypatch.context() as patch:
            patch.setattr(module, "places_of", lambda jobs, cluster: None)
            by_packing += [run.end_s - run.job.submit_s for run in replayed(seed, CLUSTERS[0], "weight").jobs]
    assert sum(by_counting) == pytest.approx(sum(by_packing), rel=0.01)


class Packing(Exception):
    """What was counted is known; the replay goes on by packing."""
