"""Assignment: gives whole vjobs to groups, in the order of the queue, by the groups' summaries (seed 003, section 4.1).

- A vjob whose VMs have memory in a group stays there.
- A vjob that sleeps stays with the group of its saved states, unless that has no room for it and another one has.
- A vjob that waits goes where there is room beside all that run; of several groups to the one with the least left, so
  that large holes are left for wide vjobs. Else it goes where there would be room if those behind it in the queue made
  way; else it waits where the demand is the least, and stays there while nothing changes.

The group decides then which of its vjobs run. If it had no room after all, for fragments that a summary does not tell,
the vjob goes to another one in the next cycle (``refused``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rmsplugin.groups.choosing import Assigned, Queued, Shape, choose
from rmsplugin.groups.forming import Group
from rmsplugin.groups.summary import summaries
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, Location, Node, NodeState, VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

#: By the name of a vjob, its group.
Assignment = Mapping[str, Assigned]


def assign(
    configuration: Configuration,
    groups: Sequence[Group],
    before: Mapping[str, str] | None = None,
    refused: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Assigned]:
    """Give each vjob to one group.

    Args:
        configuration: nodes, vjobs in the order of the queue (head first), and the location of each VM.
        groups: all groups, at least one.
        before: the groups of vjobs in the cycle before: one that waits for room anyway stays.
        refused: by vjob, the groups that had no room for it though their summaries told of some.

    Returns:
        The group of each vjob, by its name, in the order of the queue.
    """
    ready = (vjob.rules for vjob in configuration.vjobs if configuration.state(vjob) not in _HAVE_MEMORY)
    told = summaries(configuration, groups, ready)
    all_up = all(_takes_vms(node) for node in configuration.nodes)
    return choose(_queued(configuration, groups), groups, told, before, refused, all_up=all_up)


_HAVE_MEMORY = (VJobState.RUNNING, VJobState.PAUSED)


def _queued(configuration: Configuration, groups: Sequence[Group]) -> Iterator[Queued]:
    """The vjobs as the choice of their groups sees them."""
    group_of, locations = _groups_of_hosts(groups), configuration.locations
    shapes: dict[tuple[int, int], Shape] = {}  # of vjobs of one VM, by identity of its demand and of its rules
    for vjob in configuration.vjobs:
        alone = (id(vjob.vms[0].demand), id(vjob.rules)) if len(vjob.vms) == 1 else None
        shape = shapes.get(alone) if alone is not None else None
        if shape is None:
            shape = Shape.of([vm.demand for vm in vjob.vms], vjob.rules)
            if alone is not None:
                shapes[alone] = shape
        bound = vjob.lost or (vjob.target is not None and vjob.target is not VJobState.RUNNING)
        places = [locations[vm.name] for vm in vjob.vms]
        at, several = places[0], len(places) > 1
        if not (at.node or (several and any(place.node for place in places))):
            yield Queued(vjob.name, shape, bound=bound)
            continue
        held = _held(vjob, places, group_of)
        home = _home(vjob, places, group_of) if several else next(iter(held), None)
        has_memory = at.state.holds_memory or (several and any(place.state.holds_memory for place in places))
        firm = _stays(vjob) and configuration.state(vjob) is VJobState.RUNNING
        yield Queued(vjob.name, shape, home, held, has_memory, firm, bound)


def _held(vjob: VJob, places: Sequence[Location], group_of: Mapping[str, str]) -> dict[str, Resources]:
    """By group, the demand of those of its VMs that are there."""
    held: dict[str, Resources] = {}
    for vm, place in zip(vjob.vms, places, strict=True):
        group = group_of.get(place.node or "")
        if group is not None:
            held[group] = held[group] + vm.demand if group in held else vm.demand
    return held


def homes(configuration: Configuration, groups: Sequence[Group]) -> dict[str, str]:
    """The groups of vjobs that have memory or saved states on nodes, by the most of it; by the names of the vjobs."""
    group_of, locations = _groups_of_hosts(groups), configuration.locations
    homed = ((vjob, _home(vjob, [locations[vm.name] for vm in vjob.vms], group_of)) for vjob in configuration.vjobs)
    return {vjob.name: home for vjob, home in homed if home is not None}


def _groups_of_hosts(groups: Sequence[Group]) -> dict[str, str]:
    return {host: group.name for group in groups for host in group.hosts}


def _home(vjob: VJob, places: Sequence[Location], group_of: Mapping[str, str]) -> str | None:
    """The group that has most of the memory of a vjob whose VMs are at these places; else of its saved states."""
    held: dict[str, int] = {}
    saved: dict[str, int] = {}
    for vm, at in zip(vjob.vms, places, strict=True):
        if at.node is None or at.node == SHARED or at.node not in group_of:
            continue
        group, amounts = group_of[at.node], held if at.state.holds_memory else saved
        amounts[group] = amounts.get(group, 0) + max(1, vm.demand.memory_mib)
    amounts = held or saved
    return max(amounts, key=amounts.__getitem__) if amounts else None


def _takes_vms(node: Node) -> bool:
    return node.state is NodeState.UP and node.capacity.memory_mib > 0


def _stays(vjob: VJob) -> bool:
    """Whether a running vjob makes way for nobody."""
    return not vjob.preemptible or vjob.in_transit
