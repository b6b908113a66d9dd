"""Not emptied: when nodes would have been off if none had been emptied for that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rmsplugin.energy.account import OffTime


@dataclass(frozen=True, slots=True)
class EmptiedNode:
    """A node whose VMs left, so that it could be switched off; the last of them would have been there ``until_s``."""

    node: str
    at_s: float
    until_s: float


def as_if_not_emptied(off_times: Iterable[OffTime], emptied: Sequence[EmptiedNode]) -> list[OffTime]:
    """The times that nodes would have been off, with their VMs where they were.

    A node goes off later then, or not at all. The VMs compute as much here as there.
    """
    found = []
    on_since_s: dict[str, float] = {}
    for each in sorted(off_times, key=lambda off: off.begin_s):
        since_s = on_since_s.get(each.node, float("-inf"))
        stays_s = [e.until_s for e in emptied if e.node == each.node and since_s <= e.at_s <= each.begin_s]
        later = replace(each, begin_s=max([each.begin_s, *stays_s]))
        if each.on_s is None or later.begin_s < each.on_s:
            found.append(later)
        on_since_s[each.node] = each.begin_s if each.on_s is None else each.on_s
    return found
