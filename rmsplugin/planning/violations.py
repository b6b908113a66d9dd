"""Violations: the faults that a checker tells of a plan, each with the rule that it breaks."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action

Pools = Sequence[Sequence[Action]]


class Rule(enum.StrEnum):
    """The rules that a plan can break."""

    UNKNOWN_VM = "unknown-vm"  # of an action, or of the target
    STALE = "stale"  # planned for a demand that the VM does not have
    ILLEGAL = "illegal"  # the VM is not in the state, or not at the place, that the action starts from (I1)
    TWICE = "twice"  # two actions on one VM in a pool
    DESTINATION = "destination"  # unknown, not up, against a rule of the vjob, or no move at all
    MEMORY = "memory"  # overcommitted while a pool is carried out (I3)
    EMPTY_POOL = "empty-pool"
    LATE = "late"  # a suspend, stop or pause after the first pool that may have it
    SCATTERED = "scattered"  # the resumes, pauses or unpauses of a vjob in several pools
    CPUS = "cpus"  # a VM goes on where its CPUs are not free
    BYPASS = "bypass"  # that leads nowhere, or a detour that is not marked as one
    PLATFORM = "platform"  # the platform of the VM cannot do this, or the node is of another one
    PREEMPTION = "preemption"  # a vjob that may not be preempted is suspended or paused
    LOSS = "loss"  # the work of a vjob is thrown away (I2, I5)
    TARGET = "target"  # a VM is not at its target in the end (I2: nor is its saved state)
    MIXED = "mixed"  # VMs of a vjob are in different states in the end (I4)
    VIABILITY = "viability"  # a node has less than its VMs demand in the end
    NODE = "node"  # an action of a node is impossible, or could begin too early
    COST = "cost"  # another cost than stated


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault of a plan: its pool (from 0) and its action, if it is about one in particular."""

    rule: Rule
    pool: int | None
    action: Action | None
    sentence: str

    def __str__(self) -> str:
        where = "the plan" if self.pool is None else f"pool {self.pool}"
        return f"{where}{f', {self.action}' if self.action else ''}: {self.sentence}"
