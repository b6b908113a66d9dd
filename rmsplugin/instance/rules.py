"""Rules: the placement rules of an instance, as the rules of its vjobs (``rmsplugin.model``), or the faults in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rmsplugin.instance.shape import RuleShape, shown
from rmsplugin.model.elements import Node, VJob
from rmsplugin.model.given_rules import About, given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Reserve, Root, Split, Spread, Within
from rmsplugin.model.overbooking import overbooked
from rmsplugin.model.resources import NOTHING, Resources, amount
from rmsplugin.model.rules import Ban, Fence
from rmsplugin.model.validation import Problem

#: By kind of rule: the keys that it needs besides ``rule``; all others are faults.
_NEEDS: dict[str, tuple[str, ...]] = {
    "spread": ("vms",),
    "gather": ("vms",),
    "fence": ("vms", "nodes"),
    "ban": ("vms", "nodes"),
    "lonely": ("vms",),
    "split": ("groups",),
    "root": ("vms",),
    "capacity": ("nodes", "vms", "most"),
    "reserve": ("nodes",),
    "online": ("nodes", "most"),
    "within": ("vms", "sets", "most"),
    "overbook": ("vms", "ratio"),
}
#: By kind of rule: keys that it may have, too.
_MAY = {"reserve": ("cpu", "memory_mib")}
#: Rules that hold at every step, and why they cannot be discrete.
_CONTINUOUS = {
    "root": "who has migrated is not seen in the end",
    "reserve": "memory is kept at every step",
    "overbook": "VMs are booked with the same CPUs at every step",
}

_JOINT: dict[str, Callable[[RuleShape, bool], Joint]] = {
    "spread": lambda data, discrete: Spread(frozenset(data["vms"]), discrete),
    "gather": lambda data, discrete: Gather(frozenset(data["vms"]), discrete),
    "lonely": lambda data, discrete: Lonely(frozenset(data["vms"]), discrete),
    "split": lambda data, discrete: Split(tuple(map(frozenset, data["groups"])), discrete),
    "root": lambda data, _: Root(frozenset(data["vms"])),
    "capacity": lambda data, discrete: Capacity(
        frozenset(data["nodes"]), frozenset(data["vms"]), data["most"], discrete
    ),
    "online": lambda data, discrete: Online(frozenset(data["nodes"]), data["most"], discrete),
    "within": lambda data, discrete: Within(
        tuple(map(frozenset, data["sets"])), frozenset(data["vms"]), data["most"], discrete
    ),
}
_ABOUT_NODES: dict[str, type[Fence] | type[Ban]] = {"fence": Fence, "ban": Ban}


@dataclass(frozen=True, slots=True)
class Ruled:
    """Nodes and vjobs with the rules of a file, and the faults of these rules."""

    nodes: list[Node]
    vjobs: list[VJob]
    faults: list[Problem]


def ruled(data: Sequence[RuleShape], nodes: Sequence[Node], vjobs: Sequence[VJob]) -> Ruled:
    """Give each vjob the rules about its VMs, take from nodes what is reserved, and book the CPUs of overbooked VMs.

    Faulty rules are left out.
    """
    known_nodes, known_vms = {node.name for node in nodes}, {vm.name for vjob in vjobs for vm in vjob.vms}
    faults: list[Problem] = []
    kept, sound = list(nodes), []
    ratios: dict[str, float] = {}
    for i, each in enumerate(data):
        found = [Problem(("rules", i, *place), words) for place, words in _faults(each, known_nodes, known_vms)]
        if each["rule"] == "reserve" and not found:
            kept, found = _reserved(kept, each, i)
        elif each["rule"] == "overbook" and not found:
            found = [
                Problem(("rules", i, "vms"), f"VM {vm!r} is overbooked by another rule, too")
                for vm in each["vms"]
                if vm in ratios
            ]
            ratios.update(dict.fromkeys(each["vms"], each["ratio"]))
        elif not found:
            sound.append(each)
        faults += found
    about = [*map(_about, sound), *_too_narrow(kept, vjobs, ratios)]
    return Ruled(kept, given_rules([_overbooked(vjob, ratios) for vjob in vjobs], about), faults)


def _about(data: RuleShape) -> About:
    kind, discrete = data["rule"], data.get("discrete", False)
    if kind in _ABOUT_NODES:
        return _ABOUT_NODES[kind](frozenset(data["nodes"]), discrete), data["vms"]
    names = [vm for group in data["groups"] for vm in group] if kind == "split" else data.get("vms")
    return _JOINT[kind](data, discrete), names


def _overbooked(vjob: VJob, ratios: Mapping[str, float]) -> VJob:
    """The vjob with the CPUs that are booked for its VMs."""
    if ratios.keys().isdisjoint(vm.name for vm in vjob.vms):
        return vjob
    demands = (amount(overbooked(vm.demand.cpus, ratios.get(vm.name, 1.0)), vm.demand.memory_mib) for vm in vjob.vms)
    return replace(vjob, vms=tuple(replace(vm, demand=demand) for vm, demand in zip(vjob.vms, demands, strict=True)))


def _too_narrow(nodes: Sequence[Node], vjobs: Sequence[VJob], ratios: Mapping[str, float]) -> Iterator[About]:
    """Bans from the nodes that have fewer CPUs than an overbooked VM: there it would share CPUs with itself."""
    of: dict[frozenset[str], list[str]] = {}
    for vm in (vm for vjob in vjobs for vm in vjob.vms if vm.name in ratios):
        narrow = frozenset(node.name for node in nodes if node.capacity.centi_cpus < vm.demand.centi_cpus)
        of.setdefault(narrow, []).append(vm.name)
    return ((Ban(narrow), names) for narrow, names in of.items() if narrow)


def _reserved(nodes: Sequence[Node], data: RuleShape, number: int) -> tuple[list[Node], list[Problem]]:
    """The nodes without what a rule keeps, or the faults if a node has not as much."""
    reserve = Reserve(frozenset(data["nodes"]), Resources(data.get("cpu", 0), data.get("memory_mib", 0)))
    left = [replace(node, capacity=reserve.left_of(node.name, node.capacity)) for node in nodes]
    short = [node for node, now in zip(nodes, left, strict=True) if not now.capacity.holds(NOTHING)]
    if short:
        words = f"{reserve.kept} cannot be kept on {shown(short[0].name)}, which has {short[0].capacity}"
        return list(nodes), [Problem(("rules", number), words)]
    return left, []


_Place = tuple[str | int, ...]


def _faults(data: RuleShape, nodes: Collection[str], vms: Collection[str]) -> Iterator[tuple[_Place, str]]:
    """The faults of one rule: a place in it, and a sentence."""
    kind = data["rule"]
    allowed = {"rule", "discrete", *_NEEDS[kind], *_MAY.get(kind, ())}
    for key in _NEEDS[kind]:
        if key not in data:
            yield (key,), f"is required by {kind}"
    for key in data:
        if key not in allowed:
            yield (key,), f"{kind} has no such key; it has {', '.join((*_NEEDS[kind], *_MAY.get(kind, ())))}"
    if data.get("discrete") and kind in _CONTINUOUS:
        yield ("discrete",), f"{kind} holds at every step: {_CONTINUOUS[kind]}"
    if kind == "reserve" and "cpu" not in data and "memory_mib" not in data:
        yield (), "a reserve needs cpu, memory_mib or both"
    cpu = data.get("cpu", 0)
    if round(cpu, 2) != cpu:
        yield ("cpu",), f"must have two decimals at most, not {cpu!r}"
    yield from _names(data.get("nodes"), "nodes", nodes, "node")
    yield from _names(data.get("vms"), "vms", vms, "VM")
    groups, sets = data.get("groups"), data.get("sets")
    if groups is not None and len(groups) < 2:
        yield ("groups",), "a split needs two groups at least"
    if sets is not None and not sets:
        yield ("sets",), "must name at least one set of nodes"
    yield from _apart(groups, "groups", vms, "VM", "group")
    yield from _apart(sets, "sets", nodes, "node", "set")


def _names(names: Sequence[str] | None, key: str, known: Collection[str], what: str) -> Iterator[tuple[_Place, str]]:
    if names is not None and not names:
        yield (key,), f"must name at least one {what}"
    seen: set[str] = set()
    for at, name in enumerate(names or ()):
        if name not in known:
            yield (key, at), f"there is no {what} {name!r}"
        elif name in seen:
            yield (key, at), f"{what} {name!r} is there more than once"
        seen.add(name)


def _apart(
    lists: Sequence[Sequence[str]] | None, key: str, known: Collection[str], what: str, of: str
) -> Iterator[tuple[_Place, str]]:
    """The faults of lists of names of which no two have the same one."""
    seen: set[str] = set()
    for number, names in enumerate(lists or ()):
        for place, words in _names(names, "", known, what):
            yield (key, number, *place[1:]), words
        for at, name in enumerate(names):
            if name in seen:
                yield (key, number, at), f"{what} {name!r} is in another {of}, too"
        seen.update(names)
