"""Pools: the greedy construction of RR-6929 section 4.1, pool after pool, steered by `Steering`.

Rules: (R1) all departures are in the first pool; (R2) all resumes of one vjob are in one pool; (R3) an arrival is
feasible when its destination has memory for all arrivals of the pool at the pool's start. A pool takes every feasible
arrival that steering does not hold back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmsplugin.model.action import Action, ActionKind, migrate, resume, suspend
from rmsplugin.model.elements import VJob
from rmsplugin.planning.cost import local_cost
from rmsplugin.planning.order.bill import Bill
from rmsplugin.planning.order.moves import NOWHERE, Moves
from rmsplugin.planning.order.ranking import Ranking

#: Stands for a pivot: the bypass is a suspend, and a resume at the destination.
ASLEEP = NOWHERE


class Step(NamedTuple):
    """One arrival's next step: ``bypass`` is its pivot or ASLEEP (None: it arrives); ``here`` is left."""

    move: int
    here: int
    bypass: int | None = None


@dataclass(frozen=True, slots=True)
class Steering:
    """The choices that steer the greedy; the default is the plain greedy, which holds nothing back.

    ``caps``: by pool, the cost in MiB above which arrivals are held back; a cap gives way if nothing else is
    feasible. ``bypasses``: pivots (or ASLEEP) to go to, by arrival, as soon as there is room.
    """

    unblock_first: bool = False  # prefer arrivals that leave a node for which others wait
    caps: tuple[int | None, ...] = ()
    bypasses: Mapping[int, int] = field(default_factory=dict)

    def cap(self, pool: int) -> int | None:
        """The cost above which arrivals are held back from a pool (counted from 0)."""
        return self.caps[pool] if pool < len(self.caps) else None


def _can(vjob: VJob, way: int) -> bool:
    """Whether the platform of an arrival's VM can make this detour with it."""
    return vjob.can.suspend and vjob.can.elsewhere if way == ASLEEP else vjob.can.migrate


#: Chooses at least one bypass for a schedule in which nothing is feasible.
Breaker = Callable[["Schedule"], list[Step]]


