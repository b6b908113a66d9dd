"""The guides in parts: each is short, has a table of contents, and is in its guide's index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = [DOCS / "operator", DOCS / "simulation", DOCS / "user"]
PARTS = [DOCS / "security.md"]
PARTS += [part for guide in GUIDES for part in sorted(guide.glob("*.md")) if part.name != "README.md"]
MOST_WORDS = 2500
TEXTS = ("", ".py", ".c", ".h", ".lua", ".toml", ".example", ".service", ".nft", ".sh")
BEGIN, END = "<!-- contents -->\n", "<!-- end of contents -->\n"

every_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.parent.name}-{part.stem}")


@every_part
def test_a_part_is_short_enough_to_be_read_in_one_go(part: Path) -> None:
    assert len(part.read_text().split()) < MOST_WORDS


@every_part
def test_a_part_says_first_for_whom_it_is_and_then_what_it_has(part: Path) -> None:
    title, introduction, contents = part.read_text().partition(END)[0].split("\n\n")
    assert title.startswith("# ") and introduction.startswith("For ")
    assert contents.startswith(BEGIN) and contents.count("](#") >= 2, "make-docs fills it from two sections or more"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_each_part_is_in_the_index_once(guide: Path) -> None:
    rows = [line for line in (guide / "README.md").read_text().splitlines() if line.startswith("|")]
    named = re.findall(r"\]\(([\w-]+\.md)\)", "\n".join(rows))
    assert sorted(named) == sorted(part.name for part in PARTS if part.parent == guide)


def test_the_faq_has_twenty_questions_and_begins_with_what_it_brings_and_costs() -> None:
    text = (DOCS / "faq.md").read_text()
    asked = re.findall(r"^## (\d+)\. (.+)$", text, re.MULTILINE)
    assert [int(number) for number, _ in asked] == list(range(1, 21))
    assert asked[0][1] == "What does it bring, and what does it cost?"
    assert all(question.endswith("?") for _, question in asked)
    answers = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(answer.strip() for answer in answers)
    assert len(text.split()) < MOST_WORDS


def programs() -> Iterator[Path]:
    """All files that may name a document in words, not in a link."""
    folders = (ROOT / name for name in ("rmsplugin", "contrib", "lua", "hooks", "tests"))
    yield from (path for folder in folders for path in folder.rglob("*") if path.suffix in TEXTS and path.is_file())


def test_documents_that_programs_name_exist() -> None:
    named = re.compile(r"(?<![\w/.-])docs/[\w./-]*\.md")
    missing = {
        (str(path.relative_to(ROOT)), name)
        for path in programs()
        for name in named.findall(path.read_text(errors="replace"))
        if not (ROOT / name).exists()
    }
    assert missing == set()
