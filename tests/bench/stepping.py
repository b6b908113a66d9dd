"""t. Steps: how long srun takes, next to an ssh connection each.

Two guests without VMs (tests/unit/guestbox.py; root needed): real ssh servers and the tools of guests, on this machine.
What is measured is the tools' own work and the connections'; under TCG all of it is slower alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unit import guestbox

from bench.measure import Report, timed

#: How many steps one after the other.
SIZES: Mapping[str, Sequence[int]] = {"full": (20, 100), "quick": (20,), "tiny": (2,)}

_TOOLS = "/run/rmsplugin/bin"
_STEP = f"{_TOOLS}/srun -n 2 true"
_CONNECTION = f"{_TOOLS}/ssh vjob12-1 true"


def run(sizes: Sequence[int], report: Report) -> None:
    """Measure in both kinds of guest."""
    report.title("t", "steps: srun -n 2 true in two VMs, next to ssh to the second")
    if why := guestbox.missing():
        raise SystemExit(f"benchmark t: {why}")
    rows: list[list[object]] = []
    for flavour in guestbox.FLAVOURS:
        with guestbox.ready(flavour, 2) as box:
            rows += [_measure(box, flavour, count, report) for count in sizes]
    report.table(["guest", "steps", "first step s", "all the others s", "as many ssh s"], rows)


def _measure(box: guestbox.Guestbox, flavour: str, count: int, report: Report) -> list[object]:
    first = _seconds(box, _STEP)
    # In turns, so that both have the same neighbours.
    pairs = [(_seconds(box, _STEP), _seconds(box, _CONNECTION)) for _ in range(count)]
    steps, connections = (sum(some) for some in zip(*pairs, strict=True))
    report.record(guest=flavour, steps=count, first_s=first, steps_s=steps, connections_s=connections)
    report.ratio(f"{flavour}: {count} steps beside {count} ssh connections", steps / connections)
    return [flavour, count, first, steps, connections]


def _seconds(box: guestbox.Guestbox, script: str) -> float:
    _, seconds = timed(lambda: box.guests[0].run(f"{script} </dev/null", user=True))
    return seconds
