"""Sets of nodes: which of them are tried for VMs that have to be on a few of them (``rmsplugin.model.joint.Within``).

The engine's own process places single VMs by it, so it loads no library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rmsplugin.model.joint import Concerning, Within
from rmsplugin.model.standing import Standing


def choices_within(
    concerning: Concerning, vms: Iterable[str], standing: Standing, free: Mapping[str, float]
) -> Iterator[frozenset[str]]:
    """The nodes of the sets that VMs may use together by each of their rules: the used ones, and others up to the most.

    Not all choices, of which there may be too many: sets that are beside each other when the roomiest come first.

    Args:
        concerning: all rules.
        vms: the VMs.
        standing: where VMs are.
        free: the free CPUs of each node that takes VMs.
    """
    found = {id(rule): rule for vm in vms for rule in concerning.of(vm) if isinstance(rule, Within)}
    for rule in found.values():
        yield from _choices_of(rule, standing, free)


def _choices_of(rule: Within, standing: Standing, free: Mapping[str, float]) -> Iterator[frozenset[str]]:
    """The choices that one rule leaves."""
    used = rule.used(standing)
    more = rule.most - len(used)
    if more <= 0:
        return  # the rule itself confines them
    rooms: dict[int | str, float] = {}
    for node, cpus in free.items():
        rooms[rule.set_of(node)] = rooms.get(rule.set_of(node), 0) + max(0, cpus)
    others = sorted((each for each in rooms if each not in used), key=lambda each: -rooms[each])
    for first in range(max(1, len(others) - more + 1)):
        yield rule.nodes_in([*used, *others[first : first + more]])
