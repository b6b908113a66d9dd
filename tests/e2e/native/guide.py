"""The table "What differs from a native job" of the user guide, between two markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from e2e.native.case import Case
from e2e.native.outcome import Difference, Verdict

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "user-guide.md"
BEGIN = "<!-- made by contrib/run-campaign native --write: -->"
END = "<!-- end of what was made -->"

_WIDEST = 60


def table(verdicts: Iterable[Verdict]) -> str:
    """The rows of all cases that differ, as the run saw them."""
    rows = ["| what | a native job | a vjob | why |", "|---|---|---|---|"]
    for verdict in verdicts:
        shown: set[str] = set()
        for each in verdict.differences:
            if each.allowed and each.allowed.reason not in shown:
                shown.add(each.allowed.reason)
                rows.append(_row(verdict.case, each))
    return "\n".join(rows)


def _row(case: Case, difference: Difference) -> str:
    assert difference.allowed
    gap = "to be mended: " if difference.allowed.mendable else ""
    sides = (_shown(difference.lines, "-"), _shown(difference.lines, "+"))
    return f"| {case.title} | {sides[0]} | {sides[1]} | {gap}{difference.allowed.reason} |"


def _shown(lines: Sequence[str], sign: str) -> str:
    """The first differing line of a side that has words, short enough for a table."""
    line = next((line[1:].strip() for line in lines if line[0] == sign and line[1:].strip()), "")
    line = line.replace("|", "\\|").replace("`", "'")
    return f"`{line if len(line) <= _WIDEST else line[: _WIDEST - 3] + '...'}`" if line else "(nothing)"


def write(verdicts: Iterable[Verdict], page: Path = GUIDE) -> None:
    """Put the table in the place of the one that the page has."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table(verdicts)}\n\n{END}{after}")


def reasons(page: Path = GUIDE) -> list[tuple[str, str]]:
    """Titles and reasons of the table that a page has, "to be mended: " taken off."""
    made = page.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in made.splitlines() if line[:2] == "| "]
    return [(row[0], row[-1].removeprefix("to be mended: ")) for row in rows[1:]]
