"""Courses of faults, as many as one likes: which seed breaks an invariant, or shows two owners in its journal.

``contrib/run-campaign faults --seeds 1-200``: see the developer guide.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fresh_ledger import in_memory
from scenarios.day import shortest
from scenarios.faulty_day import FAULTS, FaultyDay, course_of
from scenarios.random_day import Event


def live(seed: int, events: Sequence[Event]) -> tuple[FaultyDay, str]:
    """Live one course. Returns it, and what was wrong; empty if nothing was."""
    with in_memory() as path:
        day = FaultyDay(path, seed, events)
        try:
            day.live()
        except Exception as error:
            return day, f"{type(error).__name__}: {error}"
        found = day.judged()
        wrong = list(found.breaches)
        if found.gap_s > day.longest_gap_s():
            wrong.append(f"nobody led for {found.gap_s:.1f} s")
        return day, "; ".join(wrong)


def report(seed: int, events: Sequence[Event], tries: int) -> None:
    """Print a failing course with as few events as are found."""
    left = shortest(events, lambda some: bool(live(seed, some)[1]), tries)
    day, wrong = live(seed, left)
    print(f"seed {seed}: {len(left)} of {len(events)} events do: {wrong}")
    print("\n".join(f"    {event}," for event in left))
    print("\n".join(f"    # {line}" for line in day.happened), flush=True)


def main() -> int:
    """Live the courses that are asked for; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="run-campaign faults", description=__doc__)
    parser.add_argument("--seeds", default="1-200", help="from-to (1-200)")
    parser.add_argument("--tries", type=int, default=40, help="courses to live in search of the fewest events (40)")
    parser.add_argument("--journals", type=Path, help="directory for the journals; python -m journal.check reads them")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    wrong, faults, sums, gap_s = 0, Counter[str](), Counter[str](), 0.0
    for seed in range(int(first), int(last or first) + 1):
        events, began = course_of(seed), time.monotonic()
        day, fault = live(seed, events)
        if options.journals:
            day.world.journal.write(options.journals / f"{seed}.jsonl")
        found = day.judged()
        faults.update(event.kind for event in events if event.kind in FAULTS)
        sums.update(acts=found.acts, turns=found.turns, refused=found.refused, late=found.late, unheard=found.unheard)
        gap_s = max(gap_s, found.gap_s if day.longest_gap_s() < math.inf else 0.0)
        said = f"{found.turns} turns, {found.acts} acts, {found.refused} refused, {found.late} late in guests"
        print(f"seed {seed}: {said}, {time.monotonic() - began:.1f} s: {fault or 'right'}", flush=True)
        if fault:
            wrong += 1
            report(seed, events, options.tries)
    print(f"{wrong} courses were wrong; {dict(sums)}; faults: {dict(faults)}")
    print(f"nobody led for at most {gap_s:.1f} s where nothing kept the other host from leading")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
