"""Live: what the next cycle of the engine would do, as `rmsplugin plan --live` tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmsplugin.cli.plan import text
from rmsplugin.cli.shared.sentences import pause_sentence
from rmsplugin.cli.shared.table import Field, duration, hosts_of, plain_table, terminal_width, text_of

_STEPS = (
    Field("step", "its number", text_of("id"), right=True),
    Field("kind", "what is done", text_of("kind")),
    Field("vjob", "the vjob", text_of("vjob")),
    Field("nodes", "where its VMs go", hosts_of),
    Field("needs", "the steps for which it waits", text_of("needs")),
)

_POWERS = (
    Field("action", "what is done to the node", text_of("action")),
    Field("node", "the node", text_of("node")),
    Field("state", "running, or planned: the next cycle begins it", text_of("state")),
    Field("takes", "how long it takes, or still takes", lambda row: duration(row["takes_s"]), right=True),
    Field("needs", "the steps for which it waits", text_of("needs")),
    Field("neededby", "the vjobs that start once it is on", text_of("needed_by")),
    Field("reason", "why", text_of("reason")),
)

_LEFT_OUT = (
    Field("vjob", "which one", text_of("vjob")),
    Field("reason", "why nothing is decided about it", text_of("reason")),
)


def lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The plan as offline; its steps; who is left out; and what keeps the engine from it."""
    if answer["paused"]:
        yield f"{pause_sentence(answer['paused'])}: nothing of this is begun before `rmsplugin unpause`"
    if answer["plan"] is not None:
        yield from text.lines(answer, answer["summary"], answer["now"])
    if answer["steps"]:
        yield ""
        yield from plain_table(_STEPS, width=terminal_width()).lines(answer["steps"])
    if powers := answer.get("powers"):  # an older engine tells none
        yield ""
        yield from plain_table(_POWERS, width=terminal_width()).lines(powers)
    if answer["left_out"]:
        yield ""
        yield "nothing is decided about:"
        rows = [{"vjob": vjob, **left} for vjob, left in answer["left_out"].items()]
        yield from (f"  {line}" for line in plain_table(_LEFT_OUT, width=terminal_width(indent=2)).lines(rows))
    for node, why in answer["out_of_reach"].items():
        yield f"node {node} is out of reach: {why}"
    if answer["fault"] and answer["plan"] is not None:
        yield f"fault: {answer['fault']}; First Fit Decreasing alone decided"
