"""Ruled: pools in whose course no VM comes where a rule about VMs beside each other bars it from.

The plan of the ordinary builder is taken if it breaks no rule, for rules seldom touch the order. Otherwise pools are
built here as there, but an arrival is feasible only if no rule bars it while all others of the pool are at both of
their ends. Where nothing is feasible a VM that must migrate goes over a pivot or is saved, whether memory or a rule is
what others wait for. There is always a way where platforms can save VMs: nobody who leaves breaks a rule, and the
target obeys all. If rules bar many arrivals meanwhile, the ordinary builder is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location
from rmsplugin.model.joint import Concerning
from rmsplugin.model.standing import Standing
from rmsplugin.planning.order.builder import plan_of
from rmsplugin.planning.order.bypass import DeadlockedError
from rmsplugin.planning.order.moves import NOWHERE, Moves, moves_between
from rmsplugin.planning.order.pools import ASLEEP, Schedule, Steering, Step
from rmsplugin.planning.order.ranking import Ranking
from rmsplugin.planning.plan import Plan, Unreachable

#: If rules have barred more arrivals from pools, no order that does not know them obeys them.
_MANY = 16


def build_by_rules(source: Configuration, target: Mapping[str, Location]) -> Plan | Unreachable:
    """The plan to a target that obeys all rules, with no VM in the way of a rule at any step; see ``build_plan``."""
    moves = moves_between(source, target)
    if isinstance(moves, Unreachable):
        return moves
    schedule = RuledSchedule(moves, Ranking(moves, frozenset()), source)
    try:
        schedule.build(break_one)
    except DeadlockedError as error:
        found: Plan | Unreachable = Unreachable(str(error))
    else:
        found = Plan(schedule.actions())
    if isinstance(found, Plan) and schedule.barred > _MANY:
        return found
    plan = plan_of(moves)
    return plan if isinstance(plan, Unreachable) or obeyed_by(source, plan.pools) else found


def obeyed_by(source: Configuration, pools: Iterable[Sequence[Action]]) -> bool:
    """Whether the rules for every step bar no arrival of a plan, while all of its pool are at both of their ends."""
    standing, concerning = Standing(source.homes, source.homes.items()), source.concerning_steps
    for pool in pools:
        for action in pool:
            if action.demands is None or action.kind is ActionKind.UNPAUSE:
                continue
            if not _is_open(concerning, standing, action.vm.name, action.demands):
                return False
            standing.put(action.vm.name, action.demands)
        for action in pool:
            name, left = action.vm.name, action.source
            moves = action.kind not in (ActionKind.PAUSE, ActionKind.UNPAUSE) and left != action.demands
            if moves and left is not None and left in standing.nodes_of(name):
                standing.remove(name, left)
    return True


def _is_open(concerning: Concerning, standing: Standing, vm: str, node: str) -> bool:
    """Whether no rule bars a VM from a node."""
    return all(rule.lets(vm, node, standing) for rule in concerning.of(vm))


class RuledSchedule(Schedule):
    """A plan under construction by rules."""

    def __init__(self, moves: Moves, ranking: Ranking, source: Configuration) -> None:
        super().__init__(moves, Steering(), ranking)
        self._concerning = source.concerning_steps
        self.standing = Standing(source.homes, source.homes.items())
        self.barred = 0  # the number of times that a rule kept an arrival from its destination

    def is_open(self, move: int, node: int) -> bool:
        """Whether an arrival's VM may come to a node now."""
        return _is_open(self._concerning, self.standing, self.moves.actions[move].vm.name, self.moves.names[node])

    def _feasible(self, cap: int | None) -> list[Step]:
        """All units with room that no rule bars, the first ones first."""
        steps: list[Step] = []
        for unit in sorted(self.pending, key=self._rank.__getitem__):
            members = self.moves.members(unit)
            if self.has_room(unit) and self._come(members):
                for node, memory in self.moves.needed(unit):
                    self.free[node] -= memory
                self.pending.remove(unit)
                steps += [Step(each, self.place(each)) for each in members]
        return steps

    def has_room(self, unit: int) -> bool:
        """Whether there is memory for a unit."""
        return all(self.free[node] >= memory for node, memory in self.moves.needed(unit))

    def _come(self, members: Sequence[int]) -> bool:
        """Let all of a unit come to where they end, or none, if a rule bars one."""
        for number, each in enumerate(members):
            if not self.is_open(each, self.moves.destination[each]):
                self.barred += 1
                for other in members[:number]:
                    self.standing.remove(self._vm(other), self.moves.names[self.moves.destination[other]])
                return False
            self.standing.put(self._vm(each), self.moves.names[self.moves.destination[each]])
        return True

    def could_come(self, unit: int) -> bool:
        """Whether a unit is feasible now."""
        members = self.moves.members(unit)
        if not self.has_room(unit) or not self._come(members):
            return False
        for each in members:
            self.standing.remove(self._vm(each), self.moves.names[self.moves.destination[each]])
        return True

    def bypass(self, move: int, pivot: int) -> Step:
        """Send an arrival on a detour."""
        if pivot != ASLEEP:
            self.standing.put(self._vm(move), self.moves.names[pivot])
        return super().bypass(move, pivot)

    def helps(self, move: int) -> bool:
        """Whether another arrival is feasible once an arrival's VM has left where it is."""
        here = self.place(move)
        self.standing.remove(self._vm(move), self.moves.names[here])
        self.free[here] += self.moves.memory[move]
        found = any(self.could_come(unit) for unit in self.pending if unit != move)
        self.free[here] -= self.moves.memory[move]
        self.standing.put(self._vm(move), self.moves.names[here])
        return found

    def _close(self, steps: list[Step], *, is_first: bool = False) -> None:
        """End a pool: those that left are gone."""
        if is_first:
            for action in self.moves.departures:
                if action.source in self.standing.nodes_of(action.vm.name) and action.source is not None:
                    self.standing.remove(action.vm.name, action.source)
        for step in steps:
            if step.here != NOWHERE:
                self.standing.remove(self._vm(step.move), self.moves.names[step.here])
        super()._close(steps, is_first=is_first)

    def _vm(self, move: int) -> str:
        return self.moves.actions[move].vm.name


