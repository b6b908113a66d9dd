"""Exhaustive: the cheapest plan for a decision on a small cluster, over all targets and all ways that the rules allow.

It shares nothing with the planner but the model's values. A pool is any set of actions that are feasible together; all
suspends and stops that were decided are in the first one, and all resumes of a vjob in one. VMs that run on may go over
other nodes, or sleep for a while; who resumes may do so anywhere, and move on. Who is paused in the end may be paused
at any time; who is paused and runs in the end goes on where it is then, with all that are paused of its vjob, and where
there are CPUs for that. Ways are continued from the one on that costs least at best; what is left out costs no less
than the limit that the search is given.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, Location, NodeState, VMState
from rmsplugin.model.vjob import VJobState

#: Where each VM is (a node; ``_ASLEEP`` and the node that has its image; ``_WAITING``; ``_PAUSED`` and the node that
#: has its memory), and which vjobs have resumed.
_State = tuple[tuple[int, ...], int]
_ASLEEP, _SHARED, _WAITING, _PAUSED = 100, 199, 200, 300

#: Vjobs with these states end on nodes; VMs with these have memory there.
_ON_NODES = (VJobState.RUNNING, VJobState.PAUSED)
_IN_MEMORY = (VMState.RUNNING, VMState.PAUSED)


def _node_of(position: int) -> int | None:
    """The node that has a VM's memory."""
    if position >= _PAUSED:
        return position - _PAUSED
    return position if position < _ASLEEP else None


def _sleeps(position: int) -> bool:
    return _ASLEEP <= position <= _SHARED


class TooLargeError(Exception):
    """The search was given up."""


@dataclass(frozen=True, slots=True)
class _Guest:
    """A VM that runs or is paused in the end: MiB, hundredths of CPUs."""

    memory: int
    cpus: int
    runs: bool  # in the end
    gang: int
    nodes: tuple[int, ...]  # where it may come
    ends: tuple[int, ...]  # where it may be in the end


