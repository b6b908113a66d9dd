"""Plans of random small clusters beside all plans that there are: no false bound, no false optimum, none that fails.

``contrib/run-campaign plans --instances 20000 --seed 1``: see the developer guide.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from properties.exhaustive import Problem, TooLargeError, cheapest_cost_below

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    paused_on,
    running_on,
    sleeping_on,
    state_of,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.validation import LEGAL_TARGETS
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.pausing import reduced
from rmsplugin.planning.target import placement
from rmsplugin.planning.target.keep import bound_of, keep_all, keep_at_ease
from rmsplugin.planning.target.placement import Objective
from rmsplugin.planning.target.replacement import Replacement, replacement
from rmsplugin.planning.target.waits import waits_mib
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal
from rmsplugin.proposing.propose import propose_for

#: A second of the planner each time, in its own units, so that the same seed says the same on any machine.
SEARCH = Search(time_limit_s=3600, deterministic_limit=1.0)
DECIDING = Parameters(search=Search(time_limit_s=3600, deterministic_limit=0.5), exempt_s=0.0, patience_s=0.0)

#: MiB and CPUs: small numbers, so that nodes fill up exactly; some nobody can divide.
MEMORY_MIB = ((0, 1, 1, 2, 2, 3, 4), (1, 2, 4), (512, 1024, 2048), (301, 777, 1310), (0, 1, 1000))
CPUS = ((0, 1), (0, 0.5, 1), (0.25, 0.33, 0.5, 1), (0.05, 1, 1.5))


_ANY = (VMState.RUNNING,) * 3 + (VMState.SLEEPING,) * 2 + (VMState.WAITING,)

#: By kind of instance: what the first vjob of the queue may do, the second, and all others.
_STATES = (
    (_ANY, _ANY, _ANY),
    ((VMState.SLEEPING,), _ANY, _ANY),
    ((VMState.SLEEPING,), (VMState.RUNNING,), _ANY),
)


def instance(seed: int) -> tuple[Configuration, str, bool]:
    """A small cluster in any state, a policy, and whether states lie on shared storage.

    A third are of any kind; in a third nodes are crowded, and a vjob of several VMs sleeps at the head of the queue; in
    a third one of as many VMs as there are nodes sleeps there, which run into those of one that runs.
    """
    chance = Random(seed)
    kind = seed % 3
    cpus, memory = chance.choice(CPUS), chance.choice(MEMORY_MIB)
    if kind == 2:
        cpus, memory = CPUS[0], chance.choice((MEMORY_MIB[0], MEMORY_MIB[0], MEMORY_MIB[1], (0, 1, 2, 4)))
    nodes = _nodes(chance, memory) if kind == 0 else _crowded_nodes(chance, memory, kind == 2)
    free = {node.name: node.capacity.memory_mib for node in nodes}
    there = [node.name for node in nodes if node.state is not NodeState.DOWN]
    queue: list[VJob] = []
    locations: dict[str, Location] = {}
    for number in range(2 if kind == 2 else chance.randint(2, 5)):
        count = len(nodes) if kind == 2 else chance.choice((1, 1, 2, 2, 3) if kind == 0 else (2, 3, 3))
        count = min(count, 7 - len(locations))
        if count <= 0:
            break
        sizes = [
            Resources(1 if kind == 2 and number == 0 else chance.choice(cpus), chance.choice(memory))
            for _ in range(count)
        ]
        vms = tuple(VM(f"v{number}-{i}", size) for i, size in enumerate(sizes))
        found = _places(chance, vms, there, free, _STATES[kind][min(number, 2)])
        queue.append(_vjob(chance, f"j{number}", vms, found, there))
        locations |= found
    policy = chance.choice(sorted(POLICIES)) if chance.random() < 0.4 else "rjsp"
    return Configuration(nodes, tuple(queue), locations), policy, chance.random() < 0.15


def paused_instance(seed: int) -> tuple[Configuration, str, bool, float]:
    """The same with some of those that run or sleep paused, some to be paused, and for how long a vjob may be."""
    source, policy, shared = instance(seed)
    chance = Random(f"pauses {seed}")
    locations, queue = dict(source.locations), []
    for vjob in source.vjobs:
        runs = source.state(vjob) is VJobState.RUNNING
        if runs and chance.random() < 0.5:
            locations |= {vm.name: paused_on(locations[vm.name].node or "") for vm in vjob.vms}
        elif source.state(vjob) is VJobState.SLEEPING and chance.random() < 0.7:
            locations |= _in_memory(chance, Configuration(source.nodes, source.vjobs, locations), vjob)
        if runs and vjob.preemptible and chance.random() < 0.25:
            queue.append(replace(vjob, target=VJobState.PAUSED))
        else:
            queue.append(vjob)
    limit_s = chance.choice((0.0, 500.0, math.inf, math.inf))
    return Configuration(source.nodes, tuple(queue), locations), policy, shared, limit_s


def _in_memory(chance: Random, source: Configuration, vjob: VJob) -> dict[str, Location]:
    """Places in memory for all VMs of a vjob; none if there is no room."""
    left = {node.name: source.free(node.name).memory_mib for node in source.nodes if node.state is not NodeState.DOWN}
    found: dict[str, Location] = {}
    for vm in vjob.vms:
        hosts = [name for name, memory_mib in left.items() if memory_mib >= vm.demand.memory_mib]
        if not hosts:
            return {}
        host = chance.choice(hosts)
        left[host] -= vm.demand.memory_mib
        found[vm.name] = paused_on(host)
    return found


def _nodes(chance: Random, memory: tuple[int, ...]) -> tuple[Node, ...]:
    """2 to 4 nodes of any size and state; at least one is up."""
    found = []
    for number in range(chance.randint(2, 4)):
        size = chance.choice((1, 1, 2)) * max(memory) + chance.choice((0, 0, min(memory)))
        found.append(Node(f"n{number}", Resources(chance.choice((1, 1, 2, 3)), size), _state(chance, number)))
    return tuple(found)


def _crowded_nodes(chance: Random, memory: tuple[int, ...], one_each: bool) -> tuple[Node, ...]:
    """2 to 4 equal nodes that are nearly full when a few VMs are there."""
    size = Resources(1 if one_each else chance.choice((1, 2, 2, 3)), max(memory) + chance.choice((0, 0, *memory)))
    count = chance.choice((2, 3, 3)) if one_each else chance.randint(2, 4)
    return tuple(Node(f"n{number}", size, _state(chance, number, 0.95)) for number in range(count))


def _vjob(chance: Random, name: str, vms: tuple[VM, ...], found: dict[str, Location], there: list[str]) -> VJob:
    preemptible = chance.random() < 0.85
    only = frozenset(chance.sample(there, chance.randint(1, len(there)))) if chance.random() < 0.12 else None
    exclude = frozenset(chance.sample(there, 1)) if chance.random() < 0.08 and len(there) > 1 else frozenset[str]()
    return VJob(
        name,
        vms,
        preemptible=preemptible,
        rules=allowing(only, exclude),
        state_s=chance.choice((None, 0.0, 1e6)),
        target=_target(chance, state_of(VJob("", vms), found), preemptible),
    )


def _state(chance: Random, number: int, up: float = 0.85) -> NodeState:
    if number == 0 or chance.random() < up:
        return NodeState.UP
    return chance.choice((NodeState.DRAINING, NodeState.DRAINING, NodeState.DOWN))


def _places(
    chance: Random, vms: tuple[VM, ...], there: list[str], free: dict[str, int], states: tuple[VMState, ...]
) -> dict[str, Location]:
    """All of a vjob run, sleep or wait: of one whose VMs differ the engine decides nothing."""
    state = chance.choice(states)
    left, found = dict(free), dict[str, Location]()
    for vm in vms:
        hosts = [name for name in there if left[name] >= vm.demand.memory_mib]
        if state is VMState.RUNNING and not hosts:
            return dict.fromkeys((vm.name for vm in vms), WAITING)
        if state is VMState.RUNNING:
            host = chance.choice(hosts)
            left[host] -= vm.demand.memory_mib
            found[vm.name] = running_on(host)
        else:
            asleep = sleeping_on(chance.choice((*there, *there, SHARED)))
            found[vm.name] = WAITING if state is VMState.WAITING else asleep
    free.update(left)
    return found


def _target(chance: Random, now: VJobState, preemptible: bool) -> VJobState | None:
    """Now and then what a vjob is to be."""
    if chance.random() < 0.85:
        return None
    legal = sorted(LEGAL_TARGETS[now] - {VJobState.PAUSED})
    return chance.choice([each for each in legal if preemptible or each is not VJobState.SLEEPING])


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found of one instance; ``faults``: sentences."""

    seed: int
    faults: tuple[str, ...] = ()
    is_decided: bool = True
    proven: bool = False
    has_plan: bool = False
    is_compared: bool = False
    could_be_cheaper: bool = False  # and was not said to be proven


