"""Makespan: the duration of a plan, estimated from the duration of each kind of action by itself (``transfers``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.order.transfers import Durations, Transfers
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Makespan:
    """Estimates for one plan, in seconds from its beginning."""

    by_pools_s: float  # each pool begins when the one before it has ended
    by_dependencies_s: float  # each action begins when all that it waits for have ended
    ends_s: tuple[float, ...]  # by dependencies, the end of each action, in the order of ``Plan.actions``


def makespan(plan: Plan, order: Order, durations: Durations | None = None) -> Makespan:
    """Estimate the duration of a plan, pool after pool and by its dependency order.

    Pool after pool, nodes are switched on before the first one, and off after the last.
    """
    durations = durations or Durations()
    offsets = {each: place * durations.pipeline_s for group in order.together for place, each in enumerate(group)}
    node_s = [durations.of_node(each).constant_s for each in plan.nodes]
    not_before = {i: max(node_s[node] for node in needed) for i, needed in enumerate(order.needed) if needed}
    ends = ends_of(order.actions, order.needs, durations, offsets, not_before)
    nodes_end = [
        max((ends[need] for need in needs), default=0.0) + node_s[node] for node, needs in enumerate(order.node_needs)
    ]
    by_pools = _longest(plan, NodeActionKind.POWER_ON, node_s) + _longest(plan, NodeActionKind.POWER_OFF, node_s)
    first = 0
    for pool in plan.pools:
        after = {each - first: offset for each, offset in offsets.items() if first <= each < first + len(pool)}
        by_pools += max(ends_of(pool, ((),) * len(pool), durations, after))
        first += len(pool)
    return Makespan(by_pools, max((*ends, *nodes_end), default=0.0), tuple(ends))


def _longest(plan: Plan, kind: NodeActionKind, node_s: Sequence[float]) -> float:
    """The time until all actions of nodes of a kind are done, side by side; 0 if there are none."""
    return max((took for each, took in zip(plan.nodes, node_s, strict=True) if each.kind is kind), default=0.0)


def ends_of(
    actions: Sequence[Action],
    needs: Sequence[Sequence[int]],
    durations: Durations,
    offsets: Mapping[int, float],
    not_before: Mapping[int, float] | None = None,
) -> list[float]:
    """The end of each action, in seconds, if it begins ``offsets`` after all that it ``needs`` have ended.

    ``not_before``: seconds before which actions do not begin.
    """
    earliest = not_before or {}
    missing = [len(set(each)) for each in needs]
    followers: list[list[int]] = [[] for _ in actions]
    for i, each in enumerate(needs):
        for need in set(each):
            followers[need].append(i)
    ends = [0.0] * len(actions)
    under_way = Transfers(durations)
    for i, action in enumerate(actions):
        if not missing[i]:
            under_way.begin(i, action, earliest.get(i, 0.0) + offsets.get(i, 0.0))
    while (ended := under_way.next_end()) is not None:
        i, now = ended
        ends[i] = now
        for follower in followers[i]:
            missing[follower] -= 1
            if not missing[follower]:
                under_way.begin(
                    follower, actions[follower], max(now, earliest.get(follower, 0.0)) + offsets.get(follower, 0.0)
                )
    return ends