class Problem:
    """What is decided, in numbers."""

    def __init__(
        self,
        source: Configuration,
        states: Mapping[str, VJobState],
        target: Mapping[str, Location],
        sample: Mapping[str, str],
        shared_store: bool = False,
        most_nodes: int | None = None,
    ) -> None:
        """State the problem.

        Args:
            source: the configuration now.
            states: the decided state of each vjob.
            target: where VMs end that are not on a node in the end; of others nothing is read.
            sample: the node of each VM that runs or is paused in the end, in the decision's own configuration: who is
                on a node there that drains, is overloaded, or is none for its vjob, and runs there now, stays.
            shared_store: whether who sleeps on the way has its state on storage that all nodes mount.
            most_nodes: on how many nodes VMs may run in the end; None: on any number.
        """
        self._source, self.shared_store = source, shared_store
        self._number = {node.name: i for i, node in enumerate(source.nodes)}
        self._up = [node.state is NodeState.UP for node in source.nodes]
        self._capacity = [(node.capacity.centi_cpus, node.capacity.memory_mib) for node in source.nodes]
        self._keeping = self._nodes_that_keep(states, sample)
        self.guests: list[_Guest] = []
        start: list[int] = []
        self.free = [memory for _, memory in self._capacity]  # while all that depart are there, and no guest is
        self.given_back = [0] * len(self._up)
        self._pinned = [(0, 0)] * len(self._up)
        self.departures: list[int] = []  # what each costs
        for gang, vjob in enumerate(source.vjobs):
            for vm in vjob.vms:
                here = source.locations[vm.name]
                if states[vjob.name] in _ON_NODES:
                    self._add(gang, vm.name, sample, start, states[vjob.name] is VJobState.RUNNING)
                elif here != target[vm.name]:
                    is_suspend = target[vm.name].state is VMState.SLEEPING
                    self.departures += [vm.demand.memory_mib if is_suspend else 0]
                    if here.state in _IN_MEMORY:
                        self.given_back[self._number[here.node or ""]] += vm.demand.memory_mib
        for node, memory in enumerate(self.given_back):
            self.free[node] -= memory
        self.start: _State = (tuple(start), 0)
        ends = self._all_ends()
        self.fewest_nodes = min((_count(end) for end in ends), default=0)
        self.ends = [end for end in ends if most_nodes is None or _count(end) <= most_nodes]
        self.least = self._least_costs()

    def _nodes_that_keep(self, states: Mapping[str, VJobState], sample: Mapping[str, str]) -> set[int]:
        load: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for vjob in self._source.vjobs:
            if states[vjob.name] in _ON_NODES:
                for vm in vjob.vms:
                    is_paused = states[vjob.name] is VJobState.PAUSED
                    load[sample[vm.name]][0] += 0 if is_paused else vm.demand.centi_cpus
                    load[sample[vm.name]][1] += vm.demand.memory_mib
        return {
            i
            for i, (node, capacity) in enumerate(zip(self._source.nodes, self._capacity, strict=True))
            if node.name in load
            and (not self._up[i] or any(a > b for a, b in zip(load[node.name], capacity, strict=True)))
        }

    def _add(self, gang: int, name: str, sample: Mapping[str, str], start: list[int], runs: bool) -> None:
        vjob, here = self._source.vjobs[gang], self._source.locations[name]
        demand = self._source.vm_by_name[name].demand
        at = self._number.get(here.node or "", -1)
        nodes = tuple(i for node, i in self._number.items() if self._up[i] and vjob.allows(node))
        stays = here.state in _IN_MEMORY and sample[name] == here.node
        if stays and (at in self._keeping or not vjob.allows(here.node or "")):
            c, m = self._pinned[at]
            self._pinned[at] = (c + (demand.centi_cpus if runs else 0), m + demand.memory_mib)
            ends: tuple[int, ...] = (at,)
        else:
            ends = nodes
        ends = ends if runs else tuple(_PAUSED + end for end in ends)
        self.guests.append(_Guest(demand.memory_mib, demand.centi_cpus, runs, gang, nodes, ends))
        if here.state is VMState.RUNNING:
            start.append(at)
        elif here.state is VMState.PAUSED:
            start.append(_PAUSED + at)
        elif here.state is VMState.SLEEPING:
            start.append(_SHARED if here.node == SHARED else _ASLEEP + at)
        else:
            start.append(_WAITING)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _all_ends(self) -> list[tuple[int, ...]]:
        """Where all may be in the end: each node has what is demanded, or nobody comes and those fit that stay."""
        found: list[tuple[int, ...]] = []
        for ends in itertools.product(*(guest.ends for guest in self.guests)):
            load = [[0, 0] for _ in self._up]
            came = [False] * len(self._up)
            for guest, here, end in zip(self.guests, self.start[0], ends, strict=True):
                node = _node_of(end) or 0
                load[node][0] += guest.cpus if guest.runs else 0
                load[node][1] += guest.memory
                came[node] |= _node_of(here) != node or (here >= _PAUSED and guest.runs)
            if all(self._is_viable(node, load[node], came[node]) for node in range(len(self._up))):
                found.append(ends)
        return found

    def _is_viable(self, node: int, load: list[int], came: bool) -> bool:
        capacity, pinned = self._capacity[node], self._pinned[node]
        if load[0] <= capacity[0] and load[1] <= capacity[1]:
            return not came or node not in self._keeping
        others = [of - fixed for of, fixed in zip(load, pinned, strict=True)]
        rooms = [max(0, of - fixed) for of, fixed in zip(capacity, pinned, strict=True)]
        return not came and node in self._keeping and all(a <= b for a, b in zip(others, rooms, strict=True))

    def own(self, guest: _Guest, here: int, end: int) -> int:
        """What a guest pays by itself at least, to come to an end."""
        node = _node_of(end) or 0
        if here == _WAITING or _node_of(here) == node:
            return 0
        return guest.memory * (2 if _sleeps(here) and here not in (_SHARED, _ASLEEP + node) else 1)

    def _least_costs(self) -> list[dict[int, int]]:
        positions = [*range(len(self._up)), *(_ASLEEP + i for i in range(len(self._up))), _SHARED, _WAITING]
        positions += [_PAUSED + i for i in range(len(self._up))]
        return [
            {here: min((self.own(guest, here, end) for end in guest.ends), default=0) for here in positions}
            for guest in self.guests
        ]

    def spare_cpus(self, positions: tuple[int, ...]) -> list[int]:
        """The hundredths of CPUs of each node that nobody computes with; who departs can be paused before."""
        spare = [cpus for cpus, _ in self._capacity]
        for guest, here in zip(self.guests, positions, strict=True):
            if here < _ASLEEP:
                spare[here] -= guest.cpus
        return spare


def _count(end: tuple[int, ...]) -> int:
    return len({_node_of(position) for position in end})


