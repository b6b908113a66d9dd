"""The messages that the operator guide explains are those of the programs, word for word."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = sorted((ROOT / "docs/operator").glob("*.md"))
#: What Slurm says, not we.
OF_OTHERS = {"Duplicate jobid"}
#: What stands in a text of the code for a value that it learns later.
HOLE = "\0"


@functools.cache
def modules() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in (ROOT / "rmsplugin").rglob("*.py")]


@functools.cache
def constants() -> dict[str, str]:
    """The constants of all modules that are texts, by name."""
    return {
        target.id: node.value.value
        for module in modules()
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def text_of(part: ast.expr) -> str:
    """What is known beforehand of a part of a text."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
        return constants().get(part.value.id, HOLE)
    return HOLE


@functools.cache
def texts() -> str:
    """All texts of the programs, a line each."""
    lua = [path.read_text() for path in (ROOT / "lua").glob("*.lua")]
    nodes = [node for module in modules() for node in ast.walk(module)]
    whole = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    joined = ["".join(map(text_of, node.values)) for node in nodes if isinstance(node, ast.JoinedStr)]
    return "\n".join([*lua, *whole, *joined])


def explained(part: Path) -> list[str]:
    """The messages in the first columns of a part's tables."""
    rows = re.findall(r"^\| (.*?) \|", part.read_text(), re.MULTILINE)
    return [message for row in rows for message in re.findall(r'"([^"]+)"', row) if message not in OF_OTHERS]


def pieces(message: str) -> list[str]:
    """The words of a message between what differs each time."""
    return [piece.strip(" ,;:.()") for piece in message.split("...") if piece.strip(" ,;:.()")]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_messages_that_are_explained_are_said(part: Path) -> None:
    assert [(message, piece) for message in explained(part) for piece in pieces(message) if piece not in texts()] == []


def test_many_messages_are_explained() -> None:
    assert sum(len(explained(part)) for part in PARTS) > 40