def break_one(schedule: Schedule) -> list[Step]:
    """One bypass: of the smallest VM whose leaving makes an arrival feasible, over a pivot if there is one.

    If none does so alone, the first that can leave does: preemptible ones are saved first.
    """
    assert isinstance(schedule, RuledSchedule)
    moves = schedule.moves
    runs = [unit for unit in schedule.pending if schedule.place(unit) != NOWHERE]
    runs.sort(key=lambda unit: (not moves.vjobs[unit].preemptible, moves.memory[unit], moves.actions[unit].vm.name))
    helping = [unit for unit in runs if schedule.helps(unit)]
    for unit in helping:
        pivot = _pivot(schedule, unit)
        if pivot is not None:
            return [schedule.bypass(unit, pivot)]
    for unit in (*helping, *runs):
        if moves.vjobs[unit].can.suspend and moves.vjobs[unit].can.elsewhere:
            return [schedule.bypass(unit, ASLEEP)]
    raise DeadlockedError(moves.actions[unit].vm.name for unit in schedule.pending)


def _pivot(schedule: RuledSchedule, unit: int) -> int | None:
    """The node with the least room that is enough, of those that take VMs and that no rule closes."""
    moves = schedule.moves
    if not schedule.may_pivot(unit):
        return None
    apart = (schedule.place(unit), moves.destination[unit])
    rooms = [
        (free, node)
        for node, free in enumerate(schedule.free)
        if moves.up[node] and free >= moves.memory[unit] and node not in apart
    ]
    for _, node in sorted(rooms):
        if moves.vjobs[unit].allows(moves.names[node]) and schedule.is_open(unit, node):
            return node
    return None