class Search:
    """One search for plans that cost less than a limit."""

    def __init__(self, problem: Problem, limit: int, most: int) -> None:
        """``most``: give up after so many steps."""
        self._problem, self._limit, self._left = problem, limit, most
        self._guests = problem.guests
        self._ends = frozenset(problem.ends)
        self._end_rows = np.array(problem.ends, dtype=np.int64).reshape(len(problem.ends), len(self._guests))
        self._columns: dict[tuple[int, int], np.ndarray] = {}
        self._needs: dict[tuple[int, int], np.ndarray] = {}

    def run(self) -> int | None:
        """The cost of the cheapest plan; None if none costs less than the limit.

        Raises:
            TooLargeError: it takes too long.
        """
        if not self._ends or self._limit <= 0:
            return None
        problem, number = self._problem, itertools.count()
        queue = [(0, next(number), 0, 0, problem.start, True)]
        seen: dict[_State, list[tuple[int, int]]] = {}
        while queue:
            _, _, spent, elapsed, state, is_first = heapq.heappop(queue)
            if (not is_first or not problem.departures) and state[0] in self._ends:
                return spent
            if not is_first:
                known = seen.setdefault(state, [])
                if any(a <= elapsed and b <= spent for a, b in known):
                    continue
                known.append((elapsed, spent))
            pools = [(*pool, False) for pool in self._pools(spent, elapsed, state, is_first)]
            if is_first and problem.departures:  # before those that depart some may be paused, or go on
                pools += [(*pool, True) for pool in self._pools(spent, elapsed, state, is_first, in_place=True)]
            for after, price, paid, first in pools:
                least = paid + self._remaining(after[0], elapsed + price)
                if least < self._limit:
                    heapq.heappush(queue, (least, next(number), paid, elapsed + price, after, first))
        return None

    def _remaining(self, positions: tuple[int, ...], elapsed: int) -> int:
        """What is paid at least: of each end what guests pay that are not there yet, and the cheapest end counts."""
        total = np.zeros(len(self._end_rows), dtype=np.int64)
        for at, here in enumerate(positions):
            if (at, here) not in self._columns:
                guest, ends = self._guests[at], self._end_rows[:, at]
                self._columns[at, here] = np.array([self._problem.own(guest, here, end) for end in ends.tolist()])
                self._needs[at, here] = (ends != here).astype(np.int64)
            total += self._columns[at, here] + elapsed * self._needs[at, here]
        return int(total.min())

    def _hops(self, at: int, here: int) -> Iterator[tuple[int, int]]:
        """Where a guest can go, and what that costs."""
        guest, host = self._guests[at], _node_of(here)
        for node in guest.nodes:
            if node != host:
                yield (_PAUSED + node if here >= _PAUSED else node), self._problem.own(guest, here, node)
        if host is not None:
            yield (_SHARED if self._problem.shared_store else _ASLEEP + host), guest.memory
        yield from self._in_place(at, here)

    def _in_place(self, at: int, here: int) -> Iterator[tuple[int, int]]:
        """A pause, or to go on."""
        guest = self._guests[at]
        if here < _ASLEEP and not guest.runs:
            yield _PAUSED + here, 0
        if here >= _PAUSED and guest.runs and here - _PAUSED in guest.nodes:
            yield here - _PAUSED, 0

    def _pools(
        self, spent: int, elapsed: int, state: _State, is_first: bool, in_place: bool = False
    ) -> Iterator[tuple[_State, int, int]]:
        """The states that a pool leads to, its price, and all that is paid then.

        ``in_place``: of a pool of pauses, and of VMs that go on, alone; nobody departs in it.
        """
        problem, (positions, resumed) = self._problem, state
        departures = problem.departures if is_first and not in_place else []
        least = max(departures, default=0)
        spent += sum(departures) + elapsed * len(departures)
        free = list(problem.free)
        if not is_first:
            for node, memory in enumerate(problem.given_back):
                free[node] += memory
        for guest, here in zip(self._guests, positions, strict=True):
            if (host := _node_of(here)) is not None:
                free[host] -= guest.memory
        moves = self._in_place if in_place else self._hops
        hops = [list(moves(at, here)) for at, here in enumerate(positions)]
        prices = {cost for each in hops for _, cost in each if cost >= least} | ({least} if departures else set())
        for price in sorted(prices):
            has_price = bool(departures) and price == least
            pool = _Pool(self, positions, resumed, free, hops, price, elapsed)
            for after, paid, woken in pool.all(spent, has_price):
                yield (after, resumed | woken), price, paid

    def count(self) -> None:
        """Count a step."""
        self._left -= 1
        if self._left < 0:
            raise TooLargeError


