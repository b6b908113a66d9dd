"""Rooms wanted: the nodes whose rooms are to be requested, or kept, for vjobs that a decision left waiting.

Also the vjobs for which no other makes way meanwhile, since a room on an idle node costs no other vjob anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.assessment.promises import promises
from rmsplugin.decision.reasons import needs
from rmsplugin.decision.traits import NEVER_SUSPENDS
from rmsplugin.decision.wanted import Fit, places_beyond
from rmsplugin.engine.assess.queue import Waiting, candidate, ready_vms
from rmsplugin.engine.assess.ruled_places import RuledPlaces
from rmsplugin.engine.assess.site_rules import Member, there_are_rules, traits_of_job
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import can_come_on, comes_on
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import Room, is_coming, is_idle, vm_hosts
from rmsplugin.errors import RefusedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.ffd import first_fit_decreasing
from rmsplugin.settings import Settings


@dataclass(frozen=True, slots=True)
class Ahead:
    """The places that vjobs left waiting would have.

    Attributes:
        wanted: nodes whose rooms they need, besides coming rooms and the nodes free after a decision; those that are
            off, or going off, are among them.
        kept: all nodes on which they would be.
        unplaced: the first one that finds no place at all; None: each finds one.
        places: by display id, the nodes on which each would be.
        begins: by node on which vjobs would be that begin later, the first begin time.
        late: the first of those that finds no place now; None: each finds one.
        barred: by display id, those for whom there would be room, were it not for rules; and which, in a sentence.
        left: display ids of all that a decision left waiting, in the order of the queue.
    """

    wanted: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    unplaced: Waiting | None = None
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)
    begins: Mapping[str, float] = field(default_factory=dict)
    late: Waiting | None = None
    barred: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def places_ahead(
    capacities: Capacities,
    seen: Observation,
    left: Sequence[Waiting],
    after: Configuration,
    later: Sequence[Waiting] = (),
) -> Ahead:
    """Place the vjobs that a decision left waiting; nodes that are on are tried first.

    Args:
        capacities: of the nodes.
        seen: one look at the cluster.
        left: vjobs that may start now.
        after: the configuration that the decision leads to.
        later: vjobs that may start at a begin time, the first one first; they take places that ``left`` leaves.
    """
    rooms = seen.rooms.by_node
    switches = capacities.ledger.power.switches()
    known = [name for name in vm_hosts(capacities.settings, seen.rms) if name not in switches]
    idle = [name for name in known if name not in rooms and _idle(seen, name)]
    others = [*idle, *(name for name in can_come_on(switches, seen.taken) if seen.may_take_vms(name))]
    if not later and not (others and left):
        return Ahead(unplaced=next(iter(left), None))
    hosts = capacities.hosts(seen)
    reserved = capacities.ledger.reservations.read().nodes
    soon = {
        name: host.free if is_coming(rooms.get(name)) or comes_on(switches, name) else after.free(name)
        for name, host in hosts.items()
        if name not in reserved
        and (not host.why_not or comes_on(switches, name) or (is_coming(rooms.get(name)) and name not in switches))
    }
    beyond = {name: hosts[name].capacity for name in others if name in hosts}
    resting = capacities.ledger.failures.resting()
    candidates = [candidate(capacities, seen, waiting, resting) for waiting in (*left, *later)]
    why: dict[str, str] = {}
    fit = _fit(capacities, seen, (*left, *later), why)
    placed = places_beyond(candidates, {}, _those_on_first(soon, beyond, switches), fit)
    kept = frozenset().union(*(placed.get(each.job.display_id, ()) for each in left))
    begins: dict[str, float] = {}
    for each in later:
        for node in placed.get(each.job.display_id, ()):
            begins.setdefault(node, float(each.job.begin_time))
    unplaced, late = _first_without(left, placed), _first_without(later, placed)
    barred = {
        each.name: f"needs {needs(VJob(each.name, each.vms))}; {why[each.vms[0].name]}"
        for each in candidates
        if each.vms[0].name in why
    }
    return Ahead(kept & beyond.keys(), kept, unplaced, placed, begins, late, barred)


def _fit(
    capacities: Capacities, seen: Observation, waiting: Sequence[Waiting], why: dict[str, str] | None = None
) -> Fit:
    """How vjobs are placed: by First Fit Decreasing, and where rules let their VMs come.

    ``why`` receives, by the first VM of a vjob that only rules keep from a place, the sentence of these rules.
    """
    if not (
        there_are_rules(capacities.settings, capacities.ledger, seen) or any(each.geometry.wishing for each in waiting)
    ):
        return first_fit_decreasing
    coming = [
        Member(each.job.display_id, traits_of_job(each.job, each.geometry), tuple(ready_vms(each, ())))
        for each in waiting
        if each.sleeping is None
    ]
    places = RuledPlaces(capacities.settings, capacities.ledger, seen, coming)

    def fit(vms: Sequence[VM], free: Mapping[str, Resources], prefer: Mapping[str, str]) -> dict[str, str] | None:
        try:
            return places.fit(vms, free, prefer)
        except RefusedError as error:
            if why is not None:
                why[vms[0].name] = str(error)
            return None

    return fit


def _first_without(waiting: Iterable[Waiting], placed: Collection[str]) -> Waiting | None:
    return next((each for each in waiting if each.job.display_id not in placed), None)


def _those_on_first(
    soon: Mapping[str, Resources], beyond: Mapping[str, Resources], switched: Collection[str]
) -> dict[str, Resources]:
    """What nodes have free, in the order in which they are taken: what comes on may never come, and is behind."""
    parts = [{name: free for name, free in part.items() if name not in switched} for part in (soon, beyond)]
    return {**parts[0], **parts[1], **soon, **beyond}


def _idle(seen: Observation, name: str) -> bool:
    return is_idle(seen.rms.nodes[name]) and name in seen.vms and seen.may_take_vms(name)


def _has_memory(waiting: Waiting) -> bool:
    """Whether the vjob is paused: it goes on where it is, in a moment, and takes no more memory for that."""
    return waiting.sleeping is not None and waiting.sleeping.state is VJobState.PAUSED


class RoomAhead:
    """Finds vjobs that are left out of decisions, because they will soon have a room on an idle node.

    Its memory may be lost: then a vjob waits for a room once more.
    """

    def __init__(self, settings: Settings, ledger: Ledger, capacities: Capacities) -> None:
        self._settings = settings
        self._ledger = ledger
        self._capacities = capacities
        self._since: dict[str, float] = {}

    def find(self, seen: Observation, queue: Sequence[Waiting], lendable: Collection[str]) -> dict[str, str]:
        """The vjobs to be left out, by display id, each with the reason in a sentence. Changes nothing.

        Args:
            seen: one look at the cluster.
            queue: vjobs that may start or be resumed, head first.
            lendable: nodes of elastic partitions for which a room would be requested now.
        """
        coming = {name for name, room in seen.rooms.by_node.items() if self._comes_soon(seen, room)}
        idle = {name for name in lendable if _idle(seen, name)}
        if self._settings.decision.policy in NEVER_SUSPENDS or not coming | idle:
            return {}
        hosts = self._capacities.hosts(seen)
        reserved = self._ledger.reservations.read().nodes
        free = {name: host.free for name, host in hosts.items() if not host.why_not and name not in reserved}
        ahead = {name: host.free for name, host in hosts.items() if name in coming | idle}
        resting = self._ledger.failures.resting()
        # A promise of a context switch that is under way is not taken back.
        promised = promises(self._ledger.plans.open_steps())
        asking = [
            each
            for each in queue
            if not (each.rests or each.job.display_id in promised or _has_memory(each)) and self._may_wait(seen, each)
        ]
        candidates = [candidate(self._capacities, seen, waiting, resting) for waiting in asking]
        return {
            name: f"waits for a room on {', '.join(sorted(nodes))}, which is idle: no vjob makes way for it meanwhile"
            for name, nodes in places_beyond(candidates, free, ahead, _fit(self._capacities, seen, asking)).items()
        }

    def remember(self, seen: Observation, queue: Sequence[Waiting], left_out: Collection[str]) -> None:
        """Remember the vjobs that a cycle leaves out: none is left out for longer than ``room_wait_s``."""
        known = {waiting.job.display_id for waiting in queue}
        self._since = {name: since for name, since in self._since.items() if name in known}
        for name in left_out:
            self._since.setdefault(name, seen.taken)

    def _comes_soon(self, seen: Observation, room: Room) -> bool:
        hosts = self._settings.hosts_of(room.partition)
        return hosts.rooms == "elastic" and is_coming(room) and seen.taken - room.requested < hosts.room_wait_s

    def _may_wait(self, seen: Observation, waiting: Waiting) -> bool:
        settings, job = self._settings, waiting.job
        most_s = settings.hosts_of(settings.partition[job.partition].hosts).room_wait_s
        return seen.taken - self._since.get(job.display_id, seen.taken) < most_s
