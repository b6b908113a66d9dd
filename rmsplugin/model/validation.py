"""Validation: finds the contradictions in a configuration, each with its place."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.elements import SHARED, VM, WAITING, Location, Node, NodeState, VJob, VMState, state_of
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

Place = tuple[str | int, ...]

#: Rules that were found sound, by identity: of a thousand vjobs, most share those about the same 5,000 nodes.
_Sound = set[int]

#: States in which a VM, or its saved state, is on a node.
_ON_NODES = (VMState.RUNNING, VMState.PAUSED, VMState.SLEEPING)

#: More than any machine has; so little that sums and costs stay far inside the 64 bits in which solvers count.
MOST_CPUS = 1_000_000
MOST_MEMORY_MIB = 2**31

#: Decisions that can be fixed for a vjob in a state, by `target`. None goes back and throws a saved state away.
LEGAL_TARGETS = {
    VJobState.WAITING: {VJobState.WAITING, VJobState.RUNNING, VJobState.TERMINATED},
    VJobState.RUNNING: {VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING, VJobState.TERMINATED},
    VJobState.PAUSED: {VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING, VJobState.TERMINATED},
    VJobState.SLEEPING: {VJobState.RUNNING, VJobState.SLEEPING, VJobState.TERMINATED},
    VJobState.TERMINATED: {VJobState.TERMINATED},
}

#: States to which only a preemptible vjob is led while it runs.
_MAKES_WAY = (VJobState.PAUSED, VJobState.SLEEPING)


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a configuration, with its place: e.g. ``("vjobs", 1, "vms", 0, "host")``."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{json_path(self.place)}: {self.message}"


def json_path(place: Iterable[str | int]) -> str:
    """A place as a JSON path: ``$.vjobs[1].vms[0].host``."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)