class _Pool:
    """All pools of a price from one state."""

    def __init__(
        self,
        search: Search,
        positions: tuple[int, ...],
        resumed: int,
        free: list[int],
        hops: list[list[tuple[int, int]]],
        price: int,
        elapsed: int,
    ) -> None:
        self._search, self._positions, self._resumed = search, positions, resumed
        self._free, self._price, self._elapsed = list(free), price, elapsed
        self._hops = hops
        self._spare = search._problem.spare_cpus(positions)
        least = search._problem.least
        self._later = [{here: self._stay(search, at, here, least) for here in each} for at, each in enumerate(least)]
        rest = [0]
        for at in reversed(range(len(positions))):
            here = positions[at]
            stay = self._later[at][here]
            go = min(
                (elapsed + cost + self._later[at][there] for there, cost in hops[at] if cost <= price), default=stay
            )
            rest.append(rest[-1] + min(stay, go))
        self._rest = rest[::-1]

    def _stay(self, search: Search, at: int, here: int, least: list[dict[int, int]]) -> int:
        """What one that is there after this pool pays at least."""
        return 0 if here in search._guests[at].ends else self._elapsed + self._price + least[at][here]

    def all(self, spent: int, has_price: bool) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Where all are after each, what is paid then, and the VMs that have woken."""
        yield from self._ask(0, [], spent, spent, has_price, {})

    def _ask(
        self, at: int, after: list[int], paid: int, least: int, has_price: bool, gangs: dict[int, bool]
    ) -> Iterator[tuple[tuple[int, ...], int, int]]:
        search = self._search
        search.count()
        if least + self._rest[at] >= search._limit:
            return
        if at == len(self._positions):
            if has_price:
                yield tuple(after), paid, sum(1 << gang for gang, wakes in gangs.items() if wakes and gang < _PAUSED)
            return
        guest, here = search._guests[at], self._positions[at]
        for there, cost in self._hops[at]:
            if cost > self._price:
                continue
            now = gangs
            if _sleeps(here):  # resumes: so do all that sleep of its vjob
                if gangs.get(guest.gang) is False:
                    continue
                now = {**gangs, guest.gang: True}
            if _sleeps(there):  # sleeps: nobody of its vjob resumes now, or has resumed before
                if gangs.get(guest.gang) is True or self._resumed >> guest.gang & 1:
                    continue
                now = {**gangs, guest.gang: False}
            if here >= _PAUSED and guest.runs:  # goes on: so do all that are paused of its vjob
                goes_on = there == here - _PAUSED
                if gangs.get(_PAUSED + guest.gang, goes_on) is not goes_on:
                    continue
                now = {**now, _PAUSED + guest.gang: goes_on}
                if goes_on and 0 < guest.cpus > self._spare[there]:
                    continue
            if not self._take(here, there, guest):
                continue
            pays = self._elapsed + cost
            yield from self._ask(
                at + 1,
                [*after, there],
                paid + pays,
                least + pays + self._later[at][there],
                has_price or cost == self._price,
                now,
            )
            self._give_back(here, there, guest)
        now = gangs
        if here >= _PAUSED and guest.runs:  # stays paused: so do all of its vjob
            if gangs.get(_PAUSED + guest.gang) is True:
                return
            now = {**gangs, _PAUSED + guest.gang: False}
        if _sleeps(here):  # sleeps on: so do all of its vjob
            if gangs.get(guest.gang) is True:
                return
            now = {**gangs, guest.gang: False}
        yield from self._ask(at + 1, [*after, here], paid, least + self._later[at][here], has_price, now)

    def _take(self, here: int, there: int, guest: _Guest) -> bool:
        """Take what a hop needs, if it is there."""
        host = _node_of(there)
        if host is None:
            return True
        if _node_of(here) == host:  # it goes on, or is paused
            self._spare[host] -= guest.cpus if there < _ASLEEP else 0
            return True
        if self._free[host] < guest.memory:
            return False
        self._free[host] -= guest.memory
        return True

    def _give_back(self, here: int, there: int, guest: _Guest) -> None:
        host = _node_of(there)
        if host is None:
            return
        if _node_of(here) == host:
            self._spare[host] += guest.cpus if there < _ASLEEP else 0
        else:
            self._free[host] += guest.memory


def cheapest_cost_below(problem: Problem, limit: int, most: int = 300_000) -> int | None:
    """The cost of the cheapest plan, if that is less than the limit; None if it is not.

    Raises:
        TooLargeError: it takes more than ``most`` steps.
    """
    return Search(problem, limit, most).run()
