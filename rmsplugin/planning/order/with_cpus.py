"""With CPUs: pools in whose course no VM comes to a node that has not its CPUs yet (RR-6929 and VEE'09, section 4.1).

The ordinary plan counts CPUs in the end only (docs/decisions/0011). It comes first, for often it obeys all the same. If
it does not, pools are built here as by rules about VMs beside each other, but an arrival needs CPUs, too, at the
pool's start. There is always a way where platforms can save VMs: once all that must migrate sleep, each node has only
what it has in the end, and a node to which VMs come has CPUs for all then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState
from rmsplugin.planning.order.bypass import DeadlockedError
from rmsplugin.planning.order.moves import NOWHERE, Moves, moves_between
from rmsplugin.planning.order.pools import ASLEEP, Step
from rmsplugin.planning.order.ranking import Ranking
from rmsplugin.planning.order.ruled import RuledSchedule, break_one
from rmsplugin.planning.plan import Plan, Unreachable

#: Actions after which a VM runs that did not run on that node before.
_ARRIVALS = (ActionKind.RUN, ActionKind.RESUME, ActionKind.MIGRATE)


def plan_with_cpus(source: Configuration, target: Mapping[str, Location], plan: Plan) -> Plan | Unreachable:
    """A plan to a target with CPUs for each arrival at its pool's start: ``plan``, if it is one, else another.

    Args:
        source: the present configuration.
        target: the target of each VM; VMs that are not named stay.
        plan: a plan to it that obeys all else.
    """
    if _has_cpus(source, plan.pools):
        return plan
    moves = moves_between(source, target)
    if isinstance(moves, Unreachable):
        return moves
    schedule = _CpuSchedule(moves, source)
    try:
        schedule.build(break_one)
    except DeadlockedError as error:
        return Unreachable(str(error))
    return Plan(schedule.actions())


def _has_cpus(source: Configuration, pools: Iterable[Sequence[Action]]) -> bool:
    """Whether each arrival has its CPUs at its pool's start."""
    free = {node.name: source.free(node.name).centi_cpus for node in source.nodes}
    runs = {name: at.node for name, at in source.locations.items() if at.state is VMState.RUNNING}
    for pool in pools:
        left: list[tuple[str, int]] = []
        for action in pool:
            name, cpus, here = action.vm.name, action.vm.demand.centi_cpus, action.source
            if here is not None and runs.get(name) == here:
                left.append((here, cpus))
                del runs[name]
            if action.kind in _ARRIVALS and not action.paused and action.destination is not None:
                free[action.destination] -= cpus
                runs[name] = action.destination
                if cpus and free[action.destination] < 0:
                    return False
        for node, cpus in left:
            free[node] += cpus
    return True


class _CpuSchedule(RuledSchedule):
    """A plan under construction by rules and CPUs."""

    def __init__(self, moves: Moves, source: Configuration) -> None:
        super().__init__(moves, Ranking(moves, frozenset()), source)
        self._cpus = [source.free(name).centi_cpus for name in moves.names]

    def _demand(self, move: int) -> int:
        return self.moves.actions[move].vm.demand.centi_cpus

    def is_open(self, move: int, node: int) -> bool:
        """Whether an arrival's VM may come to a node now."""
        demand = self._demand(move)
        return (not demand or self._cpus[node] >= demand) and super().is_open(move, node)

    def has_room(self, unit: int) -> bool:
        """Whether there are memory and CPUs for a unit."""
        wanted: dict[int, int] = {}
        for each in self.moves.members(unit):
            wanted[self.moves.destination[each]] = wanted.get(self.moves.destination[each], 0) + self._demand(each)
        return super().has_room(unit) and all(not cpus or self._cpus[node] >= cpus for node, cpus in wanted.items())

    def _come(self, members: Sequence[int]) -> bool:
        if not super()._come(members):
            return False
        for each in members:
            self._cpus[self.moves.destination[each]] -= self._demand(each)
        return True

    def could_come(self, unit: int) -> bool:
        """Whether a unit is feasible now."""
        if not super().could_come(unit):
            return False
        for each in self.moves.members(unit):
            self._cpus[self.moves.destination[each]] += self._demand(each)
        return True

    def bypass(self, move: int, pivot: int) -> Step:
        """Send an arrival on a detour; its CPUs on the node that it leaves come back when the pool is closed."""
        if pivot != ASLEEP:
            self._cpus[pivot] -= self._demand(move)
        return super().bypass(move, pivot)

    def helps(self, move: int) -> bool:
        """Whether another arrival is feasible once an arrival's VM has left where it is."""
        here = self.place(move)
        self._cpus[here] += self._demand(move)
        found = super().helps(move)
        self._cpus[here] -= self._demand(move)
        return found

    def _close(self, steps: list[Step], *, is_first: bool = False) -> None:
        """End a pool: those that left have given their CPUs back."""
        for action in self.moves.departures if is_first else ():
            at = self.moves.source.locations[action.vm.name]
            if at.state is VMState.RUNNING and at.node is not None:
                self._cpus[self.moves.names.index(at.node)] += action.vm.demand.centi_cpus
        for step in steps:
            if step.here != NOWHERE:
                self._cpus[step.here] += self._demand(step.move)
        super()._close(steps, is_first=is_first)