def examine(seed: int, most: int = 300_000, pauses: bool = False) -> Examined:
    """Decide, place and plan for one instance, and look for a cheaper plan."""
    source, policy, shared, limit_s = paused_instance(seed) if pauses else (*instance(seed), 0.0)
    objective: Objective = "nodes" if seed % 10 == 9 else "cost"
    deciding = replace(DECIDING, pause_limit_s=limit_s)
    decision = decide_with_pauses(policy, source, deciding)
    parameters = ProposalParameters(policy, objective=objective, decision=deciding, search=SEARCH, shared_store=shared)
    proposal = propose_for(source, decision, parameters)
    if isinstance(proposal, NoProposal) or not isinstance(decision, Decision):
        fault = "" if not isinstance(decision, Decision) else f"no plan: {proposal}"
        return Examined(seed, tuple(filter(None, [fault])), is_decided=False)
    faults = check(source, proposal)
    cost, bound = proposal.plan.cost, proposal.lower_bound
    most_nodes = proposal.nodes_used if objective == "nodes" else None
    problem = Problem(source, decision.states, proposal.target, decision.placement, shared, most_nodes)
    if not proposal.nodes_lower_bound <= problem.fewest_nodes <= proposal.nodes_used:
        faults.append(f"{problem.fewest_nodes} nodes are the fewest, and not {proposal.nodes_lower_bound} or more")
    proven, has_plan = cost == bound, bool(proposal.plan.pools)
    try:
        cheaper = cheapest_cost_below(problem, cost, most)
    except TooLargeError:
        return Examined(seed, tuple(faults), True, proven, has_plan)
    least = cost if cheaper is None else cheaper
    without = reduced(source, decision.states)
    small, states = (source, decision.states) if without is None else (without.source, without.states)
    quick = quick_bound(replacement(small, states, decision.placement, shared))
    for name, each in (("proven optimal" if proven else "the bound", bound), ("the bound without a search", quick)):
        if each > least:
            faults.append(f"{name}: {each}, and {least} exists ({policy})")
    return Examined(seed, tuple(faults), True, proven, has_plan, True, cheaper is not None)


