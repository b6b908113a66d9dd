"""Where all VMs are alike, counting reaches whom packing reaches: the same replay, whatever counting leaves out."""

from __future__ import annotations

import math
from random import Random

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation import replay as module
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.deciding import Deciding
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

POLICIES = ("fcfs", "easy", "easy-preempt", "rjsp", "rjsp-exact", "mixed", "load-sharing", "v-reconfiguration")

#: CPUs and memory are short alike; only CPUs are; only memory is; and VMs of two CPUs.
CLUSTERS = (
    Cluster(6, 1, 1024),
    Cluster(3, 2, 4096, memory_per_vm_mib=512),
    Cluster(4, 4, 3000, memory_per_vm_mib=1000),
    Cluster(3, 5, 4096, cpus_per_vm=2),
)


def workload(seed: int, cluster: Cluster) -> list[Job]:
    """Jobs of which a few run at once, and the others queue."""
    random = Random(seed)
    jobs, submit_s = [], 0
    for number in range(1, random.randint(8, 25)):
        submit_s += random.choice((0, 10, 60, 400))
        run_s = random.choice((1, 40, 300, 2500))
        jobs.append(Job(number, submit_s, run_s, random.randint(1, 12), 2 * run_s, None, number))
    return fitting(jobs, cluster, Faults())


def replayed(policy: str, seed: int, cluster: Cluster) -> Outcome:
    search = Search(time_limit_s=math.inf, deterministic_limit=0.01)
    decision = Parameters(search=search, exempt_s=60.0, patience_s=600.0)
    proposal = ProposalParameters(policy, decision=decision, search=search)
    return replay(workload(seed, cluster), cluster, ReplayParameters(proposal))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda each: f"{each.cpus_per_node} CPUs")
def test_what_counting_leaves_out_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, policy: str, cluster: Cluster
) -> None:
    for seed in range(3):
        counted = replayed(policy, seed, cluster)
        with monkeypatch.context() as patch:
            patch.setattr(module, "places_of", lambda jobs, cluster: None)
            assert replayed(policy, seed, cluster) == counted


def test_most_decisions_need_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    find = Deciding.find
    monkeypatch.setattr(Deciding, "find", lambda self, source: made.append(len(source.vjobs)) or find(self, source))
    cluster = Cluster(6, 1, 1024)
    outcome = replayed("rjsp", 3, cluster)
    switches, few = len(outcome.switches), len(made)
    monkeypatch.setattr(module, "places_of", lambda jobs, cluster: None)
    made.clear()
    replayed("rjsp", 3, cluster)
    assert few < len(made) == outcome.decisions
    assert few <= 2 * switches
