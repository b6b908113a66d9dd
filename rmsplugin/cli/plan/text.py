"""Text: the answer of `rmsplugin plan` as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmsplugin.cli.plan import energy
from rmsplugin.cli.shared.table import Field, Row, duration, plain_table, terminal_width, text_of
from rmsplugin.model.elements import SHARED
from rmsplugin.model.wording import counted
from rmsplugin.planning.graph import roman

_VJOBS = (
    Field("vjob", "its name", text_of("vjob")),
    Field("now", "its state before", text_of("now")),
    Field("state", "the state that was decided", text_of("state")),
    Field("reason", "why", text_of("reason")),
)

_ACTIONS = (
    Field("action", "what is done", text_of("action")),
    Field("vm", "with which VM", text_of("vm")),
    Field("from", "where it runs, or its saved state lies", text_of("from")),
    Field("to", "where it goes", text_of("to")),
    Field("cost", "its own cost, in MiB", text_of("cost"), right=True),
    Field("note", "what is special about it", text_of("note")),
)


def lines(document: Mapping[str, Any], sentence: str, now: Mapping[str, str]) -> Iterator[str]:
    """One sentence, and one for each note; the vjobs; the pools; what the plan is worth.

    Args:
        document: as ``rmsplugin.proposing.document`` makes it.
        sentence: the whole in one.
        now: the state of each vjob before, by name.
    """
    yield sentence
    yield from (f"{note['sentence']}." for note in document.get("notes", ()))
    if document["decision"]:
        yield ""
        yield from plain_table(_VJOBS, width=terminal_width()).lines(
            {"vjob": vjob, "now": now.get(vjob), **decided} for vjob, decided in document["decision"].items()
        )
    yield from _pools(document["plan"]["pools"])
    if nodes := document["plan"].get("nodes", []):
        yield ""
        yield from (f"{each['action']} {each['node']}" for each in nodes)
    yield ""
    yield from _worth(document)
    if "energy" in document:
        yield energy.line(document["energy"])


def _pools(pools: list[list[Row]]) -> Iterator[str]:
    # One table, so that the columns of all pools stand below each other.
    printed = plain_table(_ACTIONS).lines(_row(action) for pool in pools for action in pool)
    titles = next(printed)
    for number, pool in enumerate(pools, start=1):
        dearest = max(action["cost"] for action in pool)
        yield ""
        yield f"pool {roman(number)}: {counted(len(pool), 'action')}, cost {dearest} MiB"
        if number == 1:
            yield f"  {titles}"
        for _ in pool:
            yield f"  {next(printed)}"


def _row(action: Row) -> Row:
    notes = []
    if "local" in action:
        notes.append("local" if action["local"] else "remote")
    if action.get("image") == SHARED:
        notes.append("to shared storage")
    if action.get("bypass"):
        notes.append("bypass")
    if action.get("paused"):
        notes.append("paused")
    if action.get("requeue"):
        notes.append("begins anew")
    return {**action, "note": notes}


def _worth(document: Mapping[str, Any]) -> Iterator[str]:
    plan = document["plan"]
    cost, bound, estimate = plan["cost"], plan["lower_bound"], plan["makespan_s"]
    known = "optimal" if plan["optimal"] else f"gap {100 * (cost - bound) / cost:.1f} %"
    yield f"cost      {cost} MiB, proven lower bound {bound} MiB: {known}"
    yield f"nodes     {document['nodes_used']} in use, proven lower bound {document['nodes_lower_bound']}"
    by_pools, by_needs = duration(estimate["pools"]), duration(estimate["dependencies"])
    yield f"makespan  about {by_pools} pool by pool, {by_needs} by dependencies alone"
