"""Rooms: the exclusive jobs by which the engine holds VM hosts; their present state, and which of them to have. Pure.

Slurm's list of jobs is the only memory of rooms: an engine that was killed finds them there, whatever it was doing.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob, RmsNode, RmsReservation, RmsSnapshot
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.settings import Settings
from rmsplugin.settings.slurm import Hosts

#: A request for a room that Slurm leaves pending on an idle node is withdrawn after so many seconds at the soonest.
_LEAST_PENDING_S = 300.0
#: The VMs begin to leave a node at least so many seconds before it has to be free (a reservation, the end of a room).
_EVACUATION_S = 300.0


def evacuation_s(grace_s: float) -> float:
    """How long before a node has to be free its VMs begin to leave, where the GraceTime is ``grace_s``."""
    return max(_EVACUATION_S, grace_s)


def shortest_room_s(grace_s: float) -> float:
    """The length below which a room is not worth requesting: its VMs would have to leave soon after they arrive."""
    return 2 * evacuation_s(grace_s)


class RoomState(enum.StrEnum):
    """The state of a room."""

    REQUESTED = "requested"  # pending: the node is busy, or Slurm has not looked yet
    STARTING = "starting"  # the node boots, or runs its prolog
    HELD = "held"
    LEAVING = "leaving"  # held, but the node has to be given back


@made_at_once
@dataclass(frozen=True, slots=True)
class Room:
    """One room. Times are seconds since the epoch."""

    node: str
    partition: str  # the hosts partition
    job_id: int
    state: RoomState
    since: float = 0.0  # 0 while it is not held
    until: float = math.inf  # when Slurm ends it
    reason: str = ""  # why it is leaving, or not held yet
    requested: float = 0.0  # when Slurm was asked for it


@dataclass(frozen=True, slots=True)
class Rooms:
    """All rooms by node, and jobs of the engine that serve as no room (any more)."""

    by_node: Mapping[str, Room]
    strange: tuple[RmsJob, ...]


def vm_hosts(settings: Settings, rms: RmsSnapshot, among: Collection[str] | None = None) -> list[str]:
    """Names of the nodes of all hosts partitions, in the RMS's order; of those ``among`` these, if they are given."""
    found = [rms.partitions[name] for name in settings.hosts_partitions if name in rms.partitions]
    wanted = {node for partition in found for node in partition.nodes}
    if among is not None:
        wanted &= {*among}
    return [name for name in rms.nodes if name in wanted]


def hosts_of(settings: Settings, rms: RmsSnapshot, partition: str) -> tuple[str, ...]:
    """The VM hosts of a vjob partition; none if slurm.conf or the settings do not have it (any more)."""
    known = settings.partition.get(partition)
    hosts = rms.partitions.get(known.hosts) if known else None
    return hosts.nodes if hosts else ()


def find_rooms(settings: Settings, rms: RmsSnapshot, now: float) -> Rooms:
    """Find the rooms in a reading of Slurm.

    A job of the engine is strange if it names no node, a node of no hosts partition, or a node that another room has.
    """
    by_node: dict[str, Room] = {}
    strange: list[RmsJob] = []
    jobs = [
        job
        for job in rms.jobs
        if job.name == ROOM_NAME
        and job.user == settings.engine.user
        and job.state is not JobState.ENDED
        and not job.completing
    ]
    nodes_of = {
        name: set(rms.partitions[name].nodes) for name in {job.partition for job in jobs} & rms.partitions.keys()
    }
    # Running rooms come first: a second room on the same node can only be pending.
    for job in sorted(jobs, key=lambda job: (job.state is JobState.PENDING, job.job_id)):
        node = job.nodes[0] if len(job.nodes) == 1 else ""
        known = node in nodes_of.get(job.partition, ()) and node in rms.nodes
        if job.partition not in settings.hosts_partitions or not known or node in by_node:
            strange.append(job)
        else:
            by_node[node] = _room(settings, rms, job, rms.nodes[node], now)
    return Rooms(by_node, tuple(strange))


def own_nodes(settings: Settings, rms: RmsSnapshot) -> Rooms:
    """The nodes of native jobs, as rooms that are always held: nothing is borrowed; a node that drains is left."""
    by_node = {}
    for partition in settings.hosts_partitions:
        found = rms.partitions.get(partition)
        for name in found.nodes if found is not None and found.up else ():
            node = rms.nodes.get(name)
            if node is not None and node.up and name not in by_node:
                reason = f"it is being drained: {node.reason or 'no reason given'}" if node.draining else ""
                state = RoomState.LEAVING if reason else RoomState.HELD
                by_node[name] = Room(name, partition, 0, state, reason=reason)
    return Rooms(by_node, ())


def _room(settings: Settings, rms: RmsSnapshot, job: RmsJob, node: RmsNode, now: float) -> Room:
    if job.state is JobState.PENDING:
        asked = float(job.submit_time)
        return Room(node.name, job.partition, job.job_id, RoomState.REQUESTED, reason=job.reason, requested=asked)
    grace_s = rms.partitions[job.partition].grace_time_s
    until = float(job.end_time) or math.inf
    reason = ""
    if job.preempt_time:
        until = min(until, job.preempt_time + grace_s)
        reason = "Slurm takes it back for a job of a higher tier"
    elif node.draining:
        reason = f"it is being drained: {node.reason or 'no reason given'}"
    elif blocked := _reservation_ahead(settings, rms, node.name, now, evacuation_s(grace_s)):
        reason = blocked
    elif until - now < evacuation_s(grace_s):
        reason = "its time is up, and Slurm does not extend it"
    elif job.state is not JobState.RUNNING:
        asked, why = float(job.submit_time), "Slurm prepares the node"
        return Room(node.name, job.partition, job.job_id, RoomState.STARTING, reason=why, requested=asked)
    state = RoomState.LEAVING if reason else RoomState.HELD
    return Room(node.name, job.partition, job.job_id, state, float(job.start_time), until, reason)


