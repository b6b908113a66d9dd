"""Makespan: the duration of a plan, estimated from the duration of each kind of action by itself (``transfers``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action, ActionKind
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
    node_s = [durations.of_node(each).constant_s for each in plan.nodes]
    not_before = {i: max(node_s[node] for node in needed) for i, needed in enumerate(order.needed) if needed}
    ends = ends_of(order.actions, order.needs, durations, order.together, not_before)
    nodes_end = [
        max((ends[need] for need in needs), default=0.0) + node_s[node] for node, needs in enumerate(order.node_needs)
    ]
    by_pools = _longest(plan, NodeActionKind.POWER_ON, node_s) + _longest(plan, NodeActionKind.POWER_OFF, node_s)
    first = 0
    for pool in plan.pools:
        here = range(first, first + len(pool))
        together = [[each - first for each in group if each in here] for group in order.together]
        by_pools += max(ends_of(pool, ((),) * len(pool), durations, together))
        first += len(pool)
    return Makespan(by_pools, max((*ends, *nodes_end), default=0.0), tuple(ends))


def _longest(plan: Plan, kind: NodeActionKind, node_s: Sequence[float]) -> float:
    """The time until all actions of nodes of a kind are done, side by side; 0 if there are none."""
    return max((took for each, took in zip(plan.nodes, node_s, strict=True) if each.kind is kind), default=0.0)


def ends_of(
    actions: Sequence[Action],
    needs: Sequence[Sequence[int]],
    durations: Durations,
    together: Iterable[Sequence[int]] = (),
    not_before: Mapping[int, float] | None = None,
) -> list[float]:
    """The end of each action, in seconds, if it begins when all that it ``needs`` have ended.

    Args:
        actions: of a plan.
        needs: for each action the indices of others.
        durations: of each action by itself; ``pipeline_s`` is between two of those of a group.
        together: groups of actions on the VMs of a vjob. Suspends begin one after the other. Resumed VMs are restored
            at once, and go on one after the other when all are there (docs/decisions/0281). Others keep to one instant.
        not_before: seconds before which actions do not begin.
    """
    earliest, groups = not_before or {}, [_in_turn(actions, group) for group in together]
    turn_s = {
        each: place * durations.pipeline_s
        for group in groups
        for place, each in enumerate(group)
        if actions[each].kind is ActionKind.SUSPEND
    }
    resumes = [group for group in groups if group and actions[group[0]].kind is ActionKind.RESUME]
    restored = _Restored(resumes, durations.pipeline_s)
    missing = [len(set(each)) for each in needs]
    followers: list[list[int]] = [[] for _ in actions]
    for i, each in enumerate(needs):
        for need in set(each):
            followers[need].append(i)
    ends = [0.0] * len(actions)
    under_way = Transfers(durations)

    def begin(i: int) -> None:
        start_s = max((earliest.get(i, 0.0), *(ends[need] for need in needs[i])))
        under_way.begin(i, actions[i], start_s + turn_s.get(i, 0.0))

    for i in range(len(actions)):
        if not missing[i]:
            begin(i)
    while (found := under_way.next_end()) is not None:
        for i, end_s in restored.ended(*found):
            ends[i] = end_s
            for follower in followers[i]:
                missing[follower] -= 1
                if not missing[follower]:
                    begin(follower)
    return ends


def _in_turn(actions: Sequence[Action], group: Sequence[int]) -> list[int]:
    """Actions on the VMs of a vjob in the order of their hosts' names (RR-6929, section 4.1)."""

    def key(each: int) -> tuple[str, str]:
        action = actions[each]
        host = action.destination if action.kind is ActionKind.RESUME else action.source
        return host or "", action.vm.name

    return sorted(group, key=key)


class _Restored:
    """Resumed VMs of vjobs of which some are restored, and the last one is not yet."""

    def __init__(self, groups: Sequence[Sequence[int]], apart_s: float) -> None:
        self._apart_s = apart_s
        self._group_of = {each: group for group in groups for each in group}
        self._left = {group[0]: len(group) for group in groups}

    def ended(self, i: int, now_s: float) -> list[tuple[int, float]]:
        """The actions that have ended with the end of this one's own part, each with its end."""
        group = self._group_of.get(i)
        if group is None:
            return [(i, now_s)]
        self._left[group[0]] -= 1
        if self._left[group[0]]:
            return []
        return [(each, now_s + place * self._apart_s) for place, each in enumerate(group)]
