"""No name and no import outside ``adapters/platform`` has a word of one platform: what it is called is told there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmsplugin

PACKAGE = Path(rmsplugin.__file__).parent
#: As parts of names; texts and comments for people may name what an administrator has to look after.
WORDS = re.compile(r"libvirt|virsh|qemu|nwfilter|post_?copy|virdomain", re.IGNORECASE)
#: The half of libvirt that runs on the nodes: files of its states, its hook and accounts, its control groups. It still
#: stands among the verbs of the node agent, whichever platform they serve.
NOT_YET_APART = {
    "room_hook.py",
    *(f"node_agent/{name}.py" for name in ("compression", "control_group", "guards", "main", "qemu_account")),
    *(f"node_agent/{name}.py" for name in ("qemu_hook", "templates", "verbs")),
}


def names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of all that is imported, defined, called or handed over by name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=found):
                yield from ((node.lineno, alias.name) for alias in found)
            case ast.ImportFrom(module=module, names=found):
                yield from ((node.lineno, f"{module or ''}.{alias.name}") for alias in found)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield getattr(node, "lineno", 0), name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name


def strange(source: str) -> list[str]:
    return [f"{line}: {name}" for line, name in names(source) if WORDS.search(name)]


def outside() -> list[str]:
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return sorted(str(path) for path in paths if path.parts[:2] != ("adapters", "platform"))


@pytest.mark.parametrize("path", [path for path in outside() if path not in NOT_YET_APART])
def test_no_name_has_a_word_of_a_platform(path: str) -> None:
    assert strange((PACKAGE / path).read_text()) == []


@pytest.mark.parametrize("path", sorted(NOT_YET_APART))
def test_what_was_set_apart_is_not_called_otherwise(path: str) -> None:
    assert strange((PACKAGE / path).read_text()), "take it out of NOT_YET_APART"


@pytest.mark.parametrize(
    "source",
    [
        "import libvirt",
        "from rmsplugin.adapters.platform.libvirt import values",
        "from rmsplugin.adapters.platform import libvirt",
        "POSTCOPY_FAILED = 1",
        "reach.libvirt_open",
        "def f(qemu_uid): ...",
        "f(qemu_hook=True)",
        "class QEMUAccount: ...",
        "async def virsh(): ...",
    ],
)
def test_a_word_is_found(source: str) -> None:
    assert strange(source)


def test_a_text_is_none() -> None:
    assert strange('"""libvirt."""\nanswer.get("qemu_hook")  # QEMU') == []
