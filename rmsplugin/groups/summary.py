"""Summary: what a group has left, for who knows nothing of its single VMs (seed 003, section 3.2).

Nodes are counted by class: those of one size that the same vjobs may use. Of what is free on single nodes only the
number of holes of a size is told, CPUs in whole ones and memory in quarters of a GiB: smaller fragments are not seen.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.groups.forming import Group
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Rules, admit

#: The steps in which holes are measured: hundredths of a CPU from a whole one on, and below; MiB of memory.
_WHOLE_CENTI, _PART_CENTI, _STEP_MIB = 100, 10, 256

#: A hole: hundredths of a CPU, and MiB.
Hole = tuple[int, int]


class GroupState(enum.StrEnum):
    """Whether VMs may come to a group."""

    UP = "up"
    DRAINING = "draining"  # no node takes VMs, and some have them
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NodeClass:
    """The nodes of a group that are up, of one size, and open to the same vjobs.

    Attributes:
        size: what VMs may take of each.
        closed_to: the rules of vjobs that may not use them.
        nodes: how many there are.
        free: what is free on all of them together.
        holes: the number of nodes by the hole that they have.
    """

    size: Resources
    closed_to: frozenset[Rules]
    nodes: int
    free: Resources
    holes: Mapping[Hole, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """A group in a few numbers.

    Attributes:
        name: of the group.
        state: whether VMs may come.
        nodes: the number of its nodes.
        up: the number of those that take VMs.
        classes: the nodes that take VMs.
        largest: the largest hole: the most memory on a node that has a whole CPU free, with its CPUs.
    """

    name: str
    state: GroupState
    nodes: int
    up: int
    classes: tuple[NodeClass, ...]
    largest: Resources

    @property
    def size(self) -> Resources:
        """What VMs may take of all nodes that are up."""
        cpus = sum(each.size.cpus * each.nodes for each in self.classes)
        return Resources(cpus, sum(each.size.memory_mib * each.nodes for each in self.classes))

    @property
    def free(self) -> Resources:
        """What is free on all nodes that are up."""
        cpus = sum(each.free.cpus for each in self.classes)
        return Resources(round(cpus, 2), sum(each.free.memory_mib for each in self.classes))


def hole_of(free: Resources) -> Hole:
    """The hole that a summary tells of, for what is free on a node: never more than that."""
    centi = max(0, free.centi_cpus)
    step = _WHOLE_CENTI if centi >= _WHOLE_CENTI else _PART_CENTI
    return centi // step * step, max(0, free.memory_mib) // _STEP_MIB * _STEP_MIB


def summaries(configuration: Configuration, groups: Sequence[Group], rules: Iterable[Rules] = ()) -> list[Summary]:
    """The summary of each group.

    Args:
        configuration: nodes, vjobs, and the location of each VM.
        groups: all groups; a host that the configuration does not have counts for nothing.
        rules: the rules of the vjobs for which the summaries are asked.
    """
    objects = {id(each): each for each in rules}  # most vjobs share one, and to compare equal ones takes longer
    distinct = [each for each in dict.fromkeys(objects.values()) if each]
    return [_summary(configuration, group, distinct) for group in groups]


def _summary(configuration: Configuration, group: Group, rules: Sequence[Rules]) -> Summary:
    known = configuration.node_by_name
    nodes = [known[name] for name in group.hosts if name in known]
    up = [node for node in nodes if node.state is NodeState.UP]
    by_class: dict[tuple[Resources, frozenset[Rules]], list[Resources]] = {}
    for node in up:
        closed_to = frozenset(each for each in rules if not admit(each, node.name))
        by_class.setdefault((node.capacity, closed_to), []).append(_left(configuration, node))
    classes = tuple(
        NodeClass(size, closed_to, len(free), sum(free, NOTHING), Counter(map(hole_of, free)))
        for (size, closed_to), free in by_class.items()
    )
    frees = (free for each in by_class.values() for free in each)
    largest = max(frees, key=lambda free: (free.cpus >= 1, free.memory_mib, free.cpus), default=NOTHING)
    state = GroupState.UP if up else GroupState.DOWN
    if not up and any(node.state is NodeState.DRAINING for node in nodes):
        state = GroupState.DRAINING
    return Summary(group.name, state, len(nodes), len(up), classes, largest)


def _left(configuration: Configuration, node: Node) -> Resources:
    """What is free on a node: nothing less than that where its VMs demand more than it has."""
    free = configuration.free(node.name)
    return Resources(max(0.0, round(free.cpus, 2)), max(0, free.memory_mib))


def vms_that_fit(hole: Hole, demand: Resources) -> int:
    """How many VMs of a demand a hole has room for."""
    by_memory = hole[1] // max(1, demand.memory_mib)
    return min(by_memory, hole[0] // demand.centi_cpus) if demand.centi_cpus else by_memory
