"""Replays with observed memory, of random workloads on clusters where memory is short."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

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

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.02)
CLUSTER = Cluster(3, 8, 4000)
POLICIES = ("load-sharing", "v-reconfiguration", "mixed")

#: A cycle, and a migration or a suspend of a few VMs beside others on the same nodes.
RELIEVED_S = 600.0


def workload(seed: int, knows_itself: bool = False) -> list[Job]:
    """Jobs of three users; ``knows_itself``: they use just what they request."""
    chance = random.Random(seed)
    jobs, submit_s = [], 0
    for number in range(1, 26):
        submit_s += chance.choice((0, 0, 30, 200))
        size_mib = chance.choice((500, 1200, 2000, 4000))
        used_mib = size_mib if knows_itself else max(1, round(size_mib * chance.choice((0.1, 0.3, 0.6, 1.0))))
        run_s = chance.choice((60, 400, 1500))
        user = chance.choice("abc")
        jobs.append(
            Job(number, submit_s, run_s, chance.choice((1, 1, 2)), 2 * run_s, size_mib, number, None, None, True, user)
        )
        jobs[-1] = jobs[-1]._replace(used_mib=used_mib)
    return jobs


def replayed(jobs: list[Job], policy: str, memory: MemoryParameters | None, exempt_s: float = 0.0) -> Outcome:
    decision = Parameters(search=SEARCH, exempt_s=exempt_s)
    proposal = ProposalParameters(policy, decision=decision, search=SEARCH)
    most_mib = None if memory is None else memory.planned_mib(4000)
    fit = fitting(jobs, CLUSTER, Faults(), most_mib)
    return replay(fit, CLUSTER, ReplayParameters(proposal, memory=memory))


@pytest.mark.parametrize("policy", POLICIES)
def test_who_uses_what_it_requests_has_the_same_replay_whether_memory_is_observed_or_not(policy: str) -> None:
    for seed in range(3):
        jobs = workload(seed, knows_itself=True)
        observed = replayed(jobs, policy, MemoryParameters(threshold=1.0, unknown=1.0))
        assert list(events_of(observed)) == list(events_of(replayed(jobs, policy, None))), seed


def shortages_s(outcome: Outcome) -> list[float]:
    """How long each node at a time held more than it has, by what VMs that have begun to run need."""
    changes: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for run in outcome.jobs:
        for node, begin_s, end_s in held(run):
            changes[node] += [(begin_s, CLUSTER.vm_used_mib(run.job)), (end_s, -CLUSTER.vm_used_mib(run.job))]
    found = []
    for of_node in changes.values():
        taken, since_s = 0, None
        for time_s, mib in sorted(of_node):
            taken += mib
            if taken > 4000 and since_s is None:
                since_s = time_s
            elif taken <= 4000 and since_s is not None:
                found.append(time_s - since_s)
                since_s = None
    return found


def held(run: JobRun) -> list[tuple[str, float, float]]:
    """Node, begin and end, for each VM and each stay; while it migrates it is where it leaves."""
    found = []
    holding = (VJobState.RUNNING, VJobState.SUSPENDING, VJobState.RESUMING, VJobState.STOPPING)
    for index in range(run.vms):
        for each in run.intervals:
            if each.state not in holding:
                continue
            begin_s = each.begin_s
            moves = [m for m in run.moves if index in m.moves and not m.failed and begin_s <= m.begin_s < each.end_s]
            for move in moves:
                found.append((move.moves[index][0], begin_s, move.end_s))
                begin_s = move.end_s
            if begin_s < each.end_s:
                found.append((each.nodes[index], begin_s, each.end_s))
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_all_jobs_end_and_no_node_is_short_for_longer_than_relief_takes(policy: str) -> None:
    short = suspended = 0
    for seed in range(6):
        memory = MemoryParameters(threshold=(0.8, 0.9, 1.0)[seed % 3], unknown=(0.1, 0.4)[seed % 2])
        outcome = replayed(workload(seed), policy, memory)
        assert not outcome.faults, seed
        lasted_s = shortages_s(outcome)
        assert max(lasted_s, default=0.0) <= RELIEVED_S, seed
        short += len(lasted_s)
        suspended += sum(run.suspends for run in outcome.jobs)
    assert short and suspended


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_input_gives_the_same_replay(policy: str) -> None:
    one, other = (replayed(workload(3), policy, MemoryParameters(unknown=0.1), exempt_s=300.0) for _ in range(2))
    assert list(events_of(one)) == list(events_of(other))
    assert one.notes == other.notes
