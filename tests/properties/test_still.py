"""Where time alone has changed nothing that a decision asks of it, slowdown decides as it did: the same replay."""

from __future__ import annotations

import math
from random import Random

import pytest
from properties.test_counting import DURATIONS

from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.hosts import NO_SLOWDOWN
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import _Replay, replay
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

CLUSTERS = (Cluster(3, 8, 8192), Cluster(8, 2, 2048), Cluster(1, 12, 6000))


def workload(seed: int, cluster: Cluster) -> list[Job]:
    """VMs of different sizes, of short and long jobs, on a cluster that is full now and then.

    Of every third workload some may not be preempted.
    """
    random = Random(seed)
    jobs, submit_s = [], 0
    for number in range(1, random.randint(15, 45)):
        submit_s += random.choice((0, 5, 60, 300, 900))
        run_s = random.choice((1, 30, 200, 1500, 6000))
        limit_s = random.choice((run_s, 2 * run_s + 30, 7200))
        width = random.choice((1, 1, 2, 3, 5, 12))
        memory_mib = random.choice((100, 300, 700, 1500))
        job = Job(number, submit_s, run_s, width, max(run_s, limit_s), memory_mib, number)
        jobs.append(job._replace(preemptible=seed % 3 < 2 or random.random() < 0.8))
    return fitting(jobs, cluster, Faults())


def replayed(seed: int, cluster: Cluster, slurm_priority: str, grows: float) -> Outcome:
    search = Search(time_limit_s=math.inf, deterministic_limit=0.02)
    values = DURATIONS | {"suspend_s_per_mib": grows, "resume_s_per_mib": grows}
    decision = Parameters(
        search=search,
        exempt_s=60.0,
        durations=SwitchDurations.from_values(values),
        slowdown=SlowdownParameters(max_delay=0.2, max_delay_s=1500.0, slurm_priority=slurm_priority),
    )
    proposal = ProposalParameters("slowdown", decision=decision, search=search, durations=Durations.from_values(values))
    return replay(workload(seed, cluster), cluster, ReplayParameters(proposal, slowdown=NO_SLOWDOWN))


@pytest.mark.parametrize(
    ("cluster", "slurm_priority", "grows"),
    [(CLUSTERS[0], "weight", 0.05), (CLUSTERS[1], "weight", 0.0), (CLUSTERS[2], "order", 0.01)],
    ids=lambda each: f"{each.nodes} nodes" if isinstance(each, Cluster) else None,
)
def test_where_nothing_but_time_has_changed_no_decision_would_be_another(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, slurm_priority: str, grows: float
) -> None:
    stands_still, skipped, made = _Replay._stands_still, [], []

    def checked(self: _Replay, now: float) -> bool:
        if not stands_still(self, now):
            made.append(now)
            return False
        skipped.append(now)
        before, stood = self._deciding.decisions, self._stood
        steps = list(self._switches.open_steps())
        found = self._deciding.find(self._assessor.assess(self._live.values(), steps, now).configuration)
        assert found is None and self._deciding.barred is not None, f"seed {seed}, at {now}"
        self._deciding.decisions, self._stood = before, stood
        return True

    monkeypatch.setattr(_Replay, "_stands_still", checked)
    for seed in range(6):
        replayed(seed, cluster, slurm_priority, grows)
    assert skipped and made, "nothing is skipped, or all"
