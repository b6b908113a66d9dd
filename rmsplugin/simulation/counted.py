"""Counted: where all VMs are alike, what fits is a matter of numbers: whom of the queue a decision can reach.

A node then has places, each for whichever VM, and packing is counting: a vjob finds room if no more VMs than places are
left. So most decisions that would change nothing need not be made, and of a long queue most need not be looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rmsplugin.assessment.facts import VMFacts
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.capacity import Cluster, interchangeable
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.jobs import Job


def places_of(jobs: Sequence[Job], cluster: Cluster) -> int | None:
    """How many VMs each node hosts, whichever of the jobs they are of; None if that depends, or some have to stay."""
    if not all(job.preemptible for job in jobs):
        return None
    places = interchangeable(jobs, cluster)
    return None if places is None else places // cluster.nodes


def places_left(nodes: int, places: int, transit: Iterable[VMFacts], settled: Iterable[SimulatedVJob]) -> int | None:
    """How many places are left beside what VMs in transit hold, as ``rmsplugin.assessment.settled`` has it.

    What is given back by one and promised to another is there twice.

    Args:
        nodes: how many there are.
        places: on each.
        transit: VMs of vjobs about which nothing is decided.
        settled: all others that run.

    Returns:
        None where that is no matter of counting: VMs that go share CPUs with those that have come already.
    """
    taken, goes = taken_by(transit)
    if goes:
        here = Counter(node for vjob in settled for node in vjob.hosts.values() if node in goes)
        if any(taken[node] + here[node] > places for node in goes):
            return None
    return nodes * places - taken.total()


def taken_by(transit: Iterable[VMFacts]) -> tuple[Counter[str], Counter[str]]:
    """How many places VMs in transit hold on each node, and how many of these they give back there.

    What is given back by one and promised to another is held once.
    """
    taken: Counter[str] = Counter()
    goes: Counter[str] = Counter()
    comes: Counter[str] = Counter()
    for vm in transit:
        then = vm.holds if vm.will_hold is None else vm.will_hold
        taken.update(then)
        goes.update(vm.holds - then)
        comes.update(then - vm.holds)
    for node, count in goes.items():
        taken[node] += count - min(count, comes[node])
    return taken, goes


@dataclass(frozen=True, slots=True)
class Held:
    """What vjobs hold about which nothing is decided, as ``rmsplugin.assessment.settled`` has it.

    Attributes:
        of_users: of whom, and what: of each vjob, in the order of the queue, for each node on which it stays.
        twice: what is given back by one and promised to another is there twice.
    """

    of_users: Sequence[tuple[str, Resources]]
    twice: Resources

    @classmethod
    def by(cls, transit: Iterable[tuple[str, Iterable[VMFacts]]]) -> Held:
        """Sum up what the VMs of vjobs hold: of each its user, and its VMs."""
        of_users: list[tuple[str, Resources]] = []
        back: dict[str, Resources] = {}
        promised: dict[str, Resources] = {}
        for user, vms in transit:
            stay: dict[str, Resources] = {}
            for vm in vms:
                then, demand = vm.holds if vm.will_hold is None else vm.will_hold, vm.vm.demand
                for node in then:
                    stay[node] = stay.get(node, NOTHING) + demand
                for node in then - vm.holds:
                    promised[node] = promised.get(node, NOTHING) + demand
                for node in vm.holds - then:
                    back[node] = back.get(node, NOTHING) + demand
            of_users += [(user, demand) for _, demand in sorted(stay.items())]
        twice = NOTHING
        for node in back.keys() & promised.keys():
            one, other = back[node], promised[node]
            twice += Resources(min(one.cpus, other.cpus), min(one.memory_mib, other.memory_mib))
        return cls(of_users, twice)


#: Nothing is under way.
NOTHING_HELD = Held((), NOTHING)


def reached(
    queue: Iterable[SimulatedVJob], transit: Collection[SimulatedVJob], left: int
) -> tuple[list[SimulatedVJob], bool]:
    """Who of the queue runs if whoever finds room beside those ahead of it does, and all who do not wait.

    Args:
        queue: head first.
        transit: those of them about which nothing is decided.
        left: places for the others.

    Returns:
        These, in order; and whether anybody of them is ready and finds room. If nobody is, no policy changes anything,
        for none suspends one for another behind it.
    """
    found, starts = [], False
    for vjob in queue:
        if vjob not in transit:
            fits = len(vjob.names) <= left
            if fits:
                left -= len(vjob.names)
                starts |= vjob.state is not VJobState.RUNNING
            elif vjob.state is VJobState.WAITING:
                continue
        found.append(vjob)
    return found, starts
