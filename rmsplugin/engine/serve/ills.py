"""Ills: why an engine is not well, whatever it answers: its last cycle failed, or is too long ago."""

from __future__ import annotations

from rmsplugin.engine.cycle import Cycle

#: An engine that has run no cycle for so long hangs; or for so many times the pause between cycles, if that is longer.
_LONGEST_S, _CYCLES = 120.0, 10


def ills(cycle: Cycle, started: float, now: float, cycle_s: float) -> list[str]:
    """Why the engine is not well, each a sentence; none: it is well.

    Args:
        cycle: the engine's.
        started: when the engine started, in seconds since the epoch.
        now: seconds since the epoch.
        cycle_s: the pause between cycles.
    """
    report, found = cycle.report, []
    last = report.time + report.seconds if report.time else started
    if now - last > max(_LONGEST_S, _CYCLES * cycle_s):
        what = "has ended" if report.time else "has run since the start"
        found.append(f"no cycle {what} for {now - last:.0f} s, and one is due each {cycle_s:g} s")
    if report.failed:
        why = report.problems[-1] if report.problems else "it is not known why"
        found.append(f"the last cycle failed: {why}")
    return found
