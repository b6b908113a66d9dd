"""Joint waits: the waits of arrivals for rules about VMs beside each other (``rmsplugin.model.joint``).

In its pool an arrival obeys its rules while all of the pool are at both of their ends. So it is enough if each arrival
that a rule concerns begins after all actions of earlier pools that this rule concerns. Who leaves early breaks none.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration


def waits_for_rules(source: Configuration, pools: Sequence[Sequence[Action]]) -> list[set[int]]:
    """For each action of a plan, pool after pool, the indices of those that it waits for by rules."""
    rules = [rule for rule in source.joint if not rule.discrete]
    waits: list[set[int]] = [set() for pool in pools for _ in pool]
    for rule in rules:
        awaited: list[int] = []  # concerned, since the last pool with arrivals; that one waits for all before
        index = 0
        for pool in pools:
            concerned = [index + at for at, action in enumerate(pool) if rule.concerns(action.vm.name)]
            arriving = [each for each in concerned if pool[each - index].demands is not None]
            for each in arriving:
                waits[each].update(awaited)
            awaited = concerned if arriving else [*awaited, *concerned]
            index += len(pool)
    return waits
