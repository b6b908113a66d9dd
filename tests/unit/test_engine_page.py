"""The page about the engine names files that there are, and leaves out no package."""

from __future__ import annotations

import re
from pathlib import Path

import rmsplugin
from rmsplugin.model.vm_phase import HAS, PLACES, TRANSITIONS, VMPhase

PACKAGE = Path(rmsplugin.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/engine.md").read_text()
#: A path, or a module of the engine by its package: what the picture has at the beginning of a line, and what is code.
PLACE = re.compile(r"(?:^ {8}\|  |, |`|; )((?:[a-z_]+/)+[a-z_]*(?:\.py|\.lua)?)(?=[\s`,;:])", re.MULTILINE)


def is_there(place: str) -> bool:
    roots = (PACKAGE / "engine", REPOSITORY)
    return any((root / name).exists() for root in roots for name in (place, f"{place}.py"))


def test_each_file_that_it_names_is_there() -> None:
    places = set(PLACE.findall(PAGE))
    assert len(places) > 40
    assert {place for place in places if not is_there(place)} == set()


def test_each_package_and_module_of_the_engine_has_its_row() -> None:
    _, _, table = PAGE.partition("## Packages")
    table, _, _ = table.partition("## A cycle")
    rows = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    names = {path.name for path in (PACKAGE / "engine").iterdir()} - {"__init__.py", "__pycache__"}
    wanted = {name if name.endswith(".py") else f"{name}/" for name in names}
    assert {name for name in wanted if f"`{name}`" not in rows} == set()


def rows(heading: str) -> list[list[str]]:
    """The rows of the table whose head begins with ``heading``, each as its cells."""
    _, _, table = PAGE.partition(f"| {heading} |")
    table, _, _ = table.partition("\n\n")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_it_has_each_phase_of_a_vm_with_its_places() -> None:
    places = {phase: ", ".join(f"`{place}`" for place in PLACES if place in HAS[phase]) for phase in VMPhase}
    assert [(phase, has) for phase, _, has, _ in rows("phase")] == [*places.items()]


def test_it_has_each_step_between_phases_with_its_reason() -> None:
    steps = [[str(source or "no row"), str(target), why] for (source, target), why in TRANSITIONS.items()]
    assert rows("from") == steps


def test_a_name_of_nothing_is_found() -> None:
    assert not is_there("execute/nothing")
    assert PLACE.findall("        |  execute/nothing   what\n`nowhere/at_all.py`") == [
        "execute/nothing",
        "nowhere/at_all.py",
    ]
