"""Ruled: the meaning of a vjob's rules (``rmsplugin.model.rules``) for a packing: the nodes where its VMs may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from rmsplugin.model.joint import Joint
from rmsplugin.model.rules import Ban, Fence, Rule, Rules

Bools = npt.NDArray[np.bool_]


def mask(rules: Rules, position: Mapping[str, int]) -> Bools:
    """By node, whether a VM with these rules may be there, whatever other VMs are.

    Args:
        rules: the rules of the VM's vjob.
        position: the position of each node, by its name: 0, 1 and so on.
    """
    row = np.full(len(position), True, dtype=np.bool_)
    for rule in rules:
        row &= _row(rule, position)
    return row


@singledispatch
def _row(rule: Rule, position: Mapping[str, int]) -> Bools:
    """One rule's answer for each node. A rule of a type without a constraint here would be broken in silence."""
    raise NotImplementedError(f"no packing knows the rule {rule}")


@_row.register
def _fenced(rule: Fence, position: Mapping[str, int]) -> Bools:
    return _marked(rule.nodes, position)


@_row.register
def _banned(rule: Ban, position: Mapping[str, int]) -> Bools:
    return ~_marked(rule.nodes, position)


@_row.register
def _joined(rule: Joint, position: Mapping[str, int]) -> Bools:
    """Depends on other VMs: see ``rmsplugin.packing.ruled_fit`` and ``ruled_program``."""
    return np.full(len(position), True, dtype=np.bool_)


def _marked(names: Iterable[str], position: Mapping[str, int]) -> Bools:
    row = np.zeros(len(position), dtype=np.bool_)
    row[[position[name] for name in names if name in position]] = True
    return row
