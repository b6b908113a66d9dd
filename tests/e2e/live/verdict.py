"""Verdict: what a campaign has shown, as a table, a sentence and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.live.dice import KINDS_OF_MANAGERS

#: Bounds of the design, with ``session_s`` 6 and commands of 5 s: the next leader within a session and a second, a
#: decision within a session, the longest command and 5 s. A busy machine may be late, which fails no campaign.
LEADS_S, DECIDES_S = 6.0 + 1, 6.0 + 5 + 5


@dataclass
class Round:
    """One fault, and what came of it; seconds, None: not seen in time."""

    kind: str
    way: str
    held_s: float
    undecided_s: float | None
    slurm_s: float | None
    well_s: float | None
    resumed: int = 0
    ended: int = 0
    wrong: list[str] = field(default_factory=list)
    unled_s: float | None = None  # from the fault until another one leads; None: none had to

    def late(self) -> list[str]:
        """What came later than the design's bounds, where the fault leaves the other controller all that it needs."""
        if self.way not in KINDS_OF_MANAGERS[self.kind].bounded:
            return []
        found = ["a leader"] if self.unled_s is not None and self.unled_s > LEADS_S else []
        return found + (["a decision"] if self.undecided_s is None or self.undecided_s > DECIDES_S else [])


def table(rounds: Sequence[Round]) -> list[str]:
    """A line for each kind and way: how often, how long it was away, and what came back after how long."""
    heads = ("fault", "times", "away", "led anew after", "no decision for", "Slurm answers", "all well after")
    rows = [(*heads, "late", "wrong")]
    for key in sorted({(each.kind, each.way) for each in rounds}):
        same = [each for each in rounds if (each.kind, each.way) == key]
        rows.append(
            (
                " ".join(key),
                str(len(same)),
                _span([each.held_s for each in same]),
                _span([each.unled_s for each in same if each.unled_s is not None]),
                _span([each.undecided_s for each in same]),
                _span([each.slurm_s for each in same]),
                _span([each.well_s for each in same]),
                str(sum(bool(each.late()) for each in same)),
                str(sum(bool(each.wrong) for each in same)),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _span(seconds: Sequence[float | None]) -> str:
    """From the least to the most; those that were not seen are counted."""
    known = sorted(each for each in seconds if each is not None)
    missed = len(seconds) - len(known)
    said = "" if not known else f"{known[0]:.1f}" if len(known) == 1 else f"{known[0]:.1f} to {known[-1]:.1f}"
    return ", ".join(part for part in (said, f"{missed} never" if missed else "") if part)


def sentence(rounds: Sequence[Round], vjobs: int, at_the_end: Sequence[str]) -> str:
    """The whole in a sentence."""
    wrong = sum(bool(each.wrong) for each in rounds)
    resumed = sum(each.resumed for each in rounds)
    said = f"{len(rounds)} faults, {vjobs} vjobs: {wrong} faults with something wrong after them"
    said += f", {len(at_the_end)} things wrong in the end"
    late = sum(bool(each.late()) for each in rounds)
    bounds = f"a leader came later than {LEADS_S:.0f} s, or a decision than {DECIDES_S:.0f} s"
    said += f"; after {late} {bounds}" if late else ""
    said += f"; Slurm drained {resumed} times for a job that it forgot" if resumed else ""
    ended = sum(each.ended for each in rounds)
    return f"{said}; a slurmctld that did not end by itself was ended {ended} times" if ended else said


def code(rounds: Sequence[Round], vjobs: int, at_the_end: Sequence[str]) -> int:
    """0: all was right; 1: something was not; 2: nothing was tried, which shows nothing."""
    if at_the_end or any(each.wrong for each in rounds):
        return 1
    return 0 if rounds and vjobs else 2
