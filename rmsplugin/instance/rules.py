"""Rules: the placement rules of an instance, as the rules of its vjobs (``rmsplugin.model``), or the faults in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rmsplugin.instance.shape import RuleShape, shown
from rmsplugin.model.elements import Node, VJob
from rmsplugin.model.given_rules import About, given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Reserve, Root, Split, Spread
from rmsplugin.model.resources import NOTHING, Resources
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
}
#: By kind of rule: keys that it may have, too.
_MAY = {"reserve": ("cpu", "memory_mib")}
#: Rules that hold at every step, and why they cannot be discrete.
_CONTINUOUS = {"root": "who has migrated is not seen in the end", "reserve": "memory is kept at every step"}

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
}
_ABOUT_NODES: dict[str, type[Fence] | type[Ban]] = {"fence": Fence, "ban": Ban}


@dataclass(frozen=True, slots=True)
class Ruled:
    """Nodes and vjobs with the rules of a file, and the faults of these rules."""

    nodes: list[Node]
    vjobs: list[VJob]
    faults: list[Problem]


def ruled(data: Sequence[RuleShape], nodes: Sequence[Node], vjobs: Sequence[VJob]) -> Ruled:
    """Give each vjob the rules about its VMs, and take from nodes what is reserved. Faulty rules are left out."""
    known_nodes, known_vms = {node.name for node in nodes}, {vm.name for vjob in vjobs for vm in vjob.vms}
    faults: list[Problem] = []
    kept, sound = list(nodes), []
    for i, each in enumerate(data):
        found = [Problem(("rules", i, *place), words) for place, words in _faults(each, known_nodes, known_vms)]
        if each["rule"] == "reserve" and not found:
            kept, found = _reserved(kept, each, i)
        elif not found:
            sound.append(each)
        faults += found
    return Ruled(kept, given_rules(vjobs, map(_about, sound)), faults)


def _about(data: RuleShape) -> About:
    kind, discrete = data["rule"], data.get("discrete", False)
    if kind in _ABOUT_NODES:
        return _ABOUT_NODES[kind](frozenset(data["nodes"]), discrete), data["vms"]
    names = [vm for group in data["groups"] for vm in group] if kind == "split" else data.get("vms")
    return _JOINT[kind](data, discrete), names


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
    yield from _groups(data.get("groups"), vms)


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


def _groups(groups: Sequence[Sequence[str]] | None, vms: Collection[str]) -> Iterator[tuple[_Place, str]]:
    if groups is not None and len(groups) < 2:
        yield ("groups",), "a split needs two groups at least"
    seen: set[str] = set()
    for number, group in enumerate(groups or ()):
        for place, words in _names(group, "", vms, "VM"):
            yield ("groups", number, *place[1:]), words
        for at, name in enumerate(group):
            if name in seen:
                yield ("groups", number, at), f"VM {name!r} is in another group, too"
        seen.update(group)
