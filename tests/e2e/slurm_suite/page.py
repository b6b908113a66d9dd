"""The table of docs/slurm-suite.md, between two markers.

Nothing of the suite's own text gets there: tests are their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from e2e.slurm_suite.results import Comparison, Kind
from e2e.slurm_suite.sources import in_order

PAGE = Path(__file__).resolve().parents[3] / "docs" / "slurm-suite.md"
BEGIN = "<!-- made by contrib/run-campaign slurm-suite --write: -->"
END = "<!-- end of what was made -->"

_HEADER = (
    "| test | native partition | vjob partition | result | why | Slurm | run on |",
    "|---|---|---|---|---|---|---|",
)


def row(each: Comparison, reasons: Mapping[str, str], version: str, date: str) -> str:
    """A test's line."""
    why = each.refusal if each.kind is Kind.REFUSED else reasons.get(each.test, "")
    if each.kind is Kind.DIFFERS and not why:
        why = "not explained yet"
    cells = (each.test, each.native.ending.value, each.vjob.ending.value, each.kind.value, _plain(why), version, date)
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """The text as a cell of a table may have it."""
    return text.replace("|", "\\|").replace("`", "'")


def write(rows: Iterable[str], page: Path = PAGE) -> None:
    """Put rows in the place of those that the page has of the same tests; the others stay."""
    before, begin, rest = page.read_text().partition(BEGIN)
    made, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN} and {END}")
    known = {_test(line): line for line in made.splitlines() if line.startswith("| ") and line not in _HEADER}
    known |= {_test(line): line for line in rows}
    table = [*_HEADER, *(known[test] for test in in_order(known))]
    page.write_text("\n".join([f"{before}{BEGIN}\n", *table, f"\n{END}{after}"]))


def _test(line: str) -> str:
    return line.split("|")[1].strip()