class Schedule:
    """A plan under construction: the places of VMs, and the pools so far (``pools``).

    Its orders are in ``Steering``, its cost is in ``Bill``; memory and costs are in MiB.
    """

    def __init__(self, moves: Moves, steering: Steering, ranking: Ranking) -> None:
        self.moves = moves
        self.steering = steering
        self.free = list(moves.free)
        self.pending = set(moves.units)
        self.pools: list[list[Step]] = []
        self.work = len(moves.units)  # the number of units looked at: a measure of time that is the same everywhere
        self._bill = Bill(len(moves.actions), moves.arrivals_cost)
        self._stops: dict[int, int] = {}  # of arrivals that were bypassed: a pivot, or ASLEEP
        ways = steering.bypasses.items()
        self._wanted = {move: way for move, way in ways if _can(moves.vjobs[move], way)}  # those that did not begin yet
        order, self._rank = ranking.of(steering.unblock_first)
        self._candidates = order  # arrivals that could be feasible, because something changed
        self._held: list[int] = []  # those of them that were held back

    # -- what there is to see ------------------------------------------------------------------------------------

    @property
    def cost(self) -> int:
        """The cost of all pools so far."""
        return self._bill.cost

    @property
    def bypasses(self) -> dict[int, int]:
        """The first bypass of each arrival that made one."""
        found: dict[int, int] = {}
        for step in itertools.chain.from_iterable(self.pools):
            if step.bypass is not None:
                found.setdefault(step.move, step.bypass)
        return found

    @property
    def suspended(self) -> tuple[int, int]:
        """The number of VMs that are suspended for a bypass: of preemptible vjobs, and of others."""
        asleep = [step.move for step in itertools.chain.from_iterable(self.pools) if step.bypass == ASLEEP]
        firm = sum(not self.moves.vjobs[move].preemptible for move in asleep)
        return len(asleep) - firm, firm

    def place(self, move: int) -> int:
        """The node where an arrival's VM runs now, or NOWHERE."""
        return self._stops[move] if move in self._stops else self.moves.origin[move]

    def may_pivot(self, move: int) -> bool:
        """Whether an arrival still runs where it was at first: it takes a pivot once, and before it is suspended."""
        return move not in self._stops and self.moves.origin[move] != NOWHERE

    def price(self, move: int) -> int:
        """The cost of an arrival from its present place."""
        if self._stops.get(move) != ASLEEP:
            return self.moves.cost[move]
        return 2 * self.moves.memory[move]  # asleep elsewhere: the saved state must be copied

    # -- building ------------------------------------------------------------------------------------------------

    def build(self, break_cycles: Breaker, limit: int | None = None) -> bool:
        """Build all pools.

        Every round takes a unit for good or bypasses a VM, and each VM is bypassed at most twice (once over a pivot,
        once asleep), so this ends; ``break_cycles`` tells why it always finds a bypass.

        Args:
            break_cycles: called when nothing is feasible.
            limit: give up as soon as the cost cannot end below this.

        Returns:
            Whether the plan is complete (and cheaper than ``limit``).
        """
        if self.moves.departures:
            self._close(self._feasible(self.steering.cap(0)), is_first=True)
        while self.pending:
            if limit is not None and self._bill.at_least >= limit:
                return False
            self._close(self._next(break_cycles))
        if any(step.bypass == ASLEEP for step in itertools.chain.from_iterable(self.pools)):
            self._gather()
        return limit is None or self.cost < limit

    def _next(self, break_cycles: Breaker) -> list[Step]:
        """The actions of the next pool; holding back gives way where nothing else is feasible."""
        cap = self.steering.cap(len(self.pools))
        steps = self._feasible(cap)
        if not steps and cap is not None:
            steps = self._feasible(None)
        if not steps and self._wanted:
            self._wanted = {}  # those that were asked for have no room
            steps = self._feasible(None)
        if not steps and self.pending:
            self.work += len(self.free) + len(self.pending)
            steps = break_cycles(self)
        return steps

    def _feasible(self, cap: int | None) -> list[Step]:
        """All feasible arrivals among the candidates; arrivals above ``cap`` are held back."""
        moves = self.moves
        self.work += len(self._candidates)
        steps: list[Step] = []
        held = self._held = []
        for unit in self._candidates:
            if unit not in self.pending:
                continue
            if cap is not None and moves.dearest[unit] > cap:
                held.append(unit)
            elif unit in self._wanted:
                pivot = self._wanted[unit]
                held.append(unit)
                if pivot == ASLEEP or self.free[pivot] >= moves.memory[unit]:
                    steps.append(self.bypass(unit, pivot))
            elif all(self.free[node] >= memory for node, memory in moves.needed(unit)):
                for node, memory in moves.needed(unit):
                    self.free[node] -= memory
                self.pending.remove(unit)
                steps += [Step(each, self.place(each)) for each in moves.members(unit)]
        return steps

    def bypass(self, move: int, pivot: int) -> Step:
        """Send an arrival on a detour; its memory on the node that it leaves comes back when the pool is closed."""
        step = Step(move, self.place(move), pivot)
        self._wanted.pop(move, None)
        if pivot != ASLEEP:
            self.free[pivot] -= self.moves.memory[move]
        self._stops[move] = pivot
        self._bill.owe(0, self.price(move) - self.moves.cost[move])
        return step

    def _close(self, steps: list[Step], *, is_first: bool = False) -> None:
        """End a pool: count its cost, and give back the memory of all that left in it; the departures leave first."""
        if not steps and not is_first:
            return
        moves = self.moves
        gains = [*(moves.gains if is_first else ()), *self._left_by(steps)]
        for step in steps:
            if step.bypass is None:
                self._bill.owe(-1, -self.price(step.move))
        self._bill.close(self._costs(steps, is_first))
        self.pools.append(steps)
        again = {*self._held, *(step.move for step in steps if step.bypass is not None)}
        for node, memory in gains:
            self.free[node] += memory
            again.update(moves.waiting[node])
        self._candidates = sorted(again & self.pending, key=self._rank.__getitem__)

    def _left_by(self, steps: Iterable[Step]) -> Iterable[tuple[int, int]]:
        return ((step.here, self.moves.memory[step.move]) for step in steps if step.here != NOWHERE)

    def _costs(self, steps: Iterable[Step], is_first: bool) -> list[int]:
        """The local cost of each action of a pool."""
        costs = [local_cost(each) for each in self.moves.departures] if is_first else []
        return costs + [
            self.price(step.move) if step.bypass is None else self.moves.memory[step.move] for step in steps
        ]

    # -- the plan ------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Put all resumes of a vjob into the pool of the last one, also those of VMs that were bypassed asleep (R2).

        A VM that sleeps for longer takes nothing from others: its room on its destination stays empty meanwhile.
        """
        last = {
            self.moves.vjobs[step.move].name: number
            for number, steps in enumerate(self.pools)
            for step in steps
            if self._is_resume(step)
        }
        gathered: list[list[Step]] = [[] for _ in self.pools]
        for number, steps in enumerate(self.pools):
            for step in steps:
                at = last[self.moves.vjobs[step.move].name] if self._is_resume(step) else number
                gathered[at].append(step)
        keeps_first = bool(self.moves.departures)
        self.pools = [steps for number, steps in enumerate(gathered) if steps or (number == 0 and keeps_first)]
        self._bill = Bill(0, 0)
        for number, steps in enumerate(self.pools):
            self._bill.close(self._costs(steps, keeps_first and number == 0))

    def _is_resume(self, step: Step) -> bool:
        is_run = self.moves.actions[step.move].kind is ActionKind.RUN
        return step.bypass is None and step.here == NOWHERE and not is_run

    def actions(self) -> tuple[tuple[Action, ...], ...]:
        """The pools as actions, each pool sorted by kind, then by the VM's name."""
        images: dict[int, int] = {}  # by arrival: the node of the state of a VM that is bypassed asleep
        pools = [list(self.moves.departures) if number == 0 else [] for number in range(len(self.pools))]
        for pool, steps in zip(pools, self.pools, strict=True):
            pool += [self._action(step, images) for step in steps]
            pool.sort(key=in_pool)
        return tuple(tuple(pool) for pool in pools)

    def _action(self, step: Step, images: dict[int, int]) -> Action:
        planned, names = self.moves.actions[step.move], self.moves.names
        vm, destination = planned.vm, planned.destination or ""
        if step.bypass == ASLEEP:
            images[step.move] = step.here
            return suspend(vm, names[step.here], bypass=True)
        if step.bypass is not None:
            return migrate(vm, names[step.here], names[step.bypass], bypass=True)
        if step.move in images:
            return resume(vm, names[images[step.move]], destination, bypass=True)
        return planned if step.here == NOWHERE else migrate(vm, names[step.here], destination)


_ORDER = {kind: place for place, kind in enumerate(("stop", "suspend", "migrate", "run", "resume"))}


def in_pool(action: Action) -> tuple[int, str]:
    """The key by which the actions of a pool are sorted."""
    return _ORDER[action.kind], action.vm.name
