"""docs/reproduction.md has a row for each figure and table of the papers, and for each row of the list that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reproduction.md"

#: The list of what differs from the papers; it is not part of the repository.
LIST = ROOT.parent / "shared" / "design" / "conformance.md"

#: By paper, the numbers of its figures and of its tables.
PAPERS = {
    "RR-6929": (range(1, 14), range(1, 2)),
    "its French version": (range(1, 9), range(1, 2)),
    "VEE'09": (range(1, 18), range(0)),
    "RR-7398": (range(1, 8), range(0)),
    "ICDCS 2002": (range(1, 5), range(1, 3)),
}


def section(title: str) -> str:
    """The text below a heading, until the next one of its level."""
    _, _, rest = PAGE.read_text().partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of the rows of all tables in a text, but those of their rulers."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if set("".join(row)) != {"-"}]


def told(paper: str, kind: str) -> list[int]:
    """The numbers of the figures, or tables, of a paper that have a row, one by one."""
    found: list[int] = []
    paper_now = ""
    for first, shows, here in rows(section("Figure by figure")):
        if shows == "shows":
            paper_now = first
        elif paper_now == paper and (match := re.fullmatch(rf"{kind}s? ([\d, ]+)", first)):
            assert here, f"{paper}, {first}: what is here?"
            found += map(int, match[1].split(","))
    return found


@pytest.mark.parametrize("paper", PAPERS)
def test_each_figure_and_table_has_one_row(paper: str) -> None:
    figures, tables = PAPERS[paper]
    assert sorted(told(paper, "figure")) == list(figures)
    assert sorted(told(paper, "table")) == list(tables)


def identifiers(cells: str) -> set[str]:
    """The identifiers of rows, as A5 or 000 4.1."""
    return set(re.findall(r"\b(?:[A-E]\d+|00\d \d(?:\.\d)?)\b", cells))


def test_rows_of_the_list_exist_there_and_none_is_left_out() -> None:
    if not LIST.exists():
        pytest.skip(f"{LIST} is not there")
    ours = set().union(*(identifiers(row[0]) for row in rows(section("Row by row"))[1:]))
    listed = [row for row in rows(LIST.read_text()) if row[0] not in ("where", "row")]
    missing = set().union(*(identifiers(row[0]) for row in listed if len(row) == 3))
    assert {each for each in missing if each[0] in "ABCDE"} <= ours
    known = set().union(*(identifiers(" ".join(row)) for row in listed))
    assert {each for each in ours if each[0] in "ABCDE"} <= known
