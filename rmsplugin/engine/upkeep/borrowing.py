"""Borrowing: requests, extends and gives back the rooms of all hosts partitions, as ``rooms.plan_rooms`` decides."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from rmsplugin.adapters.nodes.base import RoomEnd, RoomsOnNodes
from rmsplugin.adapters.rms.base import JobState, Rms, RmsPartition
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import (
    HostUse,
    Room,
    RoomState,
    is_idle,
    next_reservation,
    plan_rooms,
    shortest_room_s,
)
from rmsplugin.engine.upkeep.evacuation import unsafe_stores
from rmsplugin.engine.upkeep.room_ends import Answered, Asked, RoomEnds
from rmsplugin.errors import NotFoundError, RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: After its room was given back, a node is left to others that wait for it for so many seconds.
_REST_S = 15.0
_REST_MAX_S = 900.0
#: A room that ends by itself sooner than this was no use: its node rests, longer each time.
_SHORT_S = 60.0
_EXTEND_AGAIN_S = 300.0


@dataclass
class _Rest:
    until: float
    failures: int


class Borrowing:
    """Keeps the rooms. Its memory, since when nodes are idle and which of them rest, may be lost."""

    def __init__(
        self, settings: Settings, ledger: Ledger, clock: Clock, rms: Rms, nodes: RoomsOnNodes, placing: Placing
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._rms = rms
        self._placing = placing
        self._idle_since: dict[str, float] = {}
        self._rests: dict[str, _Rest] = {}
        self._extended: dict[int, float] = {}
        self._known: dict[str, int] = {}  # by node, the job id of the room that is believed to be there
        #: Job ids of rooms that the engine has ended, or asked nodes to end, and that Slurm may still show.
        self._ended: set[int] = set()
        self._ends = RoomEnds(nodes, clock.now)
        #: By job, the nodes that take no VMs, whatever is seen, as they are asked to end the rooms there.
        self._asked: dict[int, str] = {}

    def change_rooms(self, seen: Observation, wanted: Collection[str]) -> list[str]:
        """Ask Slurm for the changes of rooms that are due.

        Args:
            seen: this cycle's observation.
            wanted: nodes without a room on which waiting vjobs would start.

        Returns:
            Sentences about the requests, done and refused.
        """
        if self._settings.native:
            return []
        self._ends.forget_others({job.job_id for job in seen.rms.jobs})
        before = self._ended - self._asked.keys()
        # Whatever nodes have answered since the last cycle: to end a room by Slurm is decided anew.
        said = self._take_answers(self._ends.answers(0), may_cancel=False)
        # What was answered after the look is still seen to be there.
        ending = self._ends.unanswered | (self._ended - before)
        said += self._end_strange(seen, ending)
        self._ended &= {room.job_id for room in seen.rooms.by_node.values()}
        self._notice_ends(seen)
        occupied = self._occupied(seen)
        for name in self._settings.hosts_partitions:
            partition = seen.rms.partitions.get(name)
            if partition is None or not partition.up:
                continue
            hosts = self._settings.hosts_of(name)
            rooms = {node: room for node, room in seen.rooms.by_node.items() if room.partition == name}
            known = set(partition.nodes)
            uses = {
                node: self._use(seen, node, node in occupied, node in wanted)
                for node in seen.rms.nodes
                if node in known
            }
            plan = plan_rooms(hosts, rooms, uses)
            said += [self._request(node, partition) for node in plan.request]
            for node, why in plan.give_back.items():
                if rooms[node].job_id not in ending:
                    said += self._give_back(seen, rooms[node], why)
            for room in rooms.values():
                said += self._extend(seen, room, hosts.room_time_limit_s)
        said += self._take_answers(self._ends.answers(), may_cancel=True)
        return said + [f"{node} has not answered yet whether it ends room {job}" for job, node in self._asked.items()]

    def lendable(self, seen: Observation) -> set[str]:
        """Nodes of elastic partitions for which a room would be requested if a waiting vjob needed one."""
        found: set[str] = set()
        if self._settings.native:
            return found
        for name in self._settings.hosts_partitions:
            hosts, partition = self._settings.hosts_of(name), seen.rms.partitions.get(name)
            if hosts.rooms != "elastic" or partition is None or not partition.up:
                continue
            held = sum(room.partition == name for room in seen.rooms.by_node.values())
            idle = [node for node in partition.nodes if node in seen.rms.nodes and self._may_lend(seen, node)]
            found.update(idle[: None if hosts.rooms_max is None else max(0, hosts.rooms_max - held)])
        return found

    def _may_lend(self, seen: Observation, node: str) -> bool:
        resting = self._is_resting(node, seen.taken)
        free = node not in seen.rooms.by_node and seen.may_take_vms(node)
        return free and not resting and is_idle(seen.rms.nodes[node])

    # -- the state of nodes and rooms --------------------------------------------------------------------------------

    def _occupied(self, seen: Observation) -> set[str]:
        """Nodes with our VMs on them, or about to come; and nodes with saved states that have to leave first."""
        found = {node for node, vms in seen.vms.items() if any(parse_vm_name(name) is not None for name in vms)}
        found |= self._ledger.places_of_live_vms()
        if unsafe := unsafe_stores(self._settings, seen):
            sleeping = {vjob.job_id for vjob in self._ledger.vjobs() if vjob.state is VJobState.SLEEPING}
            found |= {vm.image_node for vm in self._ledger.live_vms() if vm.job_id in sleeping} & unsafe
        return found

    def _use(self, seen: Observation, node: str, occupied: bool, wanted: bool) -> HostUse:
        now = seen.taken
        room = seen.rooms.by_node.get(node)
        since = self._idle_since.setdefault(node, now)
        if occupied or wanted or (room is not None and room.state is RoomState.STARTING):
            since = self._idle_since[node] = now
        elif room is not None:
            since = max(since, room.since)
        resting, fault = self._is_resting(node, now), seen.faults.get(node, "")
        return HostUse(seen.rms.nodes[node], occupied, now - since, wanted, resting, fault)

    def _is_resting(self, node: str, now: float) -> bool:
        rest = self._rests.get(node)
        return rest is not None and rest.until > now

    def _notice_ends(self, seen: Observation) -> None:
        """Let the nodes rest whose rooms others have ended, or whose rooms never were of any use."""
        for node, job_id in self._known.items():
            found = seen.rooms.by_node.get(node)
            if found is None or found.job_id != job_id:
                self._ledger.event("room-gone", f"room {job_id} on {node} has ended", node=node)
                self._rest(node, seen.taken)
            elif found.since and seen.taken - found.since > _SHORT_S:
                self._rests.pop(node, None)
        rooms = seen.rooms.by_node
        self._known = {node: room.job_id for node, room in rooms.items() if room.job_id not in self._ended}

    def _rest(self, node: str, now: float) -> None:
        failures = self._rests[node].failures + 1 if node in self._rests else 0
        self._rests[node] = _Rest(now + min(_REST_MAX_S, _REST_S * 2**failures), failures)

    # -- requests to Slurm -------------------------------------------------------------------------------------------

    def _end_strange(self, seen: Observation, ending: Set[int]) -> list[str]:
        """End our jobs that are of no use as rooms; one that has a node only when no VM is seen there."""
        said = []
        occupied = self._occupied(seen) if seen.rooms.strange else set()
        for job in seen.rooms.strange:
            if job.job_id in ending:
                continue
            if job.state is not JobState.PENDING and any(
                node in occupied or node not in seen.vms for node in job.nodes
            ):
                continue
            why = "the settings know no such room, or it is one too many"
            said += self._end(seen, job.job_id, job.nodes, job.state is JobState.RUNNING, why)
        return said

    def _end(self, seen: Observation, job_id: int, nodes: Sequence[str], runs: bool, why: str) -> list[str]:
        """End a room's job: by its node, or by Slurm if it does not run, or the node cannot.

        A node refuses an engine whose turn is over. Slurm knows no turns, and its epilog ends all of our VMs there.
        """
        failure = self._ends.failure(job_id)
        if not runs or len(nodes) != 1 or nodes[0] in seen.unreachable:
            return self._cancel(job_id, nodes, why)
        if failure is not None:
            return self._cancel(job_id, nodes, why + failure)
        self._forget(job_id)
        self._asked[job_id] = nodes[0]
        self._placing.keep_closed(nodes[0])
        self._ends.ask(Asked(job_id, nodes[0], why))
        return []

    def _take_answers(self, answers: Sequence[Answered], *, may_cancel: bool) -> list[str]:
        """Take what nodes have answered; ``may_cancel``: where one could not end a room, Slurm is to do so now."""
        for job_id in self._asked.keys() - self._ends.unanswered:
            self._placing.let_open(self._asked.pop(job_id))
            self._ended.discard(job_id)  # unless it has ended, as is told next
        return [each for answer in answers for each in self._take(answer, may_cancel=may_cancel)]

    def _take(self, answer: Answered, *, may_cancel: bool) -> list[str]:
        asked, end = answer.asked, answer.end
        nodes = (asked.node,)
        if isinstance(end, RoomEnd):
            if end.ended:
                return self._note_end(asked.job_id, nodes, asked.why)
            if end.vms:
                return [f"room {asked.job_id} on {asked.node} is not given back: {', '.join(end.vms)} is there"]
        failure = "" if isinstance(end, RoomEnd) else f" (by scancel: {end})"
        self._ends.failed(asked, failure)
        return self._cancel(asked.job_id, nodes, asked.why + failure) if may_cancel else []

    def _cancel(self, job_id: int, nodes: Sequence[str], why: str) -> list[str]:
        try:
            self._rms.cancel(job_id)
        except NotFoundError:
            return []
        except RmspluginError as error:
            return [f"room {job_id} cannot be ended: {error}"]
        return self._note_end(job_id, nodes, why)

    def _note_end(self, job_id: int, nodes: Sequence[str], why: str) -> list[str]:
        self._forget(job_id)
        where = ", ".join(nodes)
        self._ledger.event("room-given-back", f"room {job_id} on {where}: {why}", node=where)
        return [f"give back {where}: {why}"]

    def _forget(self, job_id: int) -> None:
        """Miss the room no more: it was ended by the engine, or is about to be."""
        self._ended.add(job_id)
        self._known = {node: known for node, known in self._known.items() if known != job_id}

    def _request(self, node: str, partition: RmsPartition) -> str:
        limit_s = self._settings.hosts_of(partition.name).room_time_limit_s
        least_s = min(limit_s, shortest_room_s(partition.grace_time_s))
        try:
            job_id = self._rms.request_room(node, partition.name, time_limit_s=limit_s, time_min_s=least_s)
        except RmspluginError as error:
            self._rest(node, self._clock.now())
            return f"no room on {node}: {error}"
        self._known[node] = job_id
        self._ledger.event("room-requested", f"room {job_id} on {node}", node=node)
        return f"request room on {node}"

    def _give_back(self, seen: Observation, room: Room, why: str) -> list[str]:
        def occupied() -> bool:
            return room.node in self._occupied(seen)

        if not self._placing.close(room.node, occupied):
            return []
        runs = room.state in (RoomState.HELD, RoomState.LEAVING)
        said = self._end(seen, room.job_id, (room.node,), runs, why)
        if room.node in seen.faults:
            self._rest(room.node, seen.taken)
        elif room.state is RoomState.LEAVING:
            self._rests[room.node] = _Rest(seen.taken + _REST_S, 0)
        return said

    def _extend(self, seen: Observation, room: Room, limit_s: float) -> list[str]:
        """Extend a room long before its time is up; a refused request is repeated until the room has to be left."""
        now = seen.taken
        if room.state is not RoomState.HELD or room.until - now > limit_s / 2:
            return []
        if now - self._extended.get(room.job_id, 0.0) < _EXTEND_AGAIN_S:
            return []
        self._extended[room.job_id] = now
        # Slurm itself would let the room overlap a reservation.
        until = min(now + limit_s, next_reservation(self._settings, seen.rms, room.node, now))
        if until <= room.until:
            return []
        try:
            self._rms.extend_room(room.job_id, until - room.since)
        except RmspluginError as error:
            return [f"room {room.job_id} on {room.node} is not extended: {error}"]
        self._ledger.event("room-extended", f"room {room.job_id} by {until - room.until:.0f} s", node=room.node)
        return []
