"""Samples: the duration and the moved amount of each action, from the ledger's operations. Pure.

A sample is an operation on a whole vjob, with Slurm, digests and records, for plans and vjobs wait for all of it. Its
VMs are acted on together. The VM that ends last is measured, without the time by which its action began after the
first VM's. The sample's size is the memory that moved through the VM's busiest node meanwhile: its own memory, and
the parts of other VMs' memory that moved there at the same time and shared the node's bandwidth.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: The action of section [durations] by the kind of the operation, and of the actions on its VMs that it consists of.
_ACTIONS = {
    "start": ("run", "run"),
    "stop": ("stop", "stop"),
    "migrate": ("migrate", "migrate"),
    "suspend": ("suspend", "suspend"),
    "resume": ("resume", "resume"),
    "pause": ("pause", "pause"),
    "unpause": ("unpause", "unpause"),
}
#: Kinds of actions that move a VM's memory.
_MOVING = frozenset({"suspend", "resume", "migrate", "copy", "checkpoint"})
#: Names that are no node: nowhere, and the store that all nodes mount.
_NO_NODES = frozenset({"", "shared"})


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement: so many seconds, for so many MiB."""

    seconds: float
    mib: float


@dataclass(frozen=True, slots=True)
class MeasuredAction:
    """An action on a VM that has ended. Times are seconds since the epoch."""

    vm: str
    kind: str  # run, stop, suspend, resume, migrate, pause, unpause, copy, checkpoint
    nodes: tuple[str, ...]
    memory_mib: int  # of the VM
    began: float
    ended: float
    done: bool = True  # whether it succeeded


@dataclass(frozen=True, slots=True)
class MeasuredOperation:
    """A successful operation on a vjob, with the actions on its VMs. Times are seconds since the epoch."""

    kind: str  # start, stop, suspend, resume, migrate, pause, unpause
    began: float
    ended: float
    actions: tuple[MeasuredAction, ...]


def samples_of(
    operations: Iterable[MeasuredOperation], actions: Iterable[MeasuredAction] = ()
) -> dict[str, list[Sample]]:
    """The samples of each action, by its name in the keys of section [durations].

    Args:
        operations: the successful ones, oldest first. Operations with a failed action are left out, for they went on
            after something in between. So are operations that end before they begin, by a step of the clock.
        actions: those of all operations, also of failed ones: they had their share of the nodes.
    """
    operations = list(operations)
    traffic = _Traffic([*actions] or [action for each in operations for action in each.actions])
    samples: dict[str, list[Sample]] = defaultdict(list)
    for operation in operations:
        name, kind = _ACTIONS.get(operation.kind, ("", ""))
        own = sorted((action for action in operation.actions if action.kind == kind), key=lambda each: each.began)
        if not own or not all(action.done for action in operation.actions):
            continue
        last = max(own, key=lambda each: each.ended)
        copies = [each for each in operation.actions if each.kind == "copy"]
        late_s = last.began - own[0].began if kind == "suspend" else 0.0
        seconds = operation.ended - operation.began - late_s
        if seconds > 0:
            moved = [last, *(each for each in copies if each.vm == last.vm)]
            samples["remote_resume" if copies else name].append(Sample(seconds, traffic.of(moved)))
        for one, next_one in pairwise(own) if kind == "suspend" else ():
            if next_one.began > one.began:
                samples["pipeline"].append(Sample(next_one.began - one.began, 0.0))
    return dict(samples)


class _Traffic:
    """The memory moved through each node, with its times."""

    def __init__(self, actions: Sequence[MeasuredAction]) -> None:
        self._by_node: dict[str, list[MeasuredAction]] = defaultdict(list)
        for action in sorted(actions, key=lambda each: each.began):
            if action.kind in _MOVING and action.ended > action.began:
                for node in {*action.nodes} - _NO_NODES:
                    self._by_node[node].append(action)
        self._longest_s = {node: max(a.ended - a.began for a in own) for node, own in self._by_node.items()}

    def of(self, moved: Sequence[MeasuredAction]) -> float:
        """MiB that moved through the busiest node of these actions on one VM while they were under way."""
        own = moved[0]
        began, ended = min(each.began for each in moved), max(each.ended for each in moved)
        nodes = {node for each in moved for node in each.nodes} - _NO_NODES
        return own.memory_mib + max((self._others(node, own.vm, began, ended) for node in nodes), default=0.0)

    def _others(self, node: str, vm: str, began: float, ended: float) -> float:
        """MiB of other VMs, of each at most its memory: a copy and its restore move the same memory."""
        actions = self._by_node[node]
        first = bisect_left(actions, began - self._longest_s.get(node, 0.0), key=lambda each: each.began)
        moved: dict[str, float] = defaultdict(float)
        for action in actions[first : bisect_right(actions, ended, key=lambda each: each.began)]:
            overlap_s = min(ended, action.ended) - max(began, action.began)
            if action.vm != vm and overlap_s > 0:
                part = overlap_s / (action.ended - action.began)
                moved[action.vm] = min(action.memory_mib, moved[action.vm] + part * action.memory_mib)
        return sum(moved.values())
