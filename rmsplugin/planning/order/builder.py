"""Builder: the plan that leads from a configuration to a target (RR-6929 section 4.1; docs/decisions/0011)."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location
from rmsplugin.planning.order.improve import Tries, cheapest
from rmsplugin.planning.order.moves import moves_between
from rmsplugin.planning.plan import Plan, Unreachable


def build_plan(
    source: Configuration,
    target: Mapping[str, Location],
    *,
    early: frozenset[str] | None = None,
    tries: Tries | None = None,
) -> Plan | Unreachable:
    """Order all that leads to a target into pools; memory is never overcommitted (I3), and cycles are broken.

    Args:
        source: where all VMs are now.
        target: where each VM shall be; one that is not named stays as it is.
        early: names of VMs to be preferred in the first pool where not all fit; no more than a preference.
        tries: how much may be looked at in search of a cheaper order; of 0 the plain greedy of the paper comes.

    Returns:
        The plan, never dearer than the plain greedy's. Unreachable only if no plan exists: no action leads from a VM's
        location to the one wanted, or a destination takes no VMs, or not those of this vjob, or has not the memory for
        all that shall run there. How full the nodes are is no reason.
    """
    moves = moves_between(source, target)
    if isinstance(moves, Unreachable):
        return moves
    if not moves.departures and not moves.actions:
        return Plan(())
    return Plan(cheapest(moves, early or frozenset(), tries).actions())
