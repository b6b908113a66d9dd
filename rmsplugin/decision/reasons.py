"""Reasons: the sentences of decisions, with their numbers, and the sentence about a whole cycle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import in_the_way
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.wording import counted

if TYPE_CHECKING:
    from rmsplugin.decision.room import NodeRoom
    from rmsplugin.packing.ruled_fit import Obstacle

#: From so many seconds on, hours are given as hours, and days as days.
_HOURS, _DAYS = 3, 3

#: From so many seconds on a bound on a wait, which comes of time limits, is no help.
_NO_BOUND_S = 14 * 86400.0
#: The number of names that are listed; for more, their number is enough.
_NAMED = 3


def seconds(value: float) -> str:
    """A duration for people: to the second, to the hour if it is of hours, to the day if of days."""
    if value >= _DAYS * 86400:
        return f"{math.ceil(value / 86400)} days"
    return f"{math.ceil(value / 3600)} hours" if value >= _HOURS * 3600 else f"{math.ceil(value)} s"


def starts_within(value: float) -> str:
    """That a start is reserved, and how soon at the latest; a bound of weeks says nothing, and is not told."""
    if value >= _NO_BOUND_S:
        return "reserved to start when those that run have ended"
    return f"reserved to start in at most {seconds(value)}"


def cpu_seconds(value: float) -> str:
    """An amount of work for people: whole CPU-seconds, and nothing where it is none."""
    return f"{value:.0f} CPU-seconds" if value >= 1 else "nothing"


def names(vjobs: Iterable[VJob]) -> str:
    """The names of a few vjobs, or their number."""
    listed = [vjob.name for vjob in vjobs]
    if len(listed) <= _NAMED:
        return " and ".join(filter(None, [", ".join(listed[:-1]), *listed[-1:]]))
    return f"{', '.join(listed[:_NAMED])} and {len(listed) - _NAMED} more"


def needs(vjob: VJob) -> str:
    """The demand of a vjob: "9 CPUs and 9216 MiB in 9 VMs"."""
    return _needs(vjob.demand, len(vjob.vms))


def _needs(demand: Resources, vms: int) -> str:
    return f"{demand} in {counted(vms, 'VM')}"


def fits(vjob: VJob, code: ReasonCode = ReasonCode.FITS, how: str = "which fit beside those ahead of it") -> Reason:
    """The reason: it runs, for there is room."""
    return _fits(vjob.demand, len(vjob.vms), code, how)


@lru_cache(maxsize=1024)
def _fits(demand: Resources, vms: int, code: ReasonCode, how: str) -> Reason:
    """The reason of a vjob that fits: it is the same from cycle to cycle."""
    numbers = {"cpus": demand.cpus, "memory_mib": demand.memory_mib, "vms": vms}
    return Reason(code, f"needs {_needs(demand, vms)}, {how}", numbers)


def no_room(vjob: VJob, room: NodeRoom, where: str = "free behind those ahead of it") -> Reason:
    """The reason: it does not run, for ``room`` has no place for all its VMs; only in fragments, if the sums suffice.

    Of many that wait most are alike: the reason of one is kept in the room for the others, until a vjob comes.
    """
    spread = room.site.configuration.apart.get(vjob.name)
    apart = None if spread is None else spread.title  # it names the VMs, if they are few
    alike = (where, room.site.demands[vjob.name], len(vjob.vms), vjob.own_rules, apart, room.site.effort.is_spent)
    if alike not in room.refusals:
        room.refusals[alike] = _no_room(vjob, room, where)
    return room.refusals[alike]


def refused_by_rules(vjob: VJob, obstacle: Obstacle) -> Reason:
    """The reason: rules about VMs beside each other leave one of its VMs no node."""
    demand = vjob.demand
    numbers: dict[str, float | int | str] = {
        "cpus": demand.cpus,
        "memory_mib": demand.memory_mib,
        "vms": len(vjob.vms),
        "vm": obstacle.vm,
        "nodes_with_room": obstacle.rooms,
        "barred": max(obstacle.barred.values(), default=0),
        "rule": ", ".join(obstacle.barred),
    }
    return Reason(ReasonCode.RULE, _barred(vjob, obstacle), numbers)


def _barred(vjob: VJob, obstacle: Obstacle) -> str:
    if not obstacle.rooms:
        return f"needs {needs(vjob)}; no node has room for {obstacle.vm} beside those that rules keep apart or together"
    rooms = counted(obstacle.rooms, "node")
    barred = [f"{title} bars it from {number}" for title, number in obstacle.barred.items()]
    return f"needs {needs(vjob)}; {rooms} with room for {obstacle.vm}, but {' and '.join(barred)}"


def unless_preemptible(vjob: VJob) -> Reason | None:
    """The reason why a running vjob goes on running, if it may not be preempted."""
    if vjob.preemptible:
        return None
    return Reason(ReasonCode.NOT_PREEMPTIBLE, "is not preemptible, and keeps running")


def _no_room(vjob: VJob, room: NodeRoom, where: str) -> Reason:
    demand, free = vjob.demand, room.free_for(vjob)
    code, sentence = ReasonCode.NO_ROOM, f"needs {needs(vjob)}; {free} are {where}"
    if (obstacle := in_the_way(vjob.rules, room.site.up)) is not None:
        sentence = f"needs {needs(vjob)}; {obstacle}"
    elif free.holds(demand):
        sentence += f", but in pieces: no node has more than {room.largest_free_for(vjob)} free"
    ruled: dict[str, float | int | str] = {}
    if free.holds(demand) and room.only_apart(vjob):
        number, title = room.nodes_for_one_of(vjob), room.site.configuration.apart[vjob.name].title
        code, sentence = ReasonCode.RULE, f"needs {needs(vjob)}; {_too_few_nodes(number, title)}"
        ruled = {"nodes_with_room": number, "rule": title}
    if room.site.effort.is_spent:
        sentence += "; more packings would take longer than a cycle may"
    numbers = {
        "cpus": demand.cpus,
        "memory_mib": demand.memory_mib,
        "vms": len(vjob.vms),
        "free_cpus": free.cpus,
        "free_memory_mib": free.memory_mib,
    }
    return Reason(code, sentence, numbers | ruled)


def _too_few_nodes(number: int, title: str) -> str:
    """That a rule has a vjob's VMs on nodes of their own, and the number of nodes with room for one."""
    has = "has" if number == 1 else "have"
    return f"{counted(number, 'node')} {has} room for one of its VMs, but {title} has each on a node of its own"


