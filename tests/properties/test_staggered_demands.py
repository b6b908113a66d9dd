"""Vjobs that begin to compute one VM after the other: a vjob with room in the end is never suspended on the way there.

While one is moved or suspended, its VMs hold CPUs that will be free in a moment; nobody may sleep for these.
"""

from __future__ import annotations

import math
from random import Random

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.activity import Activity, Phase
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

IDLE_S = 300.0

#: In the first nine of these somebody slept needlessly until decisions looked at what is under way.
SEEDS = (6, 11, 69, 104, 106, 175, 251, 285, *range(300, 316))


def sizes_of(random: Random, cpus: int) -> list[int]:
    """Of vjobs that all have room, up to the last, which has not."""
    sizes: list[int] = []
    while sum(sizes) <= cpus:
        sizes.append(random.randint(1, 4))
    return sizes


def one_after_the_other(random: Random, vms: int, within_s: float) -> Activity:
    """Idle at first; then VM after VM begins to compute."""
    cpus = [0.0] * vms
    phases, begun_s = [], 0.0
    for at_s, vm in sorted((IDLE_S + random.uniform(0, within_s), vm) for vm in range(vms)):
        phases.append(Phase(at_s - begun_s, tuple(cpus)))
        cpus[vm], begun_s = 1.0, at_s
    return (*phases, Phase(600.0, (1.0,)))


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_last_in_the_queue_makes_way(seed: int) -> None:
    random = Random(seed)
    nodes = random.randint(2, 6)
    cluster = Cluster(nodes=nodes, cpus_per_node=2, memory_per_node_mib=2048)
    sizes = dict(enumerate(sizes_of(random, 2 * nodes), start=1))
    within_s = random.choice((2.0, 10.0, 30.0, 60.0))
    search = Search(time_limit_s=math.inf, deterministic_limit=0.05)
    decision = Parameters(search=search, exempt_s=10.0)
    parameters = ReplayParameters(
        ProposalParameters("mixed", decision=decision, search=search),
        cycle_s=1.0,
        seed=seed,
        activity={number: one_after_the_other(random, vms, within_s) for number, vms in sizes.items()},
        window_s=6.0,
    )
    jobs = [Job(number, 0, 1000, vms, 4000, 224, number) for number, vms in sizes.items()]
    outcome = replay(fitting(jobs, cluster, Faults()), cluster, parameters)
    suspends = [sum(each.state is VJobState.SUSPENDING for each in run.intervals) for run in outcome.jobs]
    assert suspends == [*[0] * (len(jobs) - 1), 1]
