"""Counted: where all VMs are alike, numbers alone tell what fits, and which vjobs of the queue a decision can reach.

A node then has places, each for any VM, and packing is counting: a vjob finds room if it has no more VMs than places
are left. So most decisions that would change nothing need not be made, and most of a long queue need not be looked at.
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
    """The number of VMs that each node hosts; None if it depends on the VMs' jobs, or some VMs have to stay."""
    if not all(job.preemptible for job in jobs):
        return None
    places = interchangeable(jobs, cluster)
    return None if places is None else places // cluster.nodes


def places_left(nodes: int, places: int, transit: Iterable[VMFacts], settled: Iterable[SimulatedVJob]) -> int | None:
    """The number of places left beside those that VMs in transit hold, as ``rmsplugin.assessment.settled`` has it.

    A place that one VM gives back and that is promised to another counts twice.

    Args:
        nodes: the number of nodes.
        places: the places of each node.
        transit: VMs of vjobs about which nothing is decided.
        settled: all other VMs that run.

    Returns:
        The places; None where counting does not tell: VMs that leave share CPUs with VMs that have come already.
    """
    taken, goes = taken_by(transit)
    if goes:
        here = Counter(node for vjob in settled for node in vjob.hosts.values() if node in goes)
        if any(taken[node] + here[node] > places for node in goes):
            return None
    return nodes * places - taken.total()


def taken_by(transit: Iterable[VMFacts]) -> tuple[Counter[str], Counter[str]]:
    """The places that VMs in transit hold on each node, and those of them that they give back there.

    A place that one VM gives back and that is promised to another is held once.
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
    """The holdings of vjobs about which nothing is decided, as ``rmsplugin.assessment.settled`` has them.

    Attributes:
        of_users: the user and the holdings of each vjob, in the order of the queue, for each node on which it stays.
        twice: places that one VM gives back and that are promised to another, which count twice.
    """

    of_users: Sequence[tuple[str, Resources]]
    twice: Resources

    @classmethod
    def by(cls, transit: Iterable[tuple[str, Iterable[VMFacts]]]) -> Held:
        """Sum up the holdings of vjobs' VMs: of each vjob its user, and its VMs."""
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
    """The vjobs that run if each vjob that finds room beside those ahead of it does, and all that do not wait.

    Args:
        queue: head first.
        transit: those vjobs of the queue about which nothing is decided.
        left: places for the others.

    Returns:
        These vjobs, in order; and whether any of them is ready and finds room. If none is, no policy changes anything,
        for none suspends a vjob for another one behind it.
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
