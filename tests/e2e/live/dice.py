"""Dice: which fault comes next, for how long, and in the middle of what. A seed throws the same ones each time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Ways in which something fails: it ends, it stands still, its network is gone.
KILL, STOP, CUT = "kill", "stop", "cut"

#: What may be under way when the fault comes.
ORDERS = ("suspend", "resume", "migrate")


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        ways: in which it fails.
        most_s: how long it stays away at most. Slurm takes a front for dead after ``SlurmdTimeout`` (30 s), and begins
            its jobs anew: what fails on fronts comes back before.
        weight: how often it comes, compared with others.
        bounded: the ways that leave the other controller all that it needs: it has to lead, and decide, in time.
    """

    ways: tuple[str, ...]
    most_s: float
    weight: int = 2
    bounded: tuple[str, ...] = ()


KINDS = {
    "leader": Kind((KILL, STOP, CUT), 40, 5, (KILL, STOP, CUT)),
    "standby": Kind((KILL, STOP, CUT), 40, bounded=(KILL, STOP, CUT)),
    "server": Kind((KILL, STOP, CUT), 40, 3, (KILL, STOP, CUT)),
    "ensemble": Kind((KILL, STOP, CUT), 40, 3, (KILL, STOP, CUT)),
    "quorum": Kind((KILL, STOP, CUT), 30, 3),
    "nfs": Kind((KILL, STOP, CUT), 40, 3),
    "slurmctld": Kind((KILL, STOP, CUT), 40, 4),
    "slurmd": Kind((KILL, STOP, CUT), 25),
    "front": Kind((KILL, STOP), 18),
    "libvirtd": Kind((KILL, STOP), 40, 3),
    "agent": Kind((KILL, STOP, CUT), 40, 3),
    "munged": Kind((KILL, STOP), 18),
    "node": Kind((CUT,), 25, 3),
    "controller": Kind((CUT,), 18, 3),
}
#: With managers leader and standby are managers, and these come, too: the engine of a group, which its manager starts
#: again, and a manager with all its engines, which stand still at one moment.
KINDS_OF_MANAGERS = KINDS | {
    "engine": Kind((KILL, STOP), 60, 3, (KILL,)),
    "halted": Kind((STOP,), 40, 4, (STOP,)),
}
_LEAST_S = 2.0


@dataclass(frozen=True)
class Throw:
    """A fault as the dice have it.

    Attributes:
        kind: what fails.
        way: how.
        seconds: how long it stays away.
        which: a number from 0 to 1 that says which one, where there are several.
        order: what is ordered right before; empty: nothing is.
        whose: a number from 0 to 1 that says which vjob the order is about.
        submits: whether somebody submits while it is away.
    """

    kind: str
    way: str
    seconds: float
    which: float
    order: str
    whose: float
    submits: bool

    def __str__(self) -> str:
        middle = f" in a {self.order}" if self.order else ""
        return f"{self.kind} {self.way} {self.seconds:.0f} s{middle}"


def throws(seed: int, only: Sequence[str] = (), kinds: Mapping[str, Kind] = KINDS) -> Iterator[Throw]:
    """Faults without end, of these kinds; ``only``: of these of them, each with its weight."""
    chance = random.Random(seed)
    names = [name for name, kind in kinds.items() if not only or name in only for _ in range(kind.weight)]
    while True:
        kind = chance.choice(names)
        yield Throw(
            kind,
            chance.choice(kinds[kind].ways),
            round(chance.uniform(_LEAST_S, kinds[kind].most_s), 1),
            chance.random(),
            chance.choice(("", *ORDERS)),
            chance.random(),
            chance.random() < 0.3,
        )


@dataclass(frozen=True)
class Order:
    """A vjob that somebody submits: how long it counts, and what it asks for."""

    numbers: int
    options: tuple[str, ...]
    user: str = "alice"


def orders(seed: int) -> Iterator[Order]:
    """Vjobs without end: most of them small, some gangs, some of a partition that goes first and of a whole node."""
    chance = random.Random(f"vjobs {seed}")
    while True:
        numbers, kind = chance.randint(20, 240), chance.random()
        if kind < 0.15:
            yield Order(min(numbers, 40), ("-p", "urgent", "-c", "2", "--mem=96"), "bob")
        elif kind < 0.35:
            yield Order(numbers, ("-N", "2", "-c", "1", "--mem=96"))
        else:
            yield Order(numbers, ("-c", "1", f"--mem={chance.choice((96, 128))}"))


def one_of(things: list[str], number: float) -> str:
    """The thing that a number from 0 to 1 stands for."""
    return things[min(int(number * len(things)), len(things) - 1)]
