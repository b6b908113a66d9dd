"""Builder: the plan that leads from a configuration to a target (RR-6929 section 4.1; docs/decisions/0011)."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location
from rmsplugin.planning.order.bypass import DeadlockedError
from rmsplugin.planning.order.improve import Tries, cheapest
from rmsplugin.planning.order.moves import Moves, moves_between
from rmsplugin.planning.plan import Plan, Unreachable


def build_plan(
    source: Configuration,
    target: Mapping[str, Location],
    *,
    early: frozenset[str] | None = None,
    tries: Tries | None = None,
) -> Plan | Unreachable:
    """Order all actions to a target into pools; memory is never overcommitted (I3), and cycles are broken.

    Args:
        source: the present configuration.
        target: the target of each VM; a VM that is not named stays as it is.
        early: names of VMs preferred in the first pool if not all fit; only a preference.
        tries: the bound on the search for a cheaper order; with 0 the plain greedy of the paper comes.

    Returns:
        The plan, never dearer than the plain greedy's. Unreachable only if no plan exists. Then no action leads from a
        VM's location to its target, or a destination takes no VMs, or not those of this vjob, or has not the memory for
        all that shall run there. Full nodes alone are no reason, unless a platform cannot save its VMs.
    """
    moves = moves_between(source, target)
    return moves if isinstance(moves, Unreachable) else plan_of(moves, early or frozenset(), tries)


def plan_of(moves: Moves, early: frozenset[str] = frozenset(), tries: Tries | None = None) -> Plan | Unreachable:
    """As ``build_plan``, of moves that are known."""
    if not moves.departures and not moves.actions:
        return Plan(())
    try:
        return Plan(cheapest(moves, early, tries).actions())
    except DeadlockedError as error:
        return Unreachable(str(error))
