"""The commands that the documents show."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEMPLATE = DOCS.parent / "contrib/policy-template/README.md"
PAGES = sorted([DOCS.parent / "README.md", TEMPLATE, *DOCS.rglob("*.md")])
GUIDES = [path for path in PAGES if path.parent.name != "decisions"]


def commands_shown(text: str) -> list[str]:
    """The arguments of ``rmsplugin`` wherever a page shows it with a command."""
    shown = re.findall(r"^ *(?:[$#] )?(?:sudo )?rmsplugin +([a-z]+\b(?!:)[^#\n;|]*)", in_code(text), re.MULTILINE)
    shown += re.findall(r"`(?:sudo )?rmsplugin ([a-z]+\b[^`]*)`", text)
    return [words.replace("JOBID", "12").replace("COMMAND", "vjobs").strip() for words in shown]


def in_code(text: str) -> str:
    """The lines of a page that are code: between fences, or indented by two blanks at least."""
    fenced = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"^  .*$", text, re.MULTILINE)])
