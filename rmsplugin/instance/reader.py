"""Reader: turns a file into the model's configuration, or into a line for each fault of the file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rmsplugin.errors import InstanceError
from rmsplugin.input_file import MAX_BYTES, blocks, named, shown_name
from rmsplugin.instance.rules import ruled
from rmsplugin.instance.shape import Hidden, InstanceShape, VJobShape, VMShape, shape, shown
from rmsplugin.model.abiding import abiding
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, NodeState, VJob, VMState
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.validation import InvalidConfigurationError, Place, Problem
from rmsplugin.model.vjob import VJobState

#: Half of a pair of escapes; only both together are one character.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read(path: str, limit_bytes: int = MAX_BYTES) -> Configuration:
    """Read the configuration in a file, compressed or not; ``-`` is standard input.

    Raises:
        InstanceError: the file cannot be read, or one line for each fault in it.
    """
    with named(path, InstanceError):
        data = b"".join(blocks(path, InstanceError, "configuration", limit_bytes=limit_bytes))
    name = shown_name(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError(f"{name}: not UTF-8 text (byte {error.start + 1})") from None
    return parse(text, name)


def parse(text: str, file: str) -> Configuration:
    """The configuration that a text describes.

    Args:
        text: JSON, as docs/simulation/plan-and-pack.md describes it.
        file: the name of the file in messages.

    Raises:
        InstanceError: one line for each fault, with its place.
    """
    try:
        data, faults = _load(text, file)
        shaped, misshapen = shape(data)
    except RecursionError:
        raise InstanceError(f"{file}: lists and objects are nested too deeply") from None
    configuration = None
    if shaped is not None:
        configuration, contradictions = _configuration(shaped)
        hidden = Hidden(misshapen)
        faults += [fault for fault in contradictions if fault not in hidden]
    faults += misshapen
    if faults or configuration is None:
        lines = [f"{file}: {_path(fault.place)}: {fault.message}" for fault in sorted(faults, key=_order)]
        raise InstanceError("\n".join(lines))
    return configuration


# -- JSON ----------------------------------------------------------------------------------------------------------


def _load(text: str, file: str) -> tuple[Any, list[Problem]]:
    """The data in a text, and faults of JSON that have a place in it.

    Raises:
        InstanceError: any other fault of JSON.
        RecursionError: it is nested too deeply.
    """
    if not text.strip():
        raise InstanceError(f"{file}: is empty")
    repeated: dict[int, list[str]] = {}  # by the id of an object

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated[id(found)] = sorted(key for key, count in counts.items() if count > 1)
        return found

    try:
        data = json.loads(text, object_pairs_hook=collect, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise InstanceError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    faults = []
    if repeated or _ESCAPED_SURROGATE.search(text):
        for place, value in _walk(data, ()):
            faults += [
                Problem((*place, key), "this key is there more than once") for key in repeated.get(id(value), ())
            ]
            if isinstance(value, str) and _SURROGATE.search(value):
                faults.append(Problem(place, f"half of a character: {shown(value)}"))
    return data, faults


def _whole(digits: str) -> int | float:
    """A whole number. One that is far too large is read as a float, since Python refuses to read very long ones."""
    return int(digits) if len(digits) < 20 else float(digits)


def _walk(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    yield place, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in inner:
        yield from _walk(part, (*place, step))


# -- the model -----------------------------------------------------------------------------------------------------


def _configuration(data: InstanceShape) -> tuple[Configuration | None, list[Problem]]:
    faults: list[Problem] = []
    nodes = []
    for i, node in enumerate(data["nodes"]):
        faults += _decimals(node["cpu"], ("nodes", i))
        capacity = Resources(node["cpu"], node["memory_mib"])
        nodes.append(Node(node["name"], capacity, NodeState(node.get("state", "up")), node.get("platform", "")))
    platforms, unknown = _platforms(data)
    faults += unknown
    down = {node.name for node in nodes if node.state is NodeState.DOWN}
    vjobs = []
    locations: dict[str, Location] = {}
    for j, vjob in enumerate(data["vjobs"]):
        vms = []
        lost = False
        for k, vm in enumerate(vjob["vms"]):
            place: Place = ("vjobs", j, "vms", k)
            faults += _decimals(vm["cpu"], place)
            faults += _misplaced(vm, vjob["state"], place)
            vms.append(VM(vm["name"], Resources(vm["cpu"], vm["memory_mib"])))
            location = _location(vm, vjob["state"])
            if location.node in down:
                location, lost = WAITING, True
            locations[vm["name"]] = location
        vjobs.append(_vjob(vjob, tuple(vms), lost, platforms.get(vjob.get("platform", ""), EVERYTHING)))
        if lost and vjobs[-1].target in (VJobState.PAUSED, VJobState.SLEEPING):
            message = (
                f"a vjob that lost a VM (its node is down) has to begin anew, and cannot become {vjobs[-1].target}"
            )
            faults.append(Problem(("vjobs", j, "target"), message))
    given = ruled(data.get("rules", ()), nodes, vjobs)
    faults += given.faults
    try:
        configuration = Configuration(tuple(given.nodes), abiding(given.nodes, given.vjobs, locations), locations)
    except InvalidConfigurationError as error:
        told = {fault.place for fault in faults}
        return None, faults + [fault for fault in error.problems if fault.place not in told]
    return configuration, faults


def _vjob(data: VJobShape, vms: tuple[VM, ...], lost: bool, can: Capabilities) -> VJob:
    target, preference, nodes = data.get("target"), data.get("preference"), data.get("nodes")
    return VJob(
        data["name"],
        vms,
        preemptible=data.get("preemptible", True),
        target=None if target is None else VJobState(target),
        preference=None if preference is None else VJobState(preference),
        rules=allowing(None if nodes is None else frozenset(nodes), frozenset(data.get("exclude", ()))),
        priority=data.get("priority", 0),
        time_limit_s=data.get("time_limit_s"),
        ran_s=data.get("ran_s", 0.0),
        state_s=data.get("state_s"),
        waited_s=data.get("waited_s", 0.0),
        weight=data.get("weight", 1.0),
        user=data.get("user", ""),
        lost=lost,
        platform=data.get("platform", ""),
        can=can,
    )


def _platforms(data: InstanceShape) -> tuple[dict[str, Capabilities], list[Problem]]:
    """The abilities of each platform in the file, and the faults of their names."""
    found, faults = {"": EVERYTHING}, []
    for i, each in enumerate(data.get("platforms", [])):
        if each["name"] in found:
            words = f"a platform named {shown(each['name'])} exists already; names must be unique"
            faults.append(Problem(("platforms", i, "name"), words))
        found[each["name"]] = Capabilities(**dict.fromkeys(each.get("lacks", ()), False))
    named: list[tuple[Place, str]] = [(("nodes", i), node.get("platform", "")) for i, node in enumerate(data["nodes"])]
    named += [(("vjobs", j), vjob.get("platform", "")) for j, vjob in enumerate(data["vjobs"])]
    there = {node.get("platform", "") for node in data["nodes"]}
    for place, name in named:
        if name not in found:
            faults.append(Problem((*place, "platform"), f"there is no {shown(name)} among the platforms of the file"))
        elif name not in there:
            which = f"platform {shown(name)}" if name else "the site's own platform"
            faults.append(Problem((*place, "platform"), f"no node is of {which}"))
    own: dict[str, set[str]] = {name: set() for name in there}
    for node in data["nodes"]:
        own[node.get("platform", "")].add(node["name"])
    for j, vjob in enumerate(data["vjobs"] if len(there) > 1 else ()):
        nodes = own.get(vjob.get("platform", ""), set())
        if nodes and vjob.get("nodes") and nodes.isdisjoint(vjob["nodes"] or ()):
            faults.append(Problem(("vjobs", j, "nodes"), "none of these nodes is of the platform of this vjob"))
    return found, faults


def _location(vm: VMShape, state: str) -> Location:
    """The location of a VM; without a node where one is needed: the model refuses that."""
    match state:
        case "running":
            return Location(VMState.RUNNING, vm.get("host"))
        case "paused":
            return Location(VMState.PAUSED, vm.get("host"))
        case "sleeping":
            return Location(VMState.SLEEPING, vm.get("image"))
        case _:
            return Location(VMState(state))


def _misplaced(vm: VMShape, state: str, place: Place) -> Iterator[Problem]:
    """A location that a VM in this state cannot have."""
    for key, a_key, where in (("host", "a host", ("running", "paused")), ("image", "an image", ("sleeping",))):
        if vm.get(key) is not None and state not in where:
            message = f"only a VM of a {' or '.join(where)} vjob has {a_key}, and this vjob is {state}"
            yield Problem((*place, key), message)


def _decimals(cpus: float, place: Place) -> Iterator[Problem]:
    # Solvers count in hundredths of a CPU. The float nearest to a number of two decimals is its own rounding.
    if round(cpus, 2) != cpus:
        yield Problem((*place, "cpu"), f"must have two decimals at most, not {cpus!r}")


# -- messages ------------------------------------------------------------------------------------------------------


def _path(place: Place) -> str:
    """A place as a JSON path; keys that are not plain words stand in quotes."""
    return "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]"
        for step in place
    )


def _order(fault: Problem) -> list[tuple[str, int]]:
    """Nodes first, elements in their order, keys by their names."""
    return [("", step) if isinstance(step, int) else (step, 0) for step in fault.place]
