"""No instant of a replay breaks a placement rule: looked at by code that shares nothing with those who keep them."""

from __future__ import annotations

import math
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from random import Random

import pytest

from rmsplugin.cli.simulate.replayed_rules import ReplayedRules
from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.policy_names import POLICIES
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings.rules import PlacementRule
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.outcome import JobRun, Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.simulation.runnable import runnable
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

S = VJobState
CLUSTER = Cluster(nodes=4, cpus_per_node=2, memory_per_node_mib=4096)
IN_MEMORY = {S.STARTING, S.RUNNING, S.PAUSING, S.PAUSED, S.UNPAUSING, S.SUSPENDING, S.RESUMING, S.STOPPING}

#: By name, a rule in the words of the settings; ``breaks`` says what each means.
RULES = {
    "apart": 'kind = "spread"\nusers = ["1"]\nper = "vjob"',
    "near": 'kind = "gather"\nusers = ["3"]\nper = "vjob"',
    "rivals": 'kind = "split"\nusers = ["1", "2"]\nper = "user"',
    "few": 'kind = "capacity"\nusers = ["2"]\nnodes = "n[1-2]"\nmost = 2',
    "alone": 'kind = "lonely"\nusers = ["3"]',
    "home": 'kind = "fence"\nusers = ["2"]\nnodes = "n[1-3]"',
    "off": 'kind = "ban"\nusers = ["1"]\nnodes = "n4"',
    "stay": 'kind = "root"\nusers = ["2"]',
    "quiet": 'kind = "online"\nmost = 3',
    "kept": 'kind = "reserve"\nnodes = "n2"\ncpus = 1\nmemory_mib = 1024',
}

#: A VM (job, user, index) and a node where it has memory.
Place = tuple[int, str, int, str]


SWITCHES = (frozenset({"n1", "n2"}), frozenset({"n3"}))  # n4 is one by itself


def rules_of(names: Collection[str]) -> ReplayedRules:
    rules = {name: PlacementRule(**tomllib.loads(RULES[name])) for name in names}
    return ReplayedRules(rules, CLUSTER.node_names, SWITCHES)


@cache
def replayed(policy: str, seed: int, wishing: bool = False) -> tuple[tuple[str, ...], Outcome]:
    """Jobs that are in each other's way, of three users, under three rules; or under the wishes of their users."""
    random = Random(seed)
    names = () if wishing else tuple(random.sample(sorted(RULES), 3))
    jobs, submit_s = [], 0
    for number in range(1, 8):
        submit_s += random.choice((0, 20, 200))
        run_s, vms = random.choice((100, 700, 1500)), random.randint(1, 3)
        memory_mib, user = random.choice((512, 1500)), str(random.randint(1, 3))
        jobs.append(Job(number, submit_s, run_s, vms, 2 * run_s, memory_mib, number, user=user))
    if wishing:
        jobs = [wish(job, random) for job in jobs]
    search = Search(time_limit_s=math.inf, deterministic_limit=0.01)
    decision = Parameters(search=search, exempt_s=0.0, patience_s=600.0)
    rules = rules_of(names)
    proposal = ProposalParameters(policy, decision=decision, search=search)
    parameters = ReplayParameters(proposal, failure_rate=random.choice((0.0, 0.3)), seed=seed, rules=rules)
    left = runnable(fitting(jobs, CLUSTER, Faults()), CLUSTER, rules, Faults(), decision)
    return names, replay(left, CLUSTER, parameters)


def wish(job: Job, random: Random) -> Job:
    """The job with what its user may ask for."""
    wishes = random.choice(((), (), ("spread",), ("alone",), ("exclusive",), ("alone", "spread")))
    return job._replace(wishes=frozenset(wishes), switches=random.choice((0, 1, 1, 2)))


