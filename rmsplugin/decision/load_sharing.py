"""Load sharing: arrivals go where memory is idle, and a node that is short sends VMs away (G-Loadsharing of seed 004).

The cheapest relief decides which VMs go: as little memory as possible migrates. They go to the most lightly loaded
nodes, as in the seed (``LIGHTEST``), or where they fit most tightly, which leaves the largest holes (``TIGHTEST``).
Nothing moves back and forth: a VM goes only to a node that is not short afterwards. So each move makes the sum of all
shortages smaller, and a cycle goes on until no move is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations

from rmsplugin.decision.load import Arrival, Board, VMLoad

#: The most VMs that leave a node together; of all larger sets there are too many to look at.
_TOGETHER = 3

#: Chooses the node for a VM of so many MiB among those that are not closed; None: none has room.
Destination = Callable[[Board, int, Collection[str]], str | None]

#: The seed's choice: the fewest VMs, then most idle memory.
LIGHTEST: Destination = Board.least_loaded

#: Ours, of ``mixed``: the least memory is left.
TIGHTEST: Destination = Board.tightest


def place(board: Board, queue: Iterable[Arrival], closed: Collection[str] = ()) -> dict[str, Mapping[str, str]]:
    """Place waiting vjobs, in queue order; one that finds no place is passed by.

    Args:
        board: the free memory; it has the placed VMs afterwards.
        queue: the vjobs that wait.
        closed: nodes that take no arrivals.

    Returns:
        By vjob, the node of each of its VMs; vjobs that find no place are missing.
    """
    placed: dict[str, Mapping[str, str]] = {}
    refused: set[tuple[int, ...]] = set()  # sizes that found no place: nothing is given back, so they find none later
    for arrival in queue:
        sizes = tuple(arrival.estimates_mib.values())
        if sizes in refused:
            continue
        nodes = _place_one(board, arrival, closed)
        if nodes is None:
            refused.add(sizes)
        else:
            placed[arrival.vjob] = nodes
    return placed


def _place_one(board: Board, arrival: Arrival, closed: Collection[str]) -> dict[str, str] | None:
    """Place all VMs of one vjob, or none."""
    added: list[tuple[VMLoad, str]] = []
    for name, estimate_mib in sorted(arrival.estimates_mib.items(), key=lambda each: (-each[1], each[0])):
        node = _where(board, estimate_mib, arrival.home, closed)
        if node is None:
            for vm, there in added:
                board.remove(vm, there)
            return None
        vm = VMLoad(name, arrival.vjob, estimate_mib, fixed=True)
        board.add(vm, node)
        added.append((vm, node))
    return {vm.name: node for vm, node in added}


def _where(board: Board, memory_mib: int, home: str | None, closed: Collection[str]) -> str | None:
    if home is not None and home not in closed and board.free_mib[home] >= memory_mib and board.free_slots[home] > 0:
        return home
    return board.least_loaded(memory_mib, closed)


def relieve(board: Board, closed: Collection[str] = (), where: Destination = LIGHTEST) -> None:
    """Migrate VMs from nodes that are short, at the least cost, until there is no relief left.

    Args:
        board: the VMs' places; it has the moves afterwards.
        closed: nodes that take no VMs.
        where: chooses the destinations.
    """
    left = True
    while left:
        short = [name for name in board.nodes if board.is_short(name)]
        moved = [_relieve_one(board, name, closed, where) for name in short]
        left = any(moved)


def _relieve_one(board: Board, node: str, closed: Collection[str], where: Destination) -> bool:
    """Relieve one node if possible, by as much as possible; returns whether anything moved."""
    shut = {*closed, node}
    most_mib = board.most_free_mib(shut)
    movable = [vm for vm in board.movable(node) if vm.memory_mib <= most_mib]
    chosen = _cheapest(board, node, movable, shut, where) or _largest(board, movable, shut, where)
    for vm, destination in chosen:
        board.move(vm, node, destination)
    return bool(chosen)


def _cheapest(
    board: Board, node: str, movable: Sequence[VMLoad], shut: Collection[str], where: Destination
) -> list[tuple[VMLoad, str]]:
    """The least memory that ends the shortage of a node, with its destinations; nothing if none ends it."""
    short_mib, crowd = max(0, -board.free_mib[node]), max(0, -board.free_slots[node])
    best: list[tuple[VMLoad, str]] = []
    best_mib = float("inf")
    for count in range(max(1, crowd), min(max(crowd, _TOGETHER), len(movable)) + 1):
        sets = ((sum(vm.memory_mib for vm in some), some) for some in combinations(movable, count))
        for total_mib, some in sorted((each for each in sets if short_mib <= each[0] < best_mib), key=_by_cost):
            placed = _together(board, some, shut, where)
            if placed is None and where is not TIGHTEST:
                placed = _together(board, some, shut, TIGHTEST)  # spread out they may not fit
            if placed is not None:
                best, best_mib = placed, total_mib
                break
    return best


def _by_cost(some: tuple[int, Sequence[VMLoad]]) -> tuple[int, list[str]]:
    return some[0], [vm.name for vm in some[1]]


def _together(
    board: Board, vms: Sequence[VMLoad], shut: Collection[str], where: Destination
) -> list[tuple[VMLoad, str]] | None:
    """A place for each of these VMs, the largest first; None if there is none."""
    placed: list[tuple[VMLoad, str]] = []
    for vm in sorted(vms, key=lambda vm: (-vm.memory_mib, vm.name)):
        there = where(board, vm.memory_mib, shut)
        if there is None:
            break
        board.book(vm, there)
        placed.append((vm, there))
    for vm, there in placed:
        board.book(vm, there, -1)
    return placed if len(placed) == len(vms) else None


def _largest(
    board: Board, movable: Sequence[VMLoad], shut: Collection[str], where: Destination
) -> list[tuple[VMLoad, str]]:
    """The largest VM that finds a place: where a shortage cannot be ended, it makes the shortage smaller by most."""
    for vm in sorted(movable, key=lambda vm: (-vm.memory_mib, vm.name)):
        there = where(board, vm.memory_mib, shut)
        if there is not None:
            return [(vm, there)]
    return []
