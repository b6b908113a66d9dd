"""Promises: what the steps of a context switch that is under way have in store for a vjob."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rmsplugin.model.operation import OperationKind

#: Why nothing is decided about a vjob of which a step is planned.
PROMISED = "its turn comes in the context switch that is under way"


#: After these, VMs that they do not name are where an earlier step has left them.
_WHERE_THEY_ARE = (OperationKind.MIGRATE, OperationKind.PAUSE, OperationKind.UNPAUSE)


class Step(Protocol):
    """A step of a context switch, planned or under way."""

    @property
    def vjob(self) -> str:
        """The vjob's name."""
        ...

    @property
    def kind(self) -> OperationKind:
        """What is done to it."""
        ...

    @property
    def hosts(self) -> Mapping[str, str]:
        """By VM name, where it runs afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class Promise:
    """How a vjob ends: by what, and where its VMs are then that have moved."""

    kind: OperationKind
    hosts: Mapping[str, str]

    def will_hold(self, vm: str, otherwise: str) -> frozenset[str]:
        """Where a VM will hold memory once the last step is done; ``otherwise`` if no step moves it."""
        if self.kind is OperationKind.SUSPEND:
            return frozenset()
        return frozenset({self.hosts.get(vm, otherwise)} - {""})


def promises(steps: Iterable[Step]) -> dict[str, Promise]:
    """By vjob, from all steps that have not ended, in their order."""
    found: dict[str, Promise] = {}
    for step in steps:
        known = found.get(step.vjob)
        # VMs of one vjob may move in several steps: each is promised where its own step takes it, or it is paused.
        moved = known.hosts if known is not None and step.kind in _WHERE_THEY_ARE else {}
        found[step.vjob] = Promise(step.kind, {**moved, **step.hosts})  # the last one is how the vjob ends
    return found
