"""Preferring: an operator says that vjobs should run, or should not; it is kept in the ledger until they end."""

from __future__ import annotations

from typing import Any

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.serve.naming import named
from rmsplugin.errors import NotFoundError, RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

_WORDS = {
    "running": "{user} prefers that it runs",
    "sleeping": "{user} prefers that it does not run",
    "auto": "{user} leaves it to the policy again",
}


def prefer(settings: Settings, ledger: Ledger, seen: Observation, user: str, name: str, state: str) -> dict[str, Any]:
    """Keep what is preferred about the vjobs of this name that have not ended. Nothing is begun here.

    Args:
        settings: with the partitions.
        ledger: where it is kept.
        seen: the newest look at the cluster.
        user: who prefers it.
        name: of one vjob, or of elements of an array.
        state: ``running``, ``sleeping`` or ``auto``.

    Returns:
        The vjobs for which it is kept; and by vjob, a sentence where it is not.

    Raises:
        RefusedError: it is not kept for any of them.
        UnavailableError: the engine does not know the vjob yet.
    """
    try:
        found = named(settings, ledger, seen, name).alive
    except NotFoundError as error:  # Slurm has it: the caller has asked
        raise UnavailableError(f"{error}: the engine has not met its job yet; try again in a moment") from None
    refused = {row.display_id: why for row in found.rows if (why := _objection(seen, row, state))}
    whole = "is not split off its array by Slurm yet, so that nothing can be kept about it alone"
    refused |= {element: f"vjob {element} {whole}" for element in found.waiting}
    taken = [row for row in found.rows if row.display_id not in refused]
    if not taken:
        raise RefusedError(next(iter(refused.values())))
    kept = "" if state == "auto" else state
    with ledger.transaction():
        for row in taken:
            if row.preference != kept:
                ledger.update_vjob(row.job_id, preference=kept)
                ledger.event("preferred", _WORDS[state].format(user=user), vjob=row.display_id)
    return {"vjobs": [row.display_id for row in taken], "refused": refused}


def _objection(seen: Observation, row: VJobRow, state: str) -> str:
    if row.state is VJobState.TERMINATED:
        return f"vjob {row.display_id} has ended"
    if state == "sleeping" and row.state is VJobState.RUNNING and not site.may_suspend(seen.rms, row.partition):
        never = f"partition {row.partition} has PreemptMode=OFF: its vjobs are never suspended"
        return f"vjob {row.display_id} runs, and {never}"
    return ""
