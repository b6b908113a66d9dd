"""Bounds without a solver: the least number of nodes for VMs, and reasons why they cannot fit."""

from __future__ import annotations

import numpy as np

from rmsplugin.model.resources import Resources
from rmsplugin.packing.classes import Classes, Ints

#: The number of different sets of kinds that are looked at when VMs are confined to some of the nodes.
_GROUPS = 200


def impossible(classes: Classes) -> str | None:
    """The reason why the VMs cannot all be hosted, if one of the simple reasons holds; None proves nothing."""
    return _no_node_alone(classes) or _too_much_together(classes)


def fewest(classes: Classes) -> int:
    """A lower bound on the number of nodes: with the biggest first, in each dimension, the number that is enough."""
    return fewest_for(classes.total, classes.capacity[classes.kind_of]) if len(classes.count) else 0


def fewest_for(total: Ints, capacity: Ints) -> int:
    """The same for VMs with this summed demand.

    Args:
        total: hundredths of a CPU, MiB.
        capacity: the same for each node that takes VMs, in rows.
    """
    if not len(capacity):
        return 0
    largest_first = -np.sort(-capacity, axis=0)
    enough = np.cumsum(largest_first, axis=0) >= total
    return int(enough.argmax(axis=0).max()) + 1


def _no_node_alone(classes: Classes) -> str | None:
    """The reason: some VM fits on no node, even if it has one for itself."""
    nowhere = np.flatnonzero((classes.most == 0).all(axis=1))
    if not len(nowhere):
        return None
    c = int(nowhere[0])
    kinds = np.flatnonzero(classes.allowed[c])
    needs = f"VM {classes.vms[c][0]} needs {_amount(classes.demand[c])}"
    if not len(kinds):
        return f"{needs}, and there is no node that is up and allowed for it"
    best = _amount(classes.capacity[kinds].max(axis=0))
    return f"{needs}; no node that it may be on has that much (at most {best}, not necessarily on one node)"


def _too_much_together(classes: Classes) -> str | None:
    """The reason: VMs confined to some nodes (or any VMs, on all nodes) demand more than these have."""
    room = classes.capacity * classes.available[:, None]
    for allowed in np.unique(classes.allowed, axis=0)[:_GROUPS]:
        confined = ~(classes.allowed & ~allowed).any(axis=1)
        need = (classes.demand[confined] * classes.count[confined, None]).sum(axis=0)
        have = room[allowed].sum(axis=0)
        if (need > have).any():
            nodes = int(classes.available[allowed].sum())
            who = f"{int(classes.count[confined].sum())} VMs"
            return f"{who} need {_amount(need)}, and the {nodes} nodes that they may be on have {_amount(have)}"
    return None


def _amount(row: Ints) -> str:
    return str(Resources(int(row[0]) / 100, int(row[1])))
