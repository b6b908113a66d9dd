"""Pools: the greedy construction of RR-6929 section 4.1, pool after pool, steered by `Steering`.

Rules: (R1) all departures are in the first pool; (R2) all resumes of one vjob are in one pool; (R3) an arrival is
feasible when its destination has memory for all arrivals of the pool at the pool's start. A pool takes every feasible
arrival that steering does not hold back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmsplugin.model.action import Action, ActionKind, migrate, resume, suspend
from rmsplugin.planning.cost import local_cost
from rmsplugin.planning.order.moves import NOWHERE, Moves


class Way(NamedTuple):
    """How a bypass goes: over a node, or (``pivot`` is NOWHERE) asleep."""

    pivot: int


ASLEEP = Way(NOWHERE)


class Step(NamedTuple):
    """One arrival's next step: ``bypass`` is its way, None if it arrives; ``here`` is the node that it leaves."""

    move: int
    here: int
    bypass: Way | None = None


@dataclass(frozen=True, slots=True)
class Steering:
    """What steers the greedy; the default is the plain greedy, which holds nothing back.

    ``caps``: by pool, the cost in MiB above which arrivals are held back; a cap gives way where nothing else would be
    feasible. ``ways``: bypasses to take as soon as there is room.
    """

    unblock_first: bool = False  # prefer arrivals that leave a node on which others wait
    caps: tuple[int | None, ...] = ()
    ways: Mapping[int, Way] = field(default_factory=dict)

    def cap(self, pool: int) -> int | None:
        """The cost above which arrivals are held back from a pool (counted from 0)."""
        return self.caps[pool] if pool < len(self.caps) else None


#: Chooses bypasses for a schedule in which nothing is feasible; at least one.
Breaker = Callable[["Schedule"], list[Step]]


class Ranking:
    """In which order the units of a reconfiguration are considered, for each kind of steering.

    Every later action pays the cost of all pools before, whatever its own size: the smallest first takes most of them.
    """

    def __init__(self, moves: Moves, early: frozenset[str]) -> None:
        self._moves = moves
        self._early = early
        self._by_kind: dict[bool, tuple[list[int], dict[int, int]]] = {}

    def of(self, unblock_first: bool) -> tuple[list[int], dict[int, int]]:
        """All units in order, and the place of each."""
        if unblock_first not in self._by_kind:
            order = sorted(self._moves.units, key=lambda unit: self._key(unit, unblock_first))
            self._by_kind[unblock_first] = (order, {unit: place for place, unit in enumerate(order)})
        return self._by_kind[unblock_first]

    def _key(self, unit: int, unblock_first: bool) -> tuple[bool, bool, float, bool, str]:
        moves, members = self._moves, self._moves.members(unit)
        early = bool(self._early) and any(moves.actions[each].vm.name in self._early for each in members)
        origin = moves.origin[unit]
        unblocks = unblock_first and origin != NOWHERE and moves.wanted(origin) > moves.free[origin]
        mean = sum(moves.memory[each] for each in members) / len(members)
        return not early, not unblocks, mean, origin == NOWHERE, moves.actions[unit].vm.name


