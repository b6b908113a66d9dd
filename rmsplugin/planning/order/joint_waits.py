"""Joint waits: the waits of arrivals for rules about VMs beside each other (``rmsplugin.model.joint``).

In its pool an arrival obeys its rules while all of the pool are at both of their ends. So it is enough if each arrival
begins after all actions of earlier pools that can matter to its rules there: those at the same node; or, where a rule
is about several nodes together, those at any of these. A VM that leaves early breaks no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.joint import Capacity, Joint, Lonely, Online, Part, Root, Split, Spread

#: A rule (its identity: equal rules are one object, and there are thousands of lookups), and the node where it asks who
#: is there; empty: it asks about all of its nodes together.
_Asked = tuple[int, str]

_IN_PLACE = (ActionKind.PAUSE, ActionKind.UNPAUSE)


def waits_for_rules(source: Configuration, pools: Sequence[Sequence[Action]]) -> list[set[int]]:
    """For each action of a plan, pool after pool, the indices of those that it waits for by rules."""
    waits: list[set[int]] = [set() for pool in pools for _ in pool]
    concerning, hosting = source.concerning_steps, _hosting(source, pools)
    awaited: dict[_Asked, list[int]] = {}  # since the last pool with arrivals, which wait for all before
    index = 0
    for pool in pools if concerning.rules else ():
        concerned: dict[_Asked, list[int]] = {}
        arriving: dict[_Asked, list[int]] = {}
        for at, action in enumerate(pool, start=index):
            for rule in concerning.of(action.vm.name):
                for node, arrives in _asks(rule, action, hosting):
                    asked = (id(rule), node)
                    concerned.setdefault(asked, []).append(at)
                    if arrives:
                        arriving.setdefault(asked, []).append(at)
        for asked, those in concerned.items():
            before = awaited.get(asked, [])
            for each in arriving.get(asked, ()):
                waits[each].update(before)
            awaited[asked] = those if asked in arriving else [*before, *those]
        index += len(pool)
    return waits


def _hosting(source: Configuration, pools: Sequence[Sequence[Action]]) -> set[str]:
    """The nodes that host some VM from the start to the end."""
    acting = {action.vm.name for pool in pools for action in pool}
    return {node for name, node in source.homes.items() if name not in acting}


def _asks(rule: Joint, action: Action, hosting: Collection[str]) -> Iterator[tuple[str, bool]]:
    """The nodes where an action matters to a rule about its VM (empty: all of the rule's), and whether it arrives."""
    left = None if action.kind in (*_IN_PLACE, ActionKind.RESUME) else action.source
    come = action.demands
    if isinstance(rule, (Root, Part)):
        return  # it asks nobody else
    if isinstance(rule, (Spread, Lonely, Split)):
        if left is not None:
            yield left, False
        if come is not None:
            yield come, True
        return
    if isinstance(rule, (Capacity, Online)):
        idle = hosting if isinstance(rule, Online) else ()  # these nodes host VMs, whoever else comes or goes
        left, come = (each if each in rule.nodes and each not in idle else None for each in (left, come))
    if left is not None or come is not None:
        yield "", come is not None
