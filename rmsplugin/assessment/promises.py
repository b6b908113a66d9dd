"""Promises: the planned end of a vjob by the steps of a context switch under way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rmsplugin.model.operation import OperationKind

#: The reason why nothing is decided about a vjob that has a planned step.
PROMISED = "its turn comes in the context switch that is under way"


#: After these steps, VMs that they do not name are where an earlier step has left them.
_WHERE_THEY_ARE = (OperationKind.MIGRATE, OperationKind.PAUSE, OperationKind.UNPAUSE)


class Step(Protocol):
    """A step of a context switch, planned or under way."""

    @property
    def vjob(self) -> str:
        """The vjob's name."""
        ...

    @property
    def kind(self) -> OperationKind:
        """The kind of the step."""
        ...

    @property
    def hosts(self) -> Mapping[str, str]:
        """By VM name, its host afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class Promise:
    """The end of a vjob: the kind of its last step, and the hosts of its VMs that have moved."""

    kind: OperationKind
    hosts: Mapping[str, str]

    def will_hold(self, vm: str, otherwise: str) -> frozenset[str]:
        """The node where a VM will hold memory after the last step; ``otherwise`` if no step moves it."""
        if self.kind is OperationKind.SUSPEND:
            return frozenset()
        return frozenset({self.hosts.get(vm, otherwise)} - {""})


def promises(steps: Iterable[Step]) -> dict[str, Promise]:
    """The promises by vjob, from all steps that have not ended, in their order."""
    found: dict[str, Promise] = {}
    for step in steps:
        known = found.get(step.vjob)
        # VMs of one vjob may move in several steps: each is promised the host of its own step, or it is paused.
        moved = known.hosts if known is not None and step.kind in _WHERE_THEY_ARE else {}
        found[step.vjob] = Promise(step.kind, {**moved, **step.hosts})  # the last step is the end of the vjob
    return found