def is_coming(room: Room | None) -> bool:
    """Whether the room was requested, and is not held yet."""
    return room is not None and room.state in (RoomState.REQUESTED, RoomState.STARTING)


def is_idle(node: RmsNode) -> bool:
    """Whether Slurm may lend it: no job is on it, and it is neither down nor being drained."""
    return node.up and not node.draining and "IDLE" in node.state


def next_reservation(settings: Settings, rms: RmsSnapshot, node: str, now: float) -> float:
    """When others' next reservation of the node starts (or started, while it lasts); infinity if there is none."""
    return min((each.start_time for each in _reservations(settings, rms, node, now)), default=math.inf)


def _reservations(settings: Settings, rms: RmsSnapshot, node: str, now: float) -> list[RmsReservation]:
    return [
        each
        for each in rms.reservations.values()
        if node in each.nodes and settings.engine.user not in each.users and now < each.end_time
    ]


def _reservation_ahead(settings: Settings, rms: RmsSnapshot, node: str, now: float, within_s: float) -> str:
    """A sentence about a reservation by which others will soon have the node; empty if there is none."""
    soon = [each.name for each in _reservations(settings, rms, node, now) if now >= each.start_time - within_s]
    return f"reservation {soon[0]} needs it" if soon else ""


@made_at_once
@dataclass(frozen=True, slots=True)
class HostUse:
    """The facts about one VM host that a decision about rooms needs."""

    node: RmsNode
    occupied: bool  # VMs are on it or about to be, or saved states that may not stay
    idle_s: float  # for how long it could have been occupied, and has not been
    wanted: bool  # waiting vjobs would start on it
    resting: bool  # a moment ago a request failed, or Slurm took the room back
    fault: str = ""  # why no VM can run there, as the prolog of its room says


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """The requests to Slurm: nodes to hold, and rooms to give back, each with its reason."""

    request: tuple[str, ...]
    give_back: Mapping[str, str]


def plan_rooms(hosts: Hosts, rooms: Mapping[str, Room], uses: Mapping[str, HostUse]) -> RoomPlan:
    """Decide which rooms of one hosts partition to request and which to give back.

    Args:
        hosts: the settings of the partition.
        rooms: its rooms, by node.
        uses: its nodes, by name, in Slurm's order.
    """
    give_back = {
        name: room.reason
        for name, room in rooms.items()
        if room.state is RoomState.LEAVING and name in uses and not uses[name].occupied
    }
    faulty = {name: uses[name].fault for name in rooms if name in uses and not uses[name].occupied}
    give_back |= {name: fault for name, fault in faulty.items() if fault}
    kept = [name for name in rooms if name not in give_back]
    missing = [name for name, use in uses.items() if name not in rooms and not use.resting and use.node.up]
    missing = [name for name in missing if not uses[name].node.draining]
    if hosts.rooms == "hold":
        return RoomPlan(tuple(missing), give_back)
    spare = max(0, len(kept) - hosts.rooms_min)
    for name in _surplus(hosts, rooms, uses, kept)[:spare]:
        give_back[name] = "nothing runs there"
        kept.remove(name)
    limit = math.inf if hosts.rooms_max is None else hosts.rooms_max
    # A room on a node that native jobs use would wait for them, while other nodes may fall idle.
    idle = [name for name in missing if "IDLE" in uses[name].node.state]
    request = [name for name in idle if uses[name].wanted or uses[name].occupied]
    others = [name for name in idle if name not in request]
    request += others[: max(0, hosts.rooms_min - len(kept) - len(request))]
    return RoomPlan(tuple(request[: int(min(len(request), max(0, limit - len(kept))))]), give_back)


def _surplus(hosts: Hosts, rooms: Mapping[str, Room], uses: Mapping[str, HostUse], kept: Iterable[str]) -> list[str]:
    """Rooms that an elastic partition does not need: requested ones whose node has become busy, then idle ones."""
    overtaken = [
        name
        for name in kept
        if rooms[name].state is RoomState.REQUESTED and (name not in uses or is_busy(uses[name].node))
    ]
    idle = [
        name
        for name in kept
        if name not in overtaken
        and name in uses
        and not uses[name].occupied
        and not uses[name].wanted
        and uses[name].idle_s >= _longest_idle_s(hosts, rooms[name])
    ]
    return overtaken + sorted(idle, key=lambda name: -uses[name].idle_s)


def _longest_idle_s(hosts: Hosts, room: Room) -> float:
    """How long a room may be idle; what it takes to have it is not idle time."""
    if room.state is RoomState.STARTING:
        return math.inf
    return max(hosts.room_idle_s, _LEAST_PENDING_S) if room.state is RoomState.REQUESTED else hosts.room_idle_s


def is_busy(node: RmsNode) -> bool:
    """Whether a job (a room of ours included) is on the node."""
    return "ALLOC" in node.state or "MIXED" in node.state