class Schedule:
    """The pools built so far and what they lead to; memory and costs in MiB."""

    def __init__(self, moves: Moves, steering: Steering, ranking: Ranking) -> None:
        self.moves = moves
        self.steering = steering
        self.free = list(moves.free)
        self.pending = set(moves.units)
        self.pools: list[list[Step]] = []
        self.used_ways: dict[int, Way] = {}  # the bypasses taken
        self.asleep = [0, 0]  # VMs suspended for a bypass: of preemptible vjobs, of others
        self.work = len(moves.units)  # how much there was to look at: a measure of time that is the same everywhere
        self.cost = 0
        self.before = 0  # the cost of all pools so far
        self.places: dict[int, int] = {}  # of arrivals that were bypassed: a pivot, or NOWHERE while asleep
        self.pivoted: set[int] = set()
        self._ways = dict(steering.ways)
        order, self._rank = ranking.of(steering.unblock_first)
        self._held: list[int] = []
        self._left, self._left_cost = moves.arrivals, moves.arrivals_cost
        guests = [unit for unit in steering.ways if unit not in self._rank]
        for unit in guests:
            self.join(unit)
        self._candidates = order + guests

    def join(self, unit: int) -> None:
        """Let a VM that stays take part: it makes a detour, and comes back (``Moves.stayers``)."""
        self.pending.add(unit)
        self._left += 1
        self._left_cost += self.moves.cost[unit]

    def _forget_ways(self) -> None:
        """Let be the bypasses that were asked for and have no room, and the detours that have not begun."""
        for unit in self._ways:
            if unit not in self._rank and unit not in self.places:
                self.pending.remove(unit)
                self._left -= 1
                self._left_cost -= self.moves.cost[unit]
        self._ways = {}

    def place(self, move: int) -> int:
        """The node where an arrival's VM runs now, or NOWHERE."""
        return self.places[move] if move in self.places else self.moves.origin[move]

    def price(self, move: int) -> int:
        """What it costs to let an arrival arrive from where it is."""
        if self.places.get(move) != NOWHERE:
            return self.moves.cost[move]
        return 2 * self.moves.memory[move]  # asleep elsewhere: the saved state must be copied

    def build(self, break_cycles: Breaker, limit: int | None = None) -> bool:
        """Build all pools.

        Every round takes a unit for good or bypasses a VM, and each VM is bypassed twice at most (once over a pivot,
        once asleep), so this ends; ``break_cycles`` says why it always finds a bypass.

        Args:
            break_cycles: called when nothing is feasible.
            limit: give up as soon as the cost cannot end below this.

        Returns:
            Whether the plan is complete (and cheaper than ``limit``).
        """
        departures = self.moves.departures
        if departures:
            gains = list(self.moves.gains)
            self._close(
                self._take(self.steering.cap(0)), gains, len(departures), [local_cost(each) for each in departures]
            )
        while self.pending:
            if limit is not None and self.cost + self.before * self._left + self._left_cost >= limit:
                return False
            cap = self.steering.cap(len(self.pools))
            steps = self._take(cap)
            if not steps and cap is not None:
                steps = self._take(None)
            if not steps and self._ways:
                self._forget_ways()
                steps = self._take(None)
            if not steps and self.pending:
                self.work += len(self.free) + len(self.pending)
                steps = break_cycles(self)
            if steps:
                self._close(steps, [])
        if any(self.asleep):
            self._gather()
        return limit is None or self.cost < limit

    def _gather(self) -> None:
        """Put all resumes of a vjob into the pool of the last, those of VMs that were bypassed asleep included (R2).

        A VM that sleeps for longer takes nothing from anybody: its room on its destination stays empty meanwhile.
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
        self.cost = self.before = 0
        for number, steps in enumerate(self.pools):
            local = [local_cost(each) for each in self.moves.departures] if number == 0 else []
            local += [self.moves.memory[step.move] if step.bypass else self.price(step.move) for step in steps]
            self.cost += sum(local) + self.before * len(local)
            self.before += max(local, default=0)

    def _is_resume(self, step: Step) -> bool:
        is_run = self.moves.actions[step.move].kind is ActionKind.RUN
        return step.bypass is None and step.here == NOWHERE and not is_run

    def _take(self, cap: int | None) -> list[Step]:
        """All feasible arrivals among the candidates; those above ``cap`` are held back."""
        moves, free, pending, ways = self.moves, self.free, self.pending, self._ways
        self.work += len(self._candidates)
        steps: list[Step] = []
        held = self._held = []
        for unit in self._candidates:
            if unit not in pending:
                continue
            if cap is not None and moves.dearest[unit] > cap:
                held.append(unit)
            elif unit in moves.groups:
                needs = moves.needs[unit]
                if all(free[node] >= memory for node, memory in needs):
                    for node, memory in needs:
                        free[node] -= memory
                    pending.remove(unit)
                    steps += [Step(each, NOWHERE) for each in moves.groups[unit]]
            elif unit in ways:
                way, memory = ways[unit], moves.memory[unit]
                held.append(unit)
                if way is ASLEEP or free[way.pivot] >= memory:
                    steps.append(self.bypass(unit, way))
            elif free[moves.destination[unit]] >= moves.memory[unit]:
                free[moves.destination[unit]] -= moves.memory[unit]
                pending.remove(unit)
                steps.append(Step(unit, self.place(unit)))
        return steps

    def bypass(self, move: int, way: Way) -> Step:
        """Let an arrival make a detour; its memory on the node it leaves comes back when the pool is closed."""
        step = Step(move, self.place(move), way)
        self._ways.pop(move, None)
        self.used_ways.setdefault(move, way)
        if way is not ASLEEP:
            self.free[way.pivot] -= self.moves.memory[move]
            self.pivoted.add(move)
        else:
            self.asleep[not self.moves.vjobs[move].preemptible] += 1
        self.places[move] = way.pivot
        self._left_cost += self.price(move) - self.moves.cost[move]
        self._held.append(move)
        return step

    def _close(
        self, steps: list[Step], gains: list[tuple[int, int]], others: int = 0, costs: Iterable[int] = ()
    ) -> None:
        """End a pool: count its cost, and give back the memory of all that left in it."""
        moves = self.moves
        arrived_cost, local = 0, list(costs)
        for step in steps:
            memory = moves.memory[step.move]
            if step.here != NOWHERE:
                gains.append((step.here, memory))
            if step.bypass is None:
                arrived_cost += (cost := self.price(step.move))
                self._left -= 1
            else:
                cost = memory
            local.append(cost)
        self._left_cost -= arrived_cost
        self.cost += sum(local) + self.before * (len(steps) + others)
        self.before += max(local, default=0)
        self.pools.append(steps)
        again = set(self._held)
        for node, memory in gains:
            self.free[node] += memory
        for node, _ in gains:
            again.update(moves.waiting[node])
        last = len(self._rank)
        self._candidates = sorted(again & self.pending, key=lambda unit: (self._rank.get(unit, last), unit))

    def actions(self) -> tuple[tuple[Action, ...], ...]:
        """The pools as actions, each pool sorted by kind, then by the VM's name."""
        images: dict[int, int] = {}  # where the state of a VM was saved that is bypassed asleep
        pools = [list(self.moves.departures) if number == 0 else [] for number in range(len(self.pools))]
        for pool, steps in zip(pools, self.pools, strict=True):
            pool += [self._action(step, images) for step in steps]
            pool.sort(key=in_pool)
        return tuple(tuple(pool) for pool in pools)

    def _action(self, step: Step, images: dict[int, int]) -> Action:
        planned, names = self.moves.actions[step.move], self.moves.names
        vm, destination = planned.vm, planned.destination or ""
        if step.bypass is ASLEEP:
            images[step.move] = step.here
            return suspend(vm, names[step.here], bypass=True)
        if step.bypass is not None:
            return migrate(vm, names[step.here], names[step.bypass.pivot], bypass=True)
        if step.move in images:
            return resume(vm, names[images[step.move]], destination, bypass=True)
        return planned if step.here == NOWHERE else migrate(vm, names[step.here], destination)


_ORDER = {kind: place for place, kind in enumerate(("stop", "suspend", "migrate", "run", "resume"))}


def in_pool(action: Action) -> tuple[int, str]:
    """The key by which the actions of a pool are sorted."""
    return _ORDER[action.kind], action.vm.name
