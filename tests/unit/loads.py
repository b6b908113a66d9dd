"""Clusters for tests of load sharing, in few words."""

from __future__ import annotations

from rmsplugin.decision.load import Board, NodeLoad, VMLoad

#: Pages a second of a VM that suffers.
MANY = 100.0


def vm(name: str, memory_mib: int, faults: float = 0.0, **others: object) -> VMLoad:
    """A VM; the name of its vjob is what stands before a point."""
    fields = {"stalled": 0.4 if faults else 0.0, "age_s": 100.0, **others}
    return VMLoad(name, name.partition(".")[0], memory_mib, faults, **fields)  # type: ignore[arg-type]


def node(name: str, *vms: VMLoad, memory_mib: int = 1000, slots: int = 4) -> NodeLoad:
    """A node; its VMs suffer if it is short."""
    return NodeLoad(name, memory_mib, slots, vms)


def blocked_cluster(spare: int = 2, age_s: float = 100.0) -> list[NodeLoad]:
    """One short node (700 + 600 of 1000 MiB), and others that cannot make room for either, however they move.

    ``age_s``: of the VMs on the others; those on the short node are 1000 s old.
    """
    short = node("n0", vm("big", 700, MANY, rank=1, age_s=1000.0), vm("mid", 600, MANY, rank=9, age_s=1000.0))
    others = [
        node(f"n{i}", vm(f"a{i}", 590, rank=2, age_s=age_s), vm(f"b{i}", 10, rank=3, age_s=age_s))
        for i in range(1, spare + 1)
    ]
    return [short, *others]


def after(board: Board) -> list[NodeLoad]:
    """The cluster after the moves of a board, with the demands and faults of before."""
    return [NodeLoad(name, each.memory_mib, each.slots, tuple(board.vms[name])) for name, each in board.nodes.items()]
