"""The table of the kinds of events has those that the engine records, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import rmsplugin.engine
from rmsplugin.engine.context import outages
from rmsplugin.engine.decide import relief
from rmsplugin.engine.ledger.rows import OPEN_STEPS, RunState, StepState
from rmsplugin.model.event_kinds import GROUPS, KINDS
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import VJobState

ENGINE = Path(rmsplugin.engine.__file__).parent
#: Kinds that are put together, by where their parts come from.
MADE = {
    *(f"vjob-{state}" for state in VJobState),
    *(f"{kind}-failed" for kind in OperationKind),
    *(f"step-{state}" for state in StepState if state not in OPEN_STEPS),
    *(f"schedule-{state}" for state in (RunState.FAILED, RunState.INTERRUPTED)),
    *(f"room-{hook}" for hook in ("prolog", "epilog")),
    *(kind for words in outages._WORDS.values() for kind in (words.began, words.ended)),
    *relief.EVENTS.values(),
}


def recorded() -> Iterator[ast.expr]:
    """The expressions that give the kind of an event, wherever the engine records one."""
    for path in ENGINE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name, place = node.func.attr, {"event": 0, "_event": 1 if path.name == "post.py" else 0}
                if name in place and len(node.args) > place[name]:
                    yield node.args[place[name]]


def test_each_kind_that_the_engine_records_is_in_the_table() -> None:
    plain = {each.value for each in recorded() if isinstance(each, ast.Constant)}
    assert len(plain) > 60
    assert plain - KINDS == set() and set() == MADE - KINDS


def test_each_kind_that_is_put_together_is_one_whose_parts_are_known() -> None:
    patterns = {
        "".join("[a-z-]+" if isinstance(part, ast.FormattedValue) else str(part.value) for part in each.values)  # type: ignore[attr-defined]
        for each in recorded()
        if isinstance(each, ast.JoinedStr)
    }
    assert {each for each in patterns if not any(re.fullmatch(each, kind) for kind in MADE)} == set()


def test_the_table_has_no_kind_that_no_event_has() -> None:
    words = {
        node.value
        for path in ENGINE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert KINDS - MADE - words == set()
    assert len(KINDS) == sum(map(len, GROUPS.values())), "each is in one group"
