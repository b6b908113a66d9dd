"""Joint waits: the waits of arrivals for rules about VMs beside each other (``rmsplugin.model.joint``).

In its pool an arrival obeys its rules while all of the pool are at both of their ends. So it is enough if each arrival
that a rule concerns begins after all actions of earlier pools that this rule concerns. Who leaves early breaks none.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.joint import Concerning, Joint


def waits_for_rules(source: Configuration, pools: Sequence[Sequence[Action]]) -> list[set[int]]:
    """For each action of a plan, pool after pool, the indices of those that it waits for by rules."""
    concerning = Concerning(rule for rule in source.joint if not rule.discrete)
    waits: list[set[int]] = [set() for pool in pools for _ in pool]
    awaited: dict[Joint, list[int]] = {}  # concerned, since the last pool with arrivals; that one waits for all before
    index = 0
    for pool in pools:
        concerned: dict[Joint, list[int]] = {}
        for at, action in enumerate(pool, start=index):
            for rule in concerning.of(action.vm.name):
                concerned.setdefault(rule, []).append(at)
        for rule, those in concerned.items():
            arriving = [each for each in those if pool[each - index].demands is not None]
            before = awaited.get(rule, [])
            for each in arriving:
                waits[each].update(before)
            awaited[rule] = those if arriving else [*before, *those]
        index += len(pool)
    return waits
