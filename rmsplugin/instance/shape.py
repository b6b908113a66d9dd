"""Shape: the keys and values of an instance, and the messages about a file that has others."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rmsplugin.model.overbooking import MOST_OVERBOOKING
from rmsplugin.model.validation import Place, Problem

#: More than any machine has, and so little that sums over a cluster stay exact in a solver's 64 bits.
MAX_CPU, MAX_MEMORY_MIB, MAX_SECONDS, MAX_PRIORITY = 1_000_000, 2**30, 10**10, 2**31 - 1
MAX_WEIGHT, MAX_MOST = 1_000_000, 1_000_000

_Cpu = Annotated[float, Field(ge=0, le=MAX_CPU, allow_inf_nan=False)]
_Memory = Annotated[int, Field(ge=0, le=MAX_MEMORY_MIB)]
_Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
_T = TypeVar("_T")


def _closed(cls: type[_T]) -> type[_T]:
    """Accept no other keys, and no text for a number."""
    cls.__pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[attr-defined]
    return cls


# Dictionaries, not models: so only the model's own objects are made of a large cluster's 30,000 VMs.
@_closed
class NodeShape(TypedDict):
    """A node."""

    name: str
    cpu: _Cpu
    memory_mib: _Memory
    state: NotRequired[Literal["up", "draining", "down"]]
    platform: NotRequired[str]


@_closed
class VMShape(TypedDict):
    """A VM of a vjob."""

    name: str
    cpu: _Cpu
    memory_mib: _Memory
    host: NotRequired[str | None]
    image: NotRequired[str | None]


@_closed
class VJobShape(TypedDict):
    """A vjob; its optional keys have defaults in the model."""

    name: str
    state: Literal["waiting", "running", "paused", "sleeping", "terminated"]
    vms: list[VMShape]
    preemptible: NotRequired[bool]
    target: NotRequired[Literal["running", "paused", "sleeping", "waiting", "terminated"] | None]
    preference: NotRequired[Literal["running", "sleeping"] | None]
    nodes: NotRequired[list[str] | None]
    exclude: NotRequired[list[str]]
    priority: NotRequired[Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]]
    time_limit_s: NotRequired[Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)] | None]
    ran_s: NotRequired[_Seconds]
    state_s: NotRequired[_Seconds | None]
    waited_s: NotRequired[_Seconds]
    weight: NotRequired[Annotated[float, Field(gt=0, le=MAX_WEIGHT, allow_inf_nan=False)]]
    user: NotRequired[str]
    platform: NotRequired[str]


@_closed
class PlatformShape(TypedDict):
    """A platform; it can do all that it is not said to lack."""

    name: Annotated[str, Field(min_length=1)]
    lacks: NotRequired[list[Literal["migrate", "suspend", "elsewhere", "pause"]]]


@_closed
class RuleShape(TypedDict):
    """A placement rule; ``rmsplugin.instance.rules`` says which keys each kind has."""

    rule: Literal[
        "spread",
        "gather",
        "fence",
        "ban",
        "lonely",
        "split",
        "root",
        "capacity",
        "reserve",
        "online",
        "within",
        "overbook",
    ]
    vms: NotRequired[list[str]]
    nodes: NotRequired[list[str]]
    groups: NotRequired[list[list[str]]]
    sets: NotRequired[list[list[str]]]
    most: NotRequired[Annotated[int, Field(ge=0, le=MAX_MOST)]]
    cpu: NotRequired[_Cpu]
    memory_mib: NotRequired[_Memory]
    ratio: NotRequired[Annotated[float, Field(ge=1, le=MOST_OVERBOOKING, allow_inf_nan=False)]]
    discrete: NotRequired[bool]


@_closed
class InstanceShape(TypedDict):
    """The whole file."""

    nodes: Annotated[list[NodeShape], Field(min_length=1)]
    vjobs: list[VJobShape]
    platforms: NotRequired[list[PlatformShape]]
    rules: NotRequired[list[RuleShape]]


_ADAPTER = TypeAdapter(InstanceShape)

#: The keys of the object at a place; the place is given by keys, without indices.
_KEYS: dict[tuple[str, ...], tuple[str, ...]] = {
    (): tuple(InstanceShape.__annotations__),
    ("nodes",): tuple(NodeShape.__annotations__),
    ("vjobs",): tuple(VJobShape.__annotations__),
    ("vjobs", "vms"): tuple(VMShape.__annotations__),
    ("platforms",): tuple(PlatformShape.__annotations__),
    ("rules",): tuple(RuleShape.__annotations__),
}

_AMOUNTS = {
    "name": "a text",
    "cpu": "a finite number of CPUs, 0 or more",
    "memory_mib": "a whole number of MiB, 0 or more",
}

#: The expected content of a place, by its keys; 0 stands for the elements of a list.
_EXPECTED: dict[tuple[str | int, ...], str] = {
    (): "an object with the keys nodes and vjobs",
    ("nodes",): "a list of at least one node",
    ("nodes", 0): "an object that describes a node",
    ("nodes", "state"): "up, draining or down",
    ("vjobs",): "a list of vjobs, the head of the queue first",
    ("vjobs", 0): "an object that describes a vjob",
    ("vjobs", "state"): "waiting, running, paused, sleeping or terminated",
    ("vjobs", "target"): "running, paused, sleeping, waiting or terminated",
    ("vjobs", "preference"): "running or sleeping",
    ("vjobs", "preemptible"): "true or false",
    ("vjobs", "nodes"): "a list of names of nodes",
    ("vjobs", "nodes", 0): "the name of a node",
    ("vjobs", "exclude"): "a list of names of nodes",
    ("vjobs", "exclude", 0): "the name of a node",
    ("vjobs", "priority"): "a whole number",
    ("vjobs", "time_limit_s"): "a number of seconds above 0",
    ("vjobs", "ran_s"): "a number of seconds, 0 or more",
    ("vjobs", "state_s"): "a number of seconds, 0 or more",
    ("vjobs", "waited_s"): "a number of seconds, 0 or more",
    ("vjobs", "weight"): "a number above 0",
    ("vjobs", "user"): "the name of a user",
    ("vjobs", "vms"): "a list of VMs",
    ("vjobs", "vms", 0): "an object that describes a VM",
    ("nodes", "platform"): "the name of a platform",
    ("vjobs", "platform"): "the name of a platform",
    ("platforms",): "a list of platforms",
    ("platforms", 0): "an object that describes a platform",
    ("platforms", "name"): "a text that is not empty",
    ("platforms", "lacks"): "a list of abilities",
    ("platforms", "lacks", 0): "migrate, suspend, elsewhere or pause",
    ("rules",): "a list of rules",
    ("rules", 0): "an object that describes a rule",
    ("rules", "rule"): "spread, gather, fence, ban, lonely, split, root, capacity, reserve, online, within or overbook",
    ("rules", "vms"): "a list of names of VMs",
    ("rules", "vms", 0): "the name of a VM",
    ("rules", "nodes"): "a list of names of nodes",
    ("rules", "nodes", 0): "the name of a node",
    ("rules", "groups"): "a list of lists of names of VMs",
    ("rules", "groups", 0): "a list of names of VMs",
    ("rules", "sets"): "a list of lists of names of nodes",
    ("rules", "sets", 0): "a list of names of nodes",
    ("rules", "most"): "a whole number, 0 or more",
    ("rules", "ratio"): f"a number from 1 to {MOST_OVERBOOKING:g}",
    ("rules", "discrete"): "true or false",
    ("vjobs", "vms", "host"): "the name of a node",
    ("vjobs", "vms", "image"): 'the name of a node, or "shared"',
    **{
        (*kind, key): text
        for kind in (("nodes",), ("vjobs",), ("vjobs", "vms"), ("rules",))
        for key, text in _AMOUNTS.items()
    },
}

#: The bounds of a number, by its key.
_BOUNDS = {
    "cpu": MAX_CPU,
    "memory_mib": MAX_MEMORY_MIB,
    "priority": MAX_PRIORITY,
    "time_limit_s": MAX_SECONDS,
    "ran_s": MAX_SECONDS,
    "state_s": MAX_SECONDS,
    "waited_s": MAX_SECONDS,
    "weight": MAX_WEIGHT,
    "most": MAX_MOST,
}

#: Stand-ins for faulty values, so that the rest of a file can be looked at; all other keys may be left out.
_STAND_INS: dict[tuple[str, ...], dict[str, Any]] = {
    ("nodes",): {"name": "", "cpu": 0, "memory_mib": 0},
    ("vjobs",): {"name": "", "state": "waiting", "vms": []},
    ("vjobs", "vms"): {"name": "", "cpu": 0, "memory_mib": 0},
    ("platforms",): {"name": ""},
    ("rules",): {"rule": "online"},
}


def shape(data: Any) -> tuple[InstanceShape | None, list[Problem]]:
    """The data as an instance, and the faults of its shape.

    Where there are faults, the instance has stand-ins in their places, or is None if nodes or vjobs are no lists.
    """
    try:
        return _ADAPTER.validate_python(data), []
    except ValidationError as error:
        faults = [_explain(fault["loc"], fault["type"], fault["input"]) for fault in error.errors(include_url=False)]
    if any(len(fault.place) < 2 for fault in faults):
        return None, faults
    return _ADAPTER.validate_python(_mended(data, [fault.place for fault in faults])), faults


class Hidden:
    """Tells which other faults need not be told, because faults of the shape may be their only cause."""

    def __init__(self, faults: Iterable[Problem]) -> None:
        """``faults``: the faults of the shape."""
        self._places = {fault.place for fault in faults}
        kinds = {place: _keys(place) for place in self._places}
        # The needs of VMs are unknown for a vjob in no known state.
        self._stateless = {place[:2] for place, kind in kinds.items() if kind == ("vjobs", "state")}
        self._misshapen_rules = {place[:2] for place, kind in kinds.items() if kind[:1] == ("rules",)}
        self._nodes_unknown = not {("nodes",), ("nodes", "name")}.isdisjoint(kinds.values())

    def __contains__(self, fault: Problem) -> bool:
        """Whether a fault need not be told."""
        place = fault.place
        if any(place[:length] in self._places for length in range(len(place) + 1)):
            return True
        if place[:2] in self._misshapen_rules:
            return True
        if place[-1] in ("host", "image", "target") and place[:2] in self._stateless:
            return True
        return self._nodes_unknown and fault.message.startswith("there is no node")


def _mended(data: Any, places: Iterable[Place]) -> Any:
    """A copy of the data with stand-ins in these places; all other places keep their indices."""
    mended = deepcopy(data)
    for place in places:
        kind = _keys(place)
        if isinstance(place[-1], int) and kind not in _STAND_INS:
            place = place[:-1]  # an element of a list of names: leave out the list
        holder = mended
        for step in place[:-1]:
            holder = holder[step]
        if isinstance(place[-1], int):
            holder[place[-1]] = {key: _stand_in(kind, key, place) for key in _STAND_INS[kind]}
        elif place[-1] in _STAND_INS.get(kind[:-1], {}):
            holder[place[-1]] = _stand_in(kind[:-1], place[-1], place)
        else:
            holder.pop(place[-1], None)
    return mended


def _stand_in(kind: tuple[str, ...], key: str, place: Place) -> Any:
    # Names are unique; no other name can be this one.
    return f"\0{place}" if key == "name" else deepcopy(_STAND_INS[kind][key])


def _keys(place: Place) -> tuple[str, ...]:
    return tuple(step for step in place if isinstance(step, str))


def _explain(place: Place, kind: str, value: Any) -> Problem:
    keys = _keys(place)
    if kind == "missing":
        return Problem(place, "is required")
    if kind == "extra_forbidden":
        known = _KEYS[keys[:-1]]
        near = difflib.get_close_matches(keys[-1].lower(), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return Problem(place, f"unknown key; {hint}")
    if kind == "less_than_equal" or (isinstance(value, float) and math.isfinite(value) and value > _bound(keys)):
        return Problem(place, f"must be at most {_bound(keys)}, not {shown(value)}")
    expected = _EXPECTED[(*keys, 0) if place and isinstance(place[-1], int) else keys]
    return Problem(place, f"must be {expected}, not {shown(value)}")


def _bound(keys: Sequence[str]) -> float:
    return _BOUNDS.get(keys[-1], math.inf) if keys else math.inf


def shown(value: Any) -> str:
    """A value as it stands in the file, if it is short."""
    if isinstance(value, dict) and value:
        return "an object"
    if isinstance(value, list) and value:
        return "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]}..."