def quick_bound(problem: Replacement) -> int:
    """What is proven before anything is searched."""
    at_ease = bound_of(problem, keep_at_ease(problem)) + waits_mib(problem)
    return max(bound_of(problem, keep_all(problem)), at_ease)


def as_larger() -> None:
    """Plan from now on as for clusters that are too large for the exact search."""
    placement.settle = lambda *_: 0
    placement.reorder = lambda *_: None


def main() -> int:
    """Examine the instances that are asked for; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="run-campaign plans", description=__doc__)
    parser.add_argument("--instances", type=int, default=2000, help="how many (2000)")
    parser.add_argument("--seed", type=int, default=1, help="instances of other seeds are others (1)")
    parser.add_argument("--steps", type=int, default=300_000, help="of the search, after which it is given up (300000)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one a CPU)")
    parser.add_argument("--as-larger", action="store_true", help="without the exact search that small plans have")
    parser.add_argument("--pauses", action="store_true", help="with vjobs that are paused, or shall be")
    options = parser.parse_args()
    figures: Counter[str] = Counter()
    first = options.seed * 1_000_003
    seeds = ((first + number, options.steps, options.pauses) for number in range(options.instances))
    with multiprocessing.Pool(options.workers, initializer=as_larger if options.as_larger else None) as pool:
        for found in pool.imap_unordered(_examined, seeds, chunksize=20):
            figures["instances"] += 1
            figures["of them without a decision"] += not found.is_decided
            figures["with a plan of any action"] += found.has_plan
            figures["too large to compare"] += found.is_decided and not found.is_compared
            figures["not proven optimal"] += not found.proven and found.has_plan
            figures["not proven, and dearer than the cheapest"] += found.could_be_cheaper
            figures["wrong"] += bool(found.faults)
            for fault in found.faults:
                print(f"instance {found.seed}: {fault}", flush=True)
            if figures["instances"] % 1000 == 0:
                print(", ".join(f"{name}: {count}" for name, count in figures.items()), flush=True)
    print(", ".join(f"{name}: {count}" for name, count in figures.items()))
    return 1 if figures["wrong"] else 0


def _examined(question: tuple[int, int, bool]) -> Examined:
    return examine(*question)


if __name__ == "__main__":
    sys.exit(main())