class InvalidConfigurationError(ValueError):
    """A configuration contradicts itself; ``problems`` has every contradiction with its place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def problems(cluster: Sequence[Node], queue: Sequence[VJob], locations: Mapping[str, Location]) -> Iterator[Problem]:
    """Yield every contradiction of a configuration; nothing if it is sound."""
    nodes: dict[str, Node] = {}
    fine: set[int] = set()  # sound amounts, by identity: equal VMs mostly share one object
    for i, node in enumerate(cluster):
        yield from _name(node.name, nodes, ("nodes", i, "name"), "a node")
        if node.name == SHARED:
            yield Problem(("nodes", i, "name"), f"{SHARED!r} is no name for a node: it means storage that all mount")
        nodes[node.name] = node
        yield from _amounts_once(node.capacity, fine, ("nodes", i))
    there = {name for name, node in nodes.items() if node.state is not NodeState.DOWN and name != SHARED}
    vjobs: set[str] = set()
    vms: set[str] = set()
    sound: _Sound = set()
    mixed = any(node.platform for node in cluster)
    for j, vjob in enumerate(queue):
        if not vjob.name or vjob.name in vjobs:
            yield from _name(vjob.name, vjobs, ("vjobs", j, "name"), "a vjob")
        vjobs.add(vjob.name)
        if not (_are_numbers(vjob) and id(vjob.rules) in sound):
            yield from _restrictions(vjob, nodes, sound, ("vjobs", j))
        plain = not (mixed or vjob.platform or vjob.can is not EVERYTHING)
        alone = len(vjob.vms) == 1 and vjob.target is None and plain
        if alone and _is_one_more(vjob.vms[0], vms, fine, locations, there):
            vms.add(vjob.vms[0].name)
            continue
        names = {vm.name for vm in vjob.vms}
        is_new = len(names) == len(vjob.vms) and "" not in names and vms.isdisjoint(names)
        if is_new and _are_sound(vjob, fine, locations, there):
            vms |= names
        else:
            yield from _vms(vjob, vms, fine, locations, nodes, ("vjobs", j))
        if not plain:
            yield from _platform(vjob, nodes, locations, ("vjobs", j))
        if vjob.target is not None and vjob.vms and all(vm.name in locations for vm in vjob.vms):
            yield from _target(vjob, state_of(vjob, locations), ("vjobs", j))
    for name in () if locations.keys() <= vms else locations:
        if name not in vms:
            yield Problem(("locations", name), "no vjob has a VM of this name")


def misplaced(locations: Mapping[str, Location], vms: Container[str], nodes: Mapping[str, Node]) -> Iterator[Problem]:
    """Yield the faults of planned places for VMs of a sound configuration."""
    for name, location in locations.items():
        if name not in vms:
            yield Problem(("locations", name), "no vjob has a VM of this name")
        yield from _location(location, nodes, ("locations", name))


def _name(name: str, known: Container[str], place: Place, what: str) -> Iterator[Problem]:
    if not name:
        yield Problem(place, f"the name of {what} must not be empty")
    elif name in known:
        yield Problem(place, f"{what} named {name!r} exists already; names must be unique")


def _amounts_once(amount: Resources, fine: set[int], place: Place) -> Iterator[Problem]:
    """Check an amount that is not among the sound ones; if it is sound, it is among them then."""
    if id(amount) in fine:
        return
    faults = list(_amounts(amount, place))
    if not faults:
        fine.add(id(amount))
    yield from faults


def _amounts(amount: Resources, place: Place) -> Iterator[Problem]:
    cpus, memory_mib = amount.cpus, amount.memory_mib
    if not math.isfinite(cpus) or not 0 <= cpus <= MOST_CPUS:
        yield Problem((*place, "cpu"), f"must be a finite number of CPUs from 0 to {MOST_CPUS}, not {cpus}")
    elif abs(cpus * 100 - amount.centi_cpus) > 1e-6:  # Resources.holds and solvers must agree
        yield Problem((*place, "cpu"), f"CPUs are counted in hundredths: two decimals at most, not {cpus}")
    if not isinstance(memory_mib, int) or not 0 <= memory_mib <= MOST_MEMORY_MIB:
        yield Problem(
            (*place, "memory_mib"), f"must be a whole number of MiB from 0 to {MOST_MEMORY_MIB}, not {memory_mib}"
        )


def _are_numbers(vjob: VJob) -> bool:
    """Whether a vjob has VMs, and its numbers are within their bounds, as those of most are; not so a NaN."""
    limit_s, state_s = vjob.time_limit_s, vjob.state_s
    return (
        bool(vjob.vms)
        and (limit_s is None or 0 < limit_s < math.inf)
        and (state_s is None or 0 <= state_s < math.inf)
        and 0 <= vjob.ran_s < math.inf
        and 0 <= vjob.waited_s < math.inf
        and 0 < vjob.weight < math.inf
    )


def _restrictions(vjob: VJob, nodes: Collection[str], sound: _Sound, place: Place) -> Iterator[Problem]:
    if not vjob.vms:
        yield Problem((*place, "vms"), f"vjob {vjob.name!r} has no VM; it needs at least one")
    if id(vjob.rules) not in sound:
        faults = [Problem((*place, key), message) for rule in vjob.rules for key, message in rule.faults(nodes)]
        if not faults:
            sound.add(id(vjob.rules))
        yield from faults
    if vjob.time_limit_s is not None and not (math.isfinite(vjob.time_limit_s) and vjob.time_limit_s > 0):
        yield Problem((*place, "time_limit_s"), f"must be a number of seconds above 0, not {vjob.time_limit_s}")
    for key, seconds in (("ran_s", vjob.ran_s), ("state_s", vjob.state_s), ("waited_s", vjob.waited_s)):
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            yield Problem((*place, key), f"must be a number of seconds, 0 or more, not {seconds}")
    if not (math.isfinite(vjob.weight) and vjob.weight > 0):
        yield Problem((*place, "weight"), f"must be a number above 0, not {vjob.weight}")


def _is_one_more(
    vm: VM, known: Container[str], fine: Container[int], locations: Mapping[str, Location], there: Container[str]
) -> bool:
    """Whether the only VM of a vjob has a name of its own, an amount that is known to be sound, and a sound place."""
    name = vm.name
    return bool(name) and name not in known and id(vm.demand) in fine and _is_sound(locations.get(name), there)


def _are_sound(vjob: VJob, fine: set[int], locations: Mapping[str, Location], there: Container[str]) -> bool:
    """Whether the VMs of a vjob need a check only of their names, as most do; waiting ones are alike."""
    for each in {id(vm.demand): vm.demand for vm in vjob.vms}.values():
        if id(each) not in fine:
            if any(_amounts(each, ())):
                return False
            fine.add(id(each))
    places = [locations.get(vm.name) for vm in vjob.vms]
    return all(_is_sound(place, there) for place in {id(place): place for place in places}.values())


def _is_sound(location: Location | None, there: Container[str]) -> bool:
    """Whether a VM waits, or is on an existing node."""
    return location is WAITING or (location is not None and location.state in _ON_NODES and location.node in there)


def _vms(
    vjob: VJob,
    known: set[str],
    fine: set[int],
    locations: Mapping[str, Location],
    nodes: Mapping[str, Node],
    place: Place,
) -> Iterator[Problem]:
    """Check each VM of a vjob; then its name is known, and so are its amounts, if they are sound."""
    for k, vm in enumerate(vjob.vms):
        own = (*place, "vms", k)
        yield from _name(vm.name, known, (*own, "name"), "a VM")
        known.add(vm.name)
        yield from _amounts_once(vm.demand, fine, own)
        yield from _location(locations.get(vm.name), nodes, own)


def _location(location: Location | None, nodes: Mapping[str, Node], place: Place) -> Iterator[Problem]:
    if location is None:
        yield Problem(place, "nothing says where this VM is")
        return
    state, node = location.state, location.node
    key = (*place, "image" if state is VMState.SLEEPING else "host")
    if state in (VMState.WAITING, VMState.TERMINATED):
        if node is not None:
            yield Problem(key, f"a VM that is {state} is on no node, and not on {node!r}")
    elif node is None:
        yield Problem(key, f"a {state} VM needs its {key[-1]}")
    elif node == SHARED:
        if state is not VMState.SLEEPING:
            what = "runs" if state is VMState.RUNNING else "is paused"
            yield Problem(key, f"a VM {what} on a node, not on {SHARED!r}")
    elif node not in nodes:
        yield Problem(key, f"there is no node {node!r}")
    elif nodes[node].state is NodeState.DOWN:
        yield Problem(key, f"node {node!r} is down: nothing on it exists any more")


def _platform(
    vjob: VJob, nodes: Mapping[str, Node], locations: Mapping[str, Location], place: Place
) -> Iterator[Problem]:
    """The faults of VMs on nodes of another platform, or in a state that their platform does not know."""
    can = vjob.can
    which = f"platform {vjob.platform!r}" if vjob.platform else "its platform"
    for k, vm in enumerate(vjob.vms):
        at = locations.get(vm.name)
        if at is None or at.node is None:
            continue
        own = (*place, "vms", k, "image" if at.state is VMState.SLEEPING else "host")
        if at.node in nodes and nodes[at.node].platform != vjob.platform:
            theirs = nodes[at.node].platform
            others = f"node {at.node!r} is of platform {theirs!r}" if theirs else f"node {at.node!r} is of no platform"
            yield Problem(own, f"{others}, and the vjob of {which}" if vjob.platform else f"{others}, and the vjob not")
        elif at.state is VMState.SLEEPING and not (can.suspend or can.checkpoint):
            yield Problem(own, f"{which} saves no VM, and this one sleeps")
        elif at.state is VMState.SLEEPING and at.node == SHARED and not can.elsewhere:
            yield Problem(own, f"{which} restores a VM only on the node where it was saved: {SHARED!r} is none")
        elif at.state is VMState.PAUSED and not can.pause:
            yield Problem(own, f"{which} pauses no VM, and this one is paused")
    if (vjob.target is VJobState.PAUSED and not can.pause) or (vjob.target is VJobState.SLEEPING and not can.suspend):
        yield Problem((*place, "target"), f"{which} cannot do that with its VMs")


def _target(vjob: VJob, state: VJobState, place: Place) -> Iterator[Problem]:
    if vjob.target is not None and vjob.target not in LEGAL_TARGETS[state]:
        legal = ", ".join(sorted(LEGAL_TARGETS[state]))
        yield Problem((*place, "target"), f"a vjob that is {state} cannot become {vjob.target}; it can become {legal}")
    elif vjob.target in _MAKES_WAY and state is VJobState.RUNNING and not vjob.preemptible:
        yield Problem((*place, "target"), "a vjob that is not preemptible stays running once it runs")