def places(run: JobRun, now: float) -> Iterator[Place]:
    """Where a job's VMs have memory: at both ends of a migration."""
    for each in run.intervals:
        if not each.begin_s <= now < each.end_s or each.state not in IN_MEMORY:
            continue
        nodes = [{node} for node in each.nodes]
        for move in reversed(run.moves):  # of two moves of a VM that are still to come, the first says where it is
            for vm, (source, destination) in move.moves.items():
                if move.begin_s <= now < move.end_s:
                    nodes[vm] = {source, destination}
                elif not move.failed and now < move.begin_s < each.end_s and each.begin_s <= move.begin_s:
                    nodes[vm] = {source}
        yield from ((run.job.job_id, run.job.user, vm, node) for vm, at in enumerate(nodes) for node in sorted(at))


def breaks(name: str, held: Collection[Place]) -> bool:
    """Whether VMs at these places break one of the rules above, in the plainest words."""
    users_on, vms_on, of_job = defaultdict(set), defaultdict(list), defaultdict(set)
    for job, user, vm, node in held:
        users_on[node].add(user)
        vms_on[node].append((job, user, vm))
        of_job[job, user].add(node)
    match name:
        case "apart":
            return any(sum(vm[:2] == (job, "1") for vm in here) > 1 for here in vms_on.values() for job, _, _ in here)
        case "near":
            return any(user == "3" and len(nodes) > 1 for (_, user), nodes in of_job.items())
        case "rivals":
            return any({"1", "2"} <= users for users in users_on.values())
        case "few":
            return len({(job, vm) for job, user, vm, node in held if user == "2" and node in ("n1", "n2")}) > 2
        case "alone":
            return any("3" in users and len(users) > 1 for users in users_on.values())
        case "home":
            return any(user == "2" and node == "n4" for _, user, _, node in held)
        case "off":
            return any(user == "1" and node == "n4" for _, user, _, node in held)
        case "quiet":
            return len(vms_on) > 3
    raise AssertionError(name)


def instants(outcome: Outcome) -> list[float]:
    """The times at which anything begins or ends."""
    found = {time for run in outcome.jobs for each in run.intervals for time in (each.begin_s, each.end_s)}
    found |= {time for run in outcome.jobs for each in run.moves for time in (each.begin_s, each.end_s)}
    assert found
    return sorted(found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_no_instant_of_a_replay_breaks_a_rule(policy: str, seed: int) -> None:
    names, outcome = replayed(policy, seed)
    for now in instants(outcome):
        held = [place for run in outcome.jobs for place in places(run, now)]
        for name in names:
            if name == "stay":
                assert not any(run.moves for run in outcome.jobs if run.job.user == "2")
            elif name == "kept":
                memory_mib = sum(outcome_memory(outcome, job) for job, _, _, node in held if node == "n2")
                assert memory_mib <= 3072, (now, held)
            else:
                assert not breaks(name, held), (name, now, held)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_no_instant_of_a_replay_is_against_a_wish(policy: str, seed: int) -> None:
    _, outcome = replayed(policy, seed, wishing=True)
    assert any(run.job.wishing for run in outcome.jobs)
    for now in instants(outcome):
        held = [place for run in outcome.jobs for place in places(run, now)]
        for run in outcome.jobs:
            assert not refused(run.job, held), (run.job, now, held)


def refused(job: Job, held: Collection[Place]) -> bool:
    """Whether VMs at these places are against the wishes of one job's user, in the plainest words."""
    own = [place for place in held if place[0] == job.job_id]
    here = {node for *_, node in own}
    beside = [place for place in held if place[3] in here and place[0] != job.job_id]
    switches = {next((each for each in SWITCHES if node in each), node) for node in here}
    # While one of as many VMs migrates, it may be on a switch more.
    if 0 < job.switches < job.processors and len(switches) > job.switches:
        return True
    if "spread" in job.wishes and any(a[2] != b[2] and a[3] == b[3] for a in own for b in own):
        return True
    if "exclusive" in job.wishes and any(place[1] != job.user for place in beside):
        return True
    return "alone" in job.wishes and bool(beside)


def outcome_memory(outcome: Outcome, job_id: int) -> int:
    return next(run.job.memory_mib or 0 for run in outcome.jobs if run.job.job_id == job_id)