def sentence(configuration: Configuration, states: Mapping[str, VJobState], reasons: Mapping[str, Reason]) -> str:
    """The changes of this cycle: "12 of 20 vjobs run: 3 start, 1 resumes, 2 are suspended"."""
    before = {vjob.name: configuration.state(vjob) for vjob in configuration.vjobs if not vjob.in_transit}
    states = {name: state for name, state in states.items() if name in before}
    lost = [name for name, reason in reasons.items() if reason.code is ReasonCode.LOST]
    moves = [(before[name], after) for name, after in states.items() if before[name] is not after and name not in lost]

    def count(singular: str, plural: str, chosen: Sequence[object]) -> list[str]:
        return [f"{len(chosen)} {singular if len(chosen) == 1 else plural}"] if chosen else []

    running, paused, sleeping = VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING
    changes = [
        *count("starts", "start", [m for m in moves if m[1] is running and m[0] not in (paused, sleeping)]),
        *count("resumes", "resume", [m for m in moves if m == (sleeping, running)]),
        *count("goes on", "go on", [m for m in moves if m == (paused, running)]),
        *count("is paused", "are paused", [m for m in moves if m[1] is paused]),
        *count("is suspended", "are suspended", [m for m in moves if m[1] is sleeping and m[0] is not paused]),
        *count("is saved", "are saved", [m for m in moves if m == (paused, sleeping)]),
        *count("is stopped", "are stopped", [m for m in moves if m[1] is VJobState.TERMINATED]),
        *count("goes back to wait", "go back to wait", [m for m in moves if m[1] is VJobState.WAITING]),
        *count("is lost and begins anew", "are lost and begin anew", lost),
    ]
    run = sum(state is running for state in states.values())
    total = f"{run} of {len(states)} {'vjob runs' if len(states) == 1 else 'vjobs run'}"
    return f"{total}: {', '.join(changes) if changes else 'nothing changes'}"
