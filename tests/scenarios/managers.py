"""Courses of faults with managers of groups, as many as one likes: which seed breaks an invariant.

``contrib/run-campaign managers --seeds 1-100``: see the developer guide.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from fresh_ledger import in_memory
from scenarios.managed_day import ManagedDay


def live(seed: int, events: int = 40) -> tuple[ManagedDay, str]:
    """Live one course. Returns it, and what was wrong; empty if nothing was."""
    with in_memory() as path:
        day, wrong = ManagedDay(path, seed), ""
        try:
            day.live(events)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        try:
            day.close()
        except AssertionError as error:
            wrong = wrong or f"at the end: {error}"
        return day, "; ".join(filter(None, [wrong, *day.judged().breaches]))


def main() -> int:
    """Live the courses that are asked for; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="run-campaign managers", description=__doc__)
    parser.add_argument("--seeds", default="1-100", help="from-to (1-100)")
    parser.add_argument("--events", type=int, default=40, help="events of a course, most of them faults (40)")
    parser.add_argument("--journals", type=Path, help="directory for the journals; python -m journal.check reads them")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first, _, last = options.seeds.partition("-")
    wrong, sums = 0, Counter[str]()
    for seed in range(int(first), int(last or first) + 1):
        began = time.monotonic()
        day, fault = live(seed, options.events)
        if options.journals:
            day.journal.write(options.journals / f"{seed}.jsonl")
        found = day.judged()
        counts = {"vjobs": len(day.jobs), "turns": found.turns, "acts": found.acts, **day.counted()}
        sums.update(counts)
        said = ", ".join(f"{number} {name}" for name, number in counts.items())
        print(f"seed {seed}: {said}, {time.monotonic() - began:.1f} s: {fault or 'right'}", flush=True)
        if fault:
            wrong += 1
            print("\n".join(f"    # {line}" for line in day.happened), flush=True)
    print(f"{wrong} courses were wrong; {dict(sums)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
