"""Tokens: the number of steps of a kind that may be under way at once, on each node and in the whole cluster. Pure.

A step takes one token of a node for each VM on which it acts there. It takes them all at once, because the VMs of a
vjob are saved, and restored, together. A vjob with more VMs on a node than the node has tokens takes all of them. A
step that finds no tokens is passed by later steps that do. Stops take no tokens; nor do pauses and their ends, which
move nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rmsplugin.engine.ledger.rows import OperationKind, Step
from rmsplugin.settings.deciding import Tokens as TokenLimits


@dataclass(frozen=True, slots=True)
class Use:
    """The effect of a step: by node, the number of VMs that leave, and of VMs that come."""

    kind: OperationKind
    leaves: Mapping[str, int]
    comes: Mapping[str, int]


def use_of(step: Step, hosts: Mapping[str, str]) -> Use:
    """The effect of a step.

    Args:
        step: of a plan.
        hosts: by VM name, its node now; only VMs of the vjob that have one.
    """
    match step.kind:
        case OperationKind.PAUSE | OperationKind.UNPAUSE:
            return Use(step.kind, {}, {})
        case OperationKind.SUSPEND:
            return Use(step.kind, Counter(hosts.values()), {})
        case OperationKind.MIGRATE:
            leaves = Counter(node for name, node in hosts.items() if name in step.hosts)
            return Use(step.kind, leaves, Counter(step.hosts.values()))
        case _:
            return Use(step.kind, {}, Counter(step.hosts.values()))


def are_free(limits: TokenLimits, under_way: Collection[Use], wanted: Use) -> bool:
    """Whether the tokens of a step are free, beside the steps that are under way."""
    if wanted.kind in (OperationKind.PAUSE, OperationKind.UNPAUSE):
        return True
    same = [use for use in under_way if use.kind is wanted.kind]
    at_once = {
        OperationKind.START: limits.boots,
        OperationKind.SUSPEND: limits.saves,
        OperationKind.RESUME: limits.restores,
        OperationKind.MIGRATE: limits.migrations,
    }[wanted.kind]
    if wanted.kind is not OperationKind.START:
        moved = sum(_vms(use) for use in under_way if use.kind is not OperationKind.START)
        if moved and moved + _vms(wanted) > limits.transfers:
            return False
    for taken, asked in (
        (_sum(use.leaves for use in same), wanted.leaves),
        (_sum(use.comes for use in same), wanted.comes),
    ):
        for node, count in asked.items():
            if taken[node] and taken[node] + count > at_once:
                return False
    return True


def _vms(use: Use) -> int:
    """The number of VMs whose memory the step moves; a migration is one transfer, although it has two ends."""
    return sum(use.leaves.values()) or sum(use.comes.values())


def _sum(amounts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in amounts:
        total.update(each)
    return total
