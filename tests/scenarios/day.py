"""Random days, as many as one likes: which seed breaks an invariant, and with how few events (issue 8, 6.6).

``contrib/run-campaign day --seeds 1-1000``: see the developer guide.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from fresh_ledger import in_memory
from scenarios.random_day import OBSERVED, PAUSES, WEIGHTS, Day, Event, events_of

#: Every so manieth day is decided with the solver.
WITH_SOLVER = 10


def live(seed: int, events: Sequence[Event], **options: bool) -> tuple[Day, str]:
    """Live one day; options as of ``Day``. Returns it, and what was wrong; empty if nothing was."""
    with in_memory() as path:
        day = Day(path, seed, events, solver=seed % WITH_SOLVER == 0, **options)
        try:
            day.live()
        except Exception as error:
            return day, f"{type(error).__name__}: {error}"
        return day, ""


def shortest(events: Sequence[Event], fails: Callable[[Sequence[Event]], bool], tries: int) -> list[Event]:
    """Leave out events, many at first, as long as the day without them fails as well."""
    left, share = list(events), max(1, len(events) // 2)
    while tries:
        at, before = 0, len(left)
        while at < len(left) and tries:
            without = [*left[:at], *left[at + share :]]
            tries -= 1
            if fails(without):
                left = without
            else:
                at += share
        if share == 1 and len(left) == before:
            return left
        share = max(1, share // 2)
    return left


def report(seed: int, events: Sequence[Event], tries: int, **options: bool) -> None:
    """Print a failing day with as few events as are found."""
    left = shortest(events, lambda some: bool(live(seed, some, **options)[1]), tries)
    day, wrong = live(seed, left, **options)
    print(f"seed {seed}: {len(left)} of {len(events)} events do: {wrong}")
    print("\n".join(f"    {event}," for event in left))
    print("\n".join(f"    # {line}" for line in day.happened), flush=True)


def main() -> int:
    """Live the days that are asked for; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="run-campaign day", description=__doc__)
    parser.add_argument("--seeds", default="1-20", help="from-to (1-20)")
    parser.add_argument("--events", type=int, default=120, help="of each day (120)")
    parser.add_argument("--tries", type=int, default=80, help="days to live in search of the fewest events (80)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--observed", action="store_true", help="days of a partition whose memory is observed")
    kind.add_argument("--pauses", action="store_true", help="days on which whoever makes way is paused")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    wrong = cycles = 0
    for seed in range(int(first), int(last or first) + 1):
        weights = OBSERVED if options.observed else PAUSES if options.pauses else WEIGHTS
        events, began = events_of(seed, options.events, weights), time.monotonic()
        day, fault = live(seed, events, observed=options.observed, pauses=options.pauses)
        cycles += day.cycles
        print(f"seed {seed}: {day.cycles} cycles, {time.monotonic() - began:.0f} s: {fault or 'right'}", flush=True)
        if fault:
            wrong += 1
            report(seed, events, options.tries, observed=options.observed, pauses=options.pauses)
    print(f"{wrong} days were wrong, {cycles} cycles")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
