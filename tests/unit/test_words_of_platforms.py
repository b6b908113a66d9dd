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
#: What a second platform shares with the first from its first day on: not even their texts name one.
SHARED = ("cli/check/", "node_agent/", "hook.py", "room_hook.py")


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


def test_no_name_has_a_word_of_a_platform() -> None:
    found = [f"{path}:{name}" for path in outside() for name in strange((PACKAGE / path).read_text())]
    assert found == []


def test_no_text_of_what_platforms_share_names_one() -> None:
    shared = [path for path in outside() if path.startswith(SHARED)]
    assert [(path, word) for path in shared for word in WORDS.findall((PACKAGE / path).read_text())] == []


def test_what_platforms_share_is_there() -> None:
    assert {start for start in SHARED for path in outside() if path.startswith(start)} == set(SHARED)


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
