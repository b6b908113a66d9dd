"""Ends: the least cost of the rest of a plan, over all viable ends of a switch at once.

``Remaining`` looks at each guest and each node by itself. If nodes are crowded, few ends hold all guests together, and
the cheapest of those gives a better bound. It takes some 100 microseconds, so only states that the search takes up are
looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from rmsplugin.planning.order.remaining import leavers_of, wait_for
from rmsplugin.planning.order.switch import State, Switch

#: A guard against endless work: the number of ways to place guests that are tried, whether they lead to an end or to
#: none.
#: With more ends there is room, so that ``Remaining`` is good enough.
_MOST_WAYS = 20_000

#: The number of them that are tried in the time of one candidate.
_WAYS_A_CANDIDATE = 4

#: The cost of a bound, in candidates of the search: a constant, and one candidate for each so many ends.
_CANDIDATES, _ENDS_A_CANDIDATE = 20, 20

#: Stands for ``NEVER`` where it is summed up in 64 bits.
_FAR = 1 << 56


class Ends:
    """Bounds for the states of one switch; none if it has too many ends.

    Attributes:
        built: the work of finding all ends, in candidates of the search.
        work: the work of one bound.
    """

    def __init__(self, switch: Switch) -> None:
        """Find all viable ends."""
        self._switch = switch
        self._guests = np.arange(len(switch.kind_of))
        ways = list(itertools.islice(_viable(switch), _MOST_WAYS + 1))
        found = [end for end in ways if end is not None] if len(ways) <= _MOST_WAYS else []
        self._ends = np.array(found, dtype=np.int64).reshape(len(found), len(switch.kind_of))
        self.built = len(ways) // _WAYS_A_CANDIDATE
        self.work = _CANDIDATES + len(found) // _ENDS_A_CANDIDATE

    def of(self, state: State, elapsed: int) -> int:
        """The bound for a state after pools that cost ``elapsed`` together, and after the departures; 0 if unknown."""
        if not self._ends.size:
            return 0
        return int(self._costs(state, elapsed)[self._guests, self._ends].sum(axis=1).min())

    def _costs(self, state: State, elapsed: int) -> np.ndarray:
        """The least cost of each guest if it ends on each node, whatever the others do."""
        switch, free = self._switch, self._switch.free(state.positions)
        leavers = leavers_of(switch, state)
        costs = np.zeros((len(self._guests), len(free)), dtype=np.int64)
        for guest, (kind, position) in enumerate(zip(switch.kind_of, state.positions, strict=True)):
            memory = switch.kinds[kind].memory_mib
            sleeps = switch.asleep <= position < switch.waiting  # it may resume elsewhere, to be with its vjob
            for end in switch.kinds[kind].ends:
                if position != end:
                    wait = 0 if sleeps else min(wait_for(memory - free[end], leavers[end]), _FAR)
                    costs[guest, end] = elapsed + switch.own(kind, position, end) + wait
        return costs


def _viable(switch: Switch) -> Iterator[tuple[int, ...] | None]:
    """The ends of all guests, and None for each dead end; the largest is placed first, which makes dead ends short."""
    kinds = [switch.kinds[kind] for kind in switch.kind_of]
    order = sorted(range(len(kinds)), key=lambda guest: (-kinds[guest].centi_cpus, -kinds[guest].memory_mib))
    left = [list(each) for each in switch.capacity or ()]
    chosen = [0] * len(kinds)

    def choose(at: int) -> Iterator[tuple[int, ...] | None]:
        if at == len(order):
            yield tuple(chosen) if switch.most_nodes is None or len(set(chosen)) <= switch.most_nodes else None
            return
        guest = order[at]
        kind = kinds[guest]
        for end in kind.ends:
            chosen[guest] = end
            if switch.capacity is None:
                yield from choose(at + 1)
            elif left[end][0] >= kind.centi_cpus and left[end][1] >= kind.memory_mib:
                left[end][0] -= kind.centi_cpus
                left[end][1] -= kind.memory_mib
                yield from choose(at + 1)
                left[end][0] += kind.centi_cpus
                left[end][1] += kind.memory_mib
            else:
                yield None

    if order:
        yield from choose(0)
