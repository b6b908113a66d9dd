"""Switching: which idle nodes are switched off now, and which come on for a need that is known. Pure.

A vjob that waits for a node that is off has it come on at once: to wait for room instead saves little (decision 0330).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.energy.daily import DAY_S
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.prediction import Average, Need, needed_in_s, predicted_s


@dataclass(frozen=True, slots=True)
class IdleNode:
    """A node that is on and has nothing: no VM, no saved state, and none is to come.

    Attributes:
        name: of the node.
        power: its class.
        idle_since_s: since when it has nothing.
        on_since_s: since when it is on.
        switched_off_s: when it was switched off, of the last 24 hours at least; ascending.
        begins_s: when a vjob begins that will have this very node; others may come before. Infinite: none is known.
        takes_vms: whether vjobs may have it: it is not hot. What only the site's bound on watts closes counts, for the
            bound would close any other one in its place.
    """

    name: str
    power: PowerClass
    idle_since_s: float
    on_since_s: float
    switched_off_s: Sequence[float] = ()
    begins_s: float = math.inf
    takes_vms: bool = True

    def may_go_s(self, now: float) -> float:
        """From when on it may be switched off: the least time on, and the cycles of a day, bound it."""
        on_s = self.on_since_s + self.power.least_on_s
        cycles = self.power.cycles_a_day
        today = [at for at in self.switched_off_s if at > now - DAY_S]
        if cycles is None or len(today) < cycles:
            return on_s
        return max(on_s, today[-cycles] + DAY_S) if cycles else math.inf


@dataclass(frozen=True, slots=True)
class OffNode:
    """A node that is off, or goes off, since a time; ``begins_s``: as of an idle node."""

    name: str
    power: PowerClass
    off_since_s: float
    begins_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Choice:
    """What is switched now, and when to look again if nothing happens before; infinite: never."""

    off: tuple[str, ...]
    on: tuple[str, ...]
    again_s: float


def choose(
    idle: Sequence[IdleNode],
    off: Sequence[OffNode],
    needs: Sequence[Need],
    averages: Mapping[PowerClass, Average],
    reserve: int,
    now: float,
    held: int = 0,
    coming: int = 0,
) -> Choice:
    """Choose the nodes to switch.

    A node that a vjob will soon have by its begin time is kept for it, and one that takes no VM is there for nobody.
    So neither counts as one of ``reserve`` or ``held``, or as one that ``needs`` are about.

    Args:
        idle: in the order in which they would be used; the first ``reserve`` of them stay on.
        off: in the order in which they would be used, after those.
        needs: what is known of nodes that vjobs will need.
        averages: of the idle periods, by class.
        reserve: the number of idle nodes that stay on.
        now: the time.
        held: so many of the first idle nodes do not go off; none comes on for that.
        coming: nodes that come on, and that nobody has yet: they would be used before all others.
    """
    goes: list[str] = []
    again_s = math.inf
    rank = coming
    for node in idle:
        place = rank
        if node.takes_vms and now < _soon_from_s(node):
            rank += 1
            if place < max(reserve, held):  # once it is kept for its vjob, another node is to have the place
                again_s = min(again_s, _soon_from_s(node))
        if place < reserve:
            continue
        at_s = _goes_off_s(node, needed_in_s(needs, place, now), averages[node.power], now)
        if at_s <= now and place < held:
            again_s = min(again_s, now + node.power.threshold_s)
        elif at_s <= now:
            goes.append(node.name)
        else:
            again_s = min(again_s, at_s)
    comes: list[str] = []
    for each in off:
        in_s = max(0.0, each.begins_s - now)
        if now < _soon_from_s(each):
            place, rank = rank, rank + 1
            if place < reserve:
                comes.append(each.name)
                continue
            in_s = min(in_s, needed_in_s(needs, place, now))
        if math.isfinite(in_s):
            at_s = max(now + in_s - each.power.on_s, each.off_since_s + each.power.off_s + each.power.least_off_s)
            if at_s <= now:
                comes.append(each.name)
            else:
                again_s = min(again_s, at_s)
    return Choice(tuple(goes), tuple(comes), again_s)


def too_soon_s(power: PowerClass) -> float:
    """A node that is needed within so many seconds is not switched off."""
    return max(power.threshold_s, power.off_s + power.on_s)


def _soon_from_s(node: IdleNode | OffNode) -> float:
    """From when on a node is kept for the vjob that will have it by its begin time; infinite: none is known."""
    return node.begins_s - too_soon_s(node.power) if math.isfinite(node.begins_s) else math.inf


def _goes_off_s(node: IdleNode, in_s: float, average: Average, now: float) -> float:
    """From when on a node is switched off, as far as is known now; infinite: not before something happens."""
    threshold_s = node.power.threshold_s
    if in_s <= too_soon_s(node.power) or _soon_from_s(node) <= now:  # the rest of the period is known, and too short
        return math.inf
    may_s = node.may_go_s(now)
    if predicted_s(average, now - node.idle_since_s, in_s) > threshold_s:
        return may_s
    return max(may_s, math.nextafter(node.idle_since_s + threshold_s, math.inf))
