"""A plan with a bit of everything that is right: the tests of the checker change it."""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.model.action import Action, migrate, resume, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing

Pools = list[list[Action]]
Target = dict[str, Location]


def vm(name: str, memory_mib: int = 1024, cpus: float = 1) -> VM:
    return VM(name, Resources(cpus, memory_mib))


E, S1, S2, W1, W2 = vm("e", 512), vm("s1", 512), vm("s2"), vm("w1"), vm("w2", 768)
X, Y, P, Q, R = vm("x"), vm("y"), vm("p"), vm("q", 768), vm("r", 256)
L1, L2, F1, F2, K, D = vm("l1", 512), vm("l2", 512), vm("f1", 700, 2), vm("f2", 700, 2), vm("k"), vm("d")

NODES = (
    *(Node(f"n{i}", Resources(2, 1024)) for i in range(1, 10)),
    Node("leaving", Resources(2, 1024), NodeState.DRAINING),
    Node("gone", Resources(2, 1024), NodeState.DOWN),
)
QUEUE = (
    VJob("ends", (E,)),
    VJob("sleepy", (S1, S2)),
    VJob("wakes", (W1, W2)),
    VJob("cycle", (X, Y)),
    VJob("tight", (P, Q)),
    VJob("new", (R,), rules=allowing(frozenset({"n2", "n7", "n8", "n9", "leaving", "gone"}), frozenset({"n7"}))),
    VJob("lost", (L1, L2), lost=True),
    VJob("fixed", (F1, F2), preemptible=False),  # n9 has neither the memory nor the CPUs for both, and they stay
    VJob("cancelled", (K,)),
    VJob("dormant", (D,)),
)
SOURCE = Configuration(
    NODES,
    QUEUE,
    {
        "e": running_on("n1"),
        "s1": running_on("n1"),
        "s2": running_on("n2"),
        "w1": sleeping_on("n1"),
        "w2": sleeping_on(SHARED),
        "x": running_on("n3"),
        "y": running_on("n4"),
        "p": running_on("n6"),
        "q": running_on("n7"),
        "r": WAITING,
        "l1": running_on("n8"),
        "l2": sleeping_on("n8"),
        "f1": running_on("n9"),
        "f2": running_on("n9"),
        "k": WAITING,
        "d": sleeping_on("leaving"),
    },
)
TARGET: Target = {
    "e": TERMINATED,
    "s1": sleeping_on("n1"),
    "s2": sleeping_on(SHARED),
    "w1": running_on("n1"),
    "w2": running_on("n2"),
    "x": running_on("n4"),
    "y": running_on("n3"),
    "p": running_on("n7"),
    "q": running_on("n6"),
    "r": running_on("n2"),
    "l1": WAITING,
    "l2": WAITING,
    "k": TERMINATED,  # nothing of it exists: no action
}
POOLS: Pools = [
    [
        stop(E, "n1"),
        suspend(S1, "n1"),
        suspend(S2, "n2", SHARED),
        migrate(X, "n3", "n5", bypass=True),
        suspend(P, "n6", bypass=True),
        stop(L1, "n8", requeue=True),
        stop(L2, "n8", requeue=True),
    ],
    [
        resume(W1, "n1", "n1"),
        resume(W2, SHARED, "n2"),
        migrate(Y, "n4", "n3"),
        migrate(Q, "n7", "n6"),
        run(R, "n2"),
    ],
    [migrate(X, "n5", "n4"), resume(P, "n6", "n7", bypass=True)],
]
# pool 0: 512 + 1024 + 1024 + 1024; pool 1: 1024 + 768 + 1024 + 768 and 5 x 1024; pool 2: 1024 + 2048 and 2 x 2048
COST = 3584 + 3584 + 5120 + 3072 + 4096


def mutable(pools: Sequence[Sequence[Action]] = POOLS) -> Pools:
    return [list(pool) for pool in pools]
