"""The table "What differs from a native job" of docs/differences.md, between two markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from e2e.native.case import Case
from e2e.native.outcome import Difference, Verdict

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "differences.md"
BEGIN = "<!-- made by contrib/run-campaign native --write: -->"
END = "<!-- end of what was made -->"

_HEADER = ("| what | a native job | a vjob | why |", "|---|---|---|---|")
_TOLD_FIRST = ("submission", "file", "sacct", "jobs")  # of the parts of an outcome
_WIDEST = 90


def rows_of(verdict: Verdict) -> list[str]:
    """A row for each reason for which a case differs, as the run saw it."""
    firsts: dict[str, Difference] = {}
    for each in sorted(verdict.differences, key=lambda difference: _TOLD_FIRST.index(difference.part.split()[0])):
        if each.allowed:
            firsts.setdefault(each.allowed.reason, each)
    return [_row(verdict.case, each) for each in firsts.values()]


def _row(case: Case, difference: Difference) -> str:
    assert difference.allowed
    gap = "to be mended: " if difference.allowed.mendable else ""
    sides = (_shown(difference.lines, "-"), _shown(difference.lines, "+"))
    return f"| {case.title} | {sides[0]} | {sides[1]} | {gap}{difference.allowed.reason} |"


def _shown(lines: Sequence[str], sign: str) -> str:
    """The first differing line of a side that says something, short enough for a table."""
    own = [line[1:].strip() for line in lines if line[0] == sign]
    line = next((line for line in own if line and not line.startswith("exit ")), "")
    line = line.removeprefix("error: ").replace("|", "\\|").replace("`", "'")
    return f"`{line if len(line) <= _WIDEST else line[: _WIDEST - 3] + '...'}`" if line else "(nothing)"


def write(verdicts: Iterable[Verdict], cases: Iterable[Case], page: Path = GUIDE) -> None:
    """Put the rows of judged cases in the place of those that the page has of them, all in the order of the cases."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    made, _, after = rest.partition(END)
    rows: dict[str, list[str]] = {}
    for row in _rows(made):
        rows.setdefault(_cells(row)[0], []).append(row)
    rows |= {verdict.case.title: rows_of(verdict) for verdict in verdicts}
    table = [*_HEADER, *(row for case in cases for row in rows.get(case.title, []))]
    page.write_text("\n".join([f"{before}{BEGIN}\n", *table, f"\n{END}{after}"]))


def _rows(made: str) -> list[str]:
    return [line for line in made.splitlines() if line.startswith("| ") and line not in _HEADER]


def _cells(row: str) -> list[str]:
    return row.removeprefix("| ").removesuffix(" |").split(" | ")


def reasons(page: Path = GUIDE) -> list[tuple[str, str]]:
    """Titles and reasons of the table that a page has, "to be mended: " taken off."""
    made = page.read_text().partition(BEGIN)[2].partition(END)[0]
    cells = map(_cells, _rows(made))
    return [(row[0], row[-1].removeprefix("to be mended: ")) for row in cells]
