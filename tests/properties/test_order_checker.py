"""Orders are carried out action by action, each as soon as it may begin; some fail: memory is never overcommitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from examples import few
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from properties.generators import problems_of_planning, rotations
from properties.test_planner import Instance, crowds, instances, memory_held

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.dependencies import Order, dependency_order
from rmsplugin.planning.order_checker import check_order
from rmsplugin.planning.plan import Plan

PROBLEMS = st.one_of(problems_of_planning(max_nodes=4, max_vjobs=5), rotations(), instances(), crowds())


def order_of(problem: Instance) -> Order:
    plan = build_plan(*problem)
    assert isinstance(plan, Plan)
    return dependency_order(problem[0], plan)


class Execution:
    """Actions that begin, end well, or fail; an action that fails has no effect, and what needs it is skipped."""

    def __init__(self, source: Configuration, actions: Sequence[Action], needs: Sequence[Sequence[int]]) -> None:
        self.source, self.actions, self.needs = source, actions, needs
        self.locations = dict(source.locations)
        self.held = memory_held(source, source.locations)
        self.running: set[int] = set()
        self.done: set[int] = set()
        self.failed: set[int] = set()

    def ready(self) -> list[int]:
        """What may begin."""
        begun = self.running | self.done | self.failed
        return [i for i, own in enumerate(self.needs) if i not in begun and self.done.issuperset(own)]

    def begin(self, i: int) -> bool:
        """Begin an action; whether its node has the memory for it."""
        self.running.add(i)
        destination = self.actions[i].demands
        if destination is None:
            return True
        self.held[destination] += self.actions[i].vm.demand.memory_mib
        return self.held[destination] <= self.source.node_by_name[destination].capacity.memory_mib

    def end(self, i: int, well: bool) -> None:
        """End an action."""
        self.running.remove(i)
        action = self.actions[i]
        name, memory = action.vm.name, action.vm.demand.memory_mib
        (self.done if well else self.failed).add(i)
        if not well:
            if action.demands is not None:
                self.held[action.demands] -= memory
            return
        before, self.locations[name] = self.locations[name], action.after
        if before.state is VMState.RUNNING:
            self.held[before.node or ""] -= memory


@settings(max_examples=few(200))
@given(PROBLEMS, st.data())
def test_memory_is_kept_whatever_begins_first_and_whatever_fails(problem: Instance, data: st.DataObject) -> None:
    order = order_of(problem)
    assert check_order(problem[0], order.actions, order.needs) == []
    execution = Execution(problem[0], order.actions, order.needs)
    while steps := [("begin", i) for i in execution.ready()] + [("end", i) for i in sorted(execution.running)]:
        what, i = data.draw(st.sampled_from(steps))
        if what == "begin":
            assert execution.begin(i), f"{order.actions[i]}: no memory"
        else:
            execution.end(i, well=data.draw(st.integers(0, 5)) > 0)
    event(f"failed: {min(3, len(execution.failed))}")
    skipped = set(range(len(order.actions))) - execution.done - execution.failed
    assert all(set(order.needs[i]) & (execution.failed | skipped) for i in skipped), "only what needs a failed one"


def prefixes(needs: Sequence[Sequence[int]]) -> Iterator[set[int]]:
    """All sets of actions that contain what each of them needs."""
    found = {frozenset[int]()}
    for i, own in enumerate(needs):
        found |= {each | {i} for each in found if each.issuperset(own)}
    yield from map(set, found)


def overcommits(source: Configuration, actions: Sequence[Action], needs: Sequence[Sequence[int]]) -> bool:
    """Whether any interleaving does: whatever has begun, only what something that has begun needs has ended."""
    for begun in prefixes(needs):
        execution = Execution(source, actions, needs)
        ended = {need for i in begun for need in needs[i]}
        fits = True
        for i in sorted(begun):
            fits = execution.begin(i) and fits
            if i in ended:
                execution.end(i, well=True)
        for node, held in execution.held.items():
            came = any(actions[i].demands == node for i in begun - ended)
            if came and held > source.node_by_name[node].capacity.memory_mib:
                return True
    return False


@settings(max_examples=few(200))
@given(PROBLEMS, st.data())
def test_the_checker_of_orders_says_what_all_interleavings_say(problem: Instance, data: st.DataObject) -> None:
    order = order_of(problem)
    assume(0 < len(order.actions) <= 8)
    last: dict[str, int] = {}
    needs = []
    for i, (action, own) in enumerate(zip(order.actions, order.needs, strict=True)):
        kept = {need for need in own if data.draw(st.integers(0, 4)) > 0}
        needs.append(tuple(sorted(kept | ({last[action.vm.name]} & {*range(i)} if action.vm.name in last else set()))))
        last[action.vm.name] = i
    event(f"dropped: {needs != list(order.needs)}")
    wrong = overcommits(problem[0], order.actions, needs)
    event(f"overcommits: {wrong}")
    assert bool(check_order(problem[0], order.actions, needs)) == wrong
