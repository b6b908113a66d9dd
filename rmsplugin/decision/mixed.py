"""Mixed queues: vjobs that may not be preempted by FCFS + EASY, the others by RJSP around them; and no thrashing.

The protection of a cluster from switching to and fro is part of the decision (docs/decisions/0010):

- a vjob that was started or resumed just now is exempt from suspension;
- suspending some so that another one runs must pay for itself, unless that one is of a higher tier, has waited longer
  than the patience, or is the non-preemptible head of the queue;
- a preemptible vjob fills a hole that a reservation ends only if the hole is worth more than the switch;
- with constant demands, a decision is not reversed at once: ``mixed`` applies its decision to the configuration and
  decides again until nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.decision.admission import Draft
from rmsplugin.decision.awaiting import keep_or_await
from rmsplugin.decision.keeping import Kept
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.decision.room import Effort
from rmsplugin.decision.rounds import in_rounds, nobody_starts
from rmsplugin.decision.switching import KEPT, Round
from rmsplugin.model.configuration import Configuration


def mixed(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide, round after round until nothing changes."""
    return in_rounds(configuration, parameters, lambda now, effort, start: _once(now, parameters, effort, start))


def _once(configuration: Configuration, parameters: Parameters, effort: Effort, start: bool) -> Decision | Infeasible:
    """Make one round: keep running vjobs as far as there is room; then let the ready ones start, if ``start``."""
    draft, kept = keep_or_await(configuration, parameters, effort)
    if isinstance(kept, Infeasible):
        return kept
    running = kept.room.names
    for vjob in draft.others:
        if vjob.name in running:
            draft.runs(vjob, KEPT)
    if not start:
        nobody_starts(draft, running, parameters)
        return draft.decision("mixed", (kept.near or kept.room).placement)
    return _started(draft, kept, parameters)


def _started(draft: Draft, kept: Kept, parameters: Parameters) -> Decision:
    """Let the ready ones start; if that asks for too many migrations, only beside the running ones where these are."""
    walk = Round(draft.copy(), kept.room, parameters, kept.moved_mib)
    walk.walk()
    if kept.near is not None and walk.room.names == kept.near.names:
        placement: Mapping[str, str] | None = kept.near.placement  # no vjob came, none went
    else:
        placement = walk.placement()
    if placement is None and kept.near is not None and not draft.effort.is_spent:
        walk = Round(draft.copy(), kept.near, parameters, kept.moved_mib, near_only=True)
        walk.walk()
        placement = walk.placement()
    return walk.draft.decision("mixed", placement or walk.room.placement)
