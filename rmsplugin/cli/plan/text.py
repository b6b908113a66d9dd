"""Text: the answer of `rmsplugin plan` as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.cli.plan.answer import Answer
from rmsplugin.cli.table import Column, Field, Row, Table, duration, text_of
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.elements import SHARED
from rmsplugin.planning.cost import local_cost, pool_cost
from rmsplugin.planning.graph import roman
from rmsplugin.proposing.proposal import Proposal, counted

_VJOBS = (
    Field("vjob", "its name", text_of("vjob")),
    Field("now", "its state in the file", text_of("now")),
    Field("state", "the state that was decided", text_of("state")),
    Field("reason", "why", text_of("reason")),
)

_ACTIONS = (
    Field("action", "what is done", text_of("action")),
    Field("vm", "with which VM", text_of("vm")),
    Field("from", "where it runs, or its saved state lies", text_of("from")),
    Field("to", "where it goes", text_of("to")),
    Field("cost", "what it costs by itself, in MiB", text_of("cost"), right=True),
    Field("note", "what is special about it", text_of("note")),
)


def lines(answer: Answer) -> Iterator[str]:
    """One sentence; the vjobs; the pools; what the plan is worth."""
    yield answer.proposal.sentence
    if answer.source.vjobs:
        yield ""
        yield from _table(_VJOBS).lines(_vjobs(answer))
    yield from _pools(answer)
    yield ""
    yield from _worth(answer.proposal)


def _vjobs(answer: Answer) -> list[Row]:
    return [
        {
            "vjob": vjob.name,
            "now": f"{answer.source.state(vjob)}{', lost' if vjob.lost else ''}",
            "state": str(answer.proposal.decision.states[vjob.name]),
            "reason": answer.proposal.decision.reasons[vjob.name].sentence,
        }
        for vjob in answer.source.vjobs
    ]


def _pools(answer: Answer) -> Iterator[str]:
    rows = [[_row(action) for action in pool] for pool in answer.proposal.plan.pools]
    # One table, so that the columns of all pools stand below each other.
    printed = _table(_ACTIONS).lines(row for pool in rows for row in pool)
    titles = next(printed)
    for number, pool in enumerate(answer.proposal.plan.pools, start=1):
        yield ""
        yield f"pool {roman(number)}: {counted(len(pool), 'action')}, cost {pool_cost(pool)} MiB"
        if number == 1:
            yield f"  {titles}"
        for _ in pool:
            yield f"  {next(printed)}"


def _row(action: Action) -> Row:
    notes = []
    if action.kind is ActionKind.RESUME:
        notes.append("local" if action.is_local else "remote")
    if action.kind is ActionKind.SUSPEND and action.destination == SHARED:
        notes.append("to shared storage")
    if action.bypass:
        notes.append("bypass")
    if action.requeue:
        notes.append("begins anew")
    return {
        "action": str(action.kind),
        "vm": action.vm.name,
        "from": action.source,
        "to": None if action.kind is ActionKind.SUSPEND else action.destination,
        "cost": local_cost(action),
        "note": notes,
    }


def _worth(proposal: Proposal) -> Iterator[str]:
    cost, bound = proposal.plan.cost, proposal.lower_bound
    known = "optimal" if proposal.optimal else f"gap {100 * (cost - bound) / cost:.1f} %"
    yield f"cost      {cost} MiB, proven lower bound {bound} MiB: {known}"
    yield f"nodes     {proposal.nodes_used} in use, proven lower bound {proposal.nodes_lower_bound}"
    by_pools, by_needs = duration(proposal.estimate.by_pools_s), duration(proposal.estimate.by_dependencies_s)
    yield f"makespan  about {by_pools} pool by pool, {by_needs} by dependencies alone"


def _table(fields: tuple[Field, ...]) -> Table:
    return Table([Column(field, field.right) for field in fields])
