"""Successors: all pools that can follow a state of a switch, without those that lead above a threshold.

The price of the pool, its dearest action, is chosen first. Then the addition of each guest to the plan's cost is known,
whether it hops in this pool or not, and so is the least addition of the guests that were not asked yet.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rmsplugin.planning.order.switch import NEVER, UNIT, Hop, Option, State, Switch

#: The number of candidates between two reports.
_REPORTED = 256


class Following(NamedTuple):
    """A state to which a pool leads, the cost of all pools so far, and the own costs of all actions so far."""

    state: State
    elapsed: int
    spent: int
    hops: tuple[Hop, ...]


class Limits(Protocol):
    """The limits of the search: see ``rmsplugin.planning.order.exact``."""

    threshold: int
    interrupted: bool

    def leave_out(self, least: int) -> None:
        """Note the bound of a state above the threshold."""

    def count(self, looked_at: int) -> None:
        """Note the number of candidates looked at."""


def following(switch: Switch, state: State, costs: tuple[int, int], limits: Limits, is_first: bool) -> list[Following]:
    """All pools that can follow a state.

    Args:
        switch: the problem.
        state: the positions of all guests.
        costs: of all pools so far together, and of all actions so far.
        limits: the threshold, and the bound on the time.
        is_first: the departures are in this pool.
    """
    least = switch.departures_price if is_first else 0
    prices = {least} if is_first else set[int]()
    for kind, position in {*zip(switch.kind_of, state.positions, strict=True)}:
        prices |= {price for option in switch.options(kind, position) if (price := _price(option)) >= least}
    found: list[Following] = []
    for price in sorted(prices):
        pools = _Pools(switch, state, costs, limits, is_first, price)
        pools.extend()
        found += pools.found
        limits.count(pools.looked_at)
        if limits.interrupted:
            break
    return found


def _price(option: Option) -> int:
    return option.own - option.own % UNIT


class _Pools:
    """All pools of one price: a search that asks one guest after the other for its choice."""

    def __init__(
        self,
        switch: Switch,
        state: State,
        costs: tuple[int, int],
        limits: Limits,
        is_first: bool,
        price: int,
    ) -> None:
        self._switch, self._state, self._limits, self._price = switch, state, limits, price
        self._elapsed, self._spent = costs
        self._free = switch.free(state.positions)
        departures = 0
        if is_first:
            departures = switch.departures_cost
            for node, memory in enumerate(switch.given_back_mib):
                self._free[node] -= memory
        self._spent += departures
        self._reached = is_first and price == switch.departures_price
        self._gangs: dict[int, bool] = {}  # whether a vjob resumes in this pool, of those that were asked
        self._resuming: dict[int, int] = {}  # the number of a vjob's VMs that resume in this pool
        self._chosen: list[Option | None] = [None] * len(state.positions)
        self._order: list[int] = []
        self._choices: list[list[Option]] = []
        self._skips: list[int] = []
        self._rest: list[int] = []
        self._last = -1  # the last guest of those asked whose hop can cost the price
        self.found: list[Following] = []
        self.looked_at = 0

    def extend(self) -> None:
        """Find all pools."""
        switch, positions = self._switch, self._state.positions
        guests = []
        total = 0
        for guest, (kind, position) in enumerate(zip(switch.kind_of, positions, strict=True)):
            least = switch.least(kind, position)
            skip = self._elapsed + self._price + least if least else 0
            options = switch.options(kind, position)
            self.looked_at += len(options)
            choices = [each for each in options if self._is_possible(kind, each)]
            best = min((self._added(each) for each in choices), default=NEVER)
            total += min(skip, best)
            guests.append((guest, skip, best, choices))
        slack = self._limits.threshold - self._spent - total
        if slack < 0:
            self._limits.leave_out(self._spent + total)
            return
        base = self._spent
        left_out = NEVER
        ordered = []
        for guest, skip, best, choices in guests:
            fitting = []
            for each in choices:
                extra = self._added(each) - min(skip, best)
                if extra <= slack:
                    fitting.append(each)
                else:
                    left_out = min(left_out, extra)
            if not fitting:
                base += skip
                if self._is_asleep(positions[guest]):
                    self._gangs[switch.kinds[switch.kind_of[guest]].gang] = False
            else:
                ordered.append((not self._is_asleep(positions[guest]), guest, skip, best, fitting))
        if left_out < NEVER:
            self._limits.leave_out(self._spent + total + left_out)
        ordered.sort(key=lambda each: each[:2])
        self._order = [guest for _, guest, *_ in ordered]
        self._choices = [fitting for *_, fitting in ordered]
        self._skips = [skip for _, _, skip, *_ in ordered]
        self._rest = [0] * (len(ordered) + 1)
        for at in range(len(ordered) - 1, -1, -1):
            self._rest[at] = self._rest[at + 1] + min(ordered[at][2], ordered[at][3])
        self._last = max(
            (at for at, choices in enumerate(self._choices) if any(_price(each) == self._price for each in choices)),
            default=-1,
        )
        self._ask(0, base, self._reached, 0)

    def _is_asleep(self, position: int) -> bool:
        return self._switch.asleep <= position < self._switch.waiting

    def _is_possible(self, kind: int, option: Option) -> bool:
        if option.own > self._price + UNIT - 1:
            return False
        return option.there >= len(self._free) or self._free[option.there] >= self._switch.kinds[kind].memory_mib

    def _added(self, option: Option) -> int:
        """The least addition of a guest to the plan's cost if it takes an option."""
        return self._elapsed + option.own + (self._elapsed + self._price + option.later if option.later else 0)

    def _ask(self, at: int, bound: int, reached: bool, first: int) -> None:
        """Try all options of a guest, and of all after it.

        Args:
            at: its place in the order.
            bound: the additions of the guests before it, and of those not asked, to the cost paid before.
            reached: whether an action costs the price already.
            first: the first of the guest's choices that may be taken: equal guests choose in order.
        """
        self.looked_at += 1
        if self.looked_at >= _REPORTED:
            self._limits.count(self.looked_at)
            self.looked_at = 0
        if self._limits.interrupted:
            return
        least = bound + self._rest[at]
        if least > self._limits.threshold:
            self._limits.leave_out(least)
            return
        if not reached and at > self._last:
            return
        if at == len(self._order):
            self._add()
            return
        guest, choices = self._order[at], self._choices[at]
        for number in range(first, len(choices)):
            option = choices[number]
            if self._begin(guest, option):
                self._chosen[guest] = option
                self._ask(
                    at + 1,
                    bound + self._added(option),
                    reached or _price(option) == self._price,
                    number if self._is_like_next(at) else 0,
                )
                self._chosen[guest] = None
                self._undo(guest, option)
        self._skip(at, bound + self._skips[at], reached)

    def _skip(self, at: int, bound: int, reached: bool) -> None:
        guest = self._order[at]
        following = len(self._choices[at]) if self._is_like_next(at) else 0
        if not self._is_asleep(self._state.positions[guest]):
            self._ask(at + 1, bound, reached, following)
            return
        gang = self._gang(guest)
        if self._gangs.get(gang) is not True:
            known = gang in self._gangs
            self._gangs[gang] = False
            self._ask(at + 1, bound, reached, following)
            if not known:
                del self._gangs[gang]

    def _gang(self, guest: int) -> int:
        return self._switch.kinds[self._switch.kind_of[guest]].gang

    def _is_like_next(self, at: int) -> bool:
        if at + 1 == len(self._order):
            return False
        one, other = self._order[at], self._order[at + 1]
        positions, kinds = self._state.positions, self._switch.kind_of
        return positions[one] == positions[other] and kinds[one] == kinds[other]

    def _begin(self, guest: int, option: Option) -> bool:
        """Take the room for a hop, if there is some and nothing else forbids the hop."""
        switch, there = self._switch, option.there
        kind = switch.kinds[switch.kind_of[guest]]
        if there >= switch.asleep:  # suspended
            return self._may_sleep(guest)
        if self._free[there] < kind.memory_mib:
            return False
        if self._is_asleep(self._state.positions[guest]):
            if self._gangs.setdefault(kind.gang, True) is False:
                return False
            self._resuming[kind.gang] = self._resuming.get(kind.gang, 0) + 1
        self._free[there] -= kind.memory_mib
        return True

    def _may_sleep(self, guest: int) -> bool:
        switch, gang = self._switch, self._gang(guest)
        if self._gangs.get(gang) or self._state.resumed >> gang & 1:
            return False
        if switch.most_suspended is None:
            return True
        group = not switch.kinds[switch.kind_of[guest]].preemptible
        return self._suspended()[group] < switch.most_suspended[group]

    def _suspended(self) -> tuple[int, int]:
        """The number of guests suspended so far, of preemptible vjobs and of others."""
        switch, suspended = self._switch, list(self._state.suspended)
        for kind, option in zip(switch.kind_of, self._chosen, strict=True):
            if option is not None and option.there >= switch.asleep:
                suspended[not switch.kinds[kind].preemptible] += 1
        return suspended[0], suspended[1]

    def _undo(self, guest: int, option: Option) -> None:
        if option.there >= self._switch.asleep:
            return
        kind = self._switch.kinds[self._switch.kind_of[guest]]
        self._free[option.there] += kind.memory_mib
        if self._is_asleep(self._state.positions[guest]):
            self._resuming[kind.gang] -= 1
            if not self._resuming[kind.gang]:
                del self._gangs[kind.gang]

    def _add(self) -> None:
        switch = self._switch
        positions, hops, spent, resumed = [], [], self._spent, self._state.resumed
        for kind, here, option in zip(switch.kind_of, self._state.positions, self._chosen, strict=True):
            if option is None:
                positions.append((kind, here))
                continue
            positions.append((kind, option.there))
            hops.append(Hop(kind, here, option.there))
            spent += self._elapsed + option.own
            if switch.most_suspended != (0, 0) and self._is_asleep(here):
                resumed |= 1 << switch.kinds[kind].gang
        suspended = self._state.suspended if switch.most_suspended is None else self._suspended()
        state = State(tuple(position for _, position in sorted(positions)), resumed, suspended)
        self.found.append(Following(state, self._elapsed + self._price, spent, tuple(hops)))
