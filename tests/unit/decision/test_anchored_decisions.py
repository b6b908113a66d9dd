"""What a platform cannot do is decided for nobody: a VM that cannot move stays, one that cannot be paused is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.least_loaded import LeastLoaded
from rmsplugin.decision.near import items_of, staying
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.decision.room import Site
from rmsplugin.model.abiding import abiding
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import admit, allowing


def bound(vjob: VJob, *hosts: str) -> VJob:
    """The same of a platform that moves nothing, with each VM bound to its node."""
    can = replace(EVERYTHING, migrate=False, elsewhere=False)
    return replace(vjob, can=can, vms=tuple(replace(vm, only=host) for vm, host in zip(vjob.vms, hosts, strict=True)))


@pytest.mark.parametrize(("pause", "state"), [(True, "paused"), (False, "sleeping")])
def test_one_whose_platform_pauses_nothing_is_saved(pause: bool, state: str) -> None:
    found = Queue(*nodes(1)).add("head", memory_mib=64).add("yields", "n1", can=replace(EVERYTHING, pause=pause))
    decision = decide_with_pauses("rjsp", found.configuration, Parameters(pause_limit_s=600.0))
    assert isinstance(decision, Decision)
    assert running(decision) == {"head"}
    assert states(decision)["yields"] == state
    assert ("its platform pauses no VM" in decision.reasons["yields"].sentence) is not pause


def test_vms_that_cannot_move_do_not_change_places_among_the_nodes_that_they_may_use() -> None:
    fence = allowing(frozenset({"n1", "n2"}))
    found = Queue(*nodes(2)).add("two", "n1", "n2", preemptible=False, rules=fence)
    assert staying(found.configuration) == {}, "they could change places"
    found.vjobs = [bound(found.vjobs[0], "n1", "n2")]
    assert staying(found.configuration) == {"two": {"two-0": "n1", "two-1": "n2"}}


def test_a_vm_that_cannot_move_is_packed_on_its_node_only() -> None:
    vjob = bound(Queue(*nodes(2)).add("one", "n2").vjobs[0], "n2")
    [item] = items_of([vjob])
    assert [admit(item.rules, name) for name in ("n1", "n2")] == [False, True]


def test_the_least_loaded_node_is_that_of_a_vm_that_cannot_be_elsewhere() -> None:
    found = Queue(*nodes(2, cpus=2)).add("full", vms=2, cpus=2).add("a").add("b")
    a, b = bound(found.vjobs[1], "n2"), bound(found.vjobs[2], "n2")
    configuration = Configuration(found.nodes, (found.vjobs[0], a, b), found.locations)
    room = Site(configuration).pack([])
    assert room is not None
    assert [LeastLoaded(room).place(each) for each in (a, b)] == [{"a-0": "n2"}, {"b-0": "n2"}]


def test_one_that_has_no_room_on_its_node_says_nothing_about_one_that_is_bound_to_another() -> None:
    found = Queue(*nodes(2)).add("takes", cpus=1, rules=allowing(frozenset({"n1"}))).add("a").add("b")
    takes, a, b = found.vjobs[0], bound(found.vjobs[1], "n1"), bound(found.vjobs[2], "n2")
    configuration = Configuration(found.nodes, (takes, a, b), found.locations)
    room = Site(configuration).pack([takes])
    assert room is not None
    load = LeastLoaded(room)
    assert load.place(a) is None
    assert load.place(b) == {"b-0": "n2"}


def of_platform(name: str, can: Capabilities, *memories_mib: int, **known: Any) -> VJob:
    """A vjob whose VMs have one CPU and so much memory each."""
    vms = tuple(VM(f"{name}-{index}", Resources(1, memory_mib)) for index, memory_mib in enumerate(memories_mib))
    return VJob(name, vms, can=can, **known)


def site(hosts: Sequence[Node], vjobs: Sequence[VJob], **places: Location) -> Configuration:
    """Vjobs as their platform lets them be; by the first letter of its vjob and its number, where each VM is."""
    locations = {vm.name: places[f"{vm.name[0]}{vm.name[-1]}"] for vjob in vjobs for vm in vjob.vms}
    return Configuration(tuple(hosts), abiding(hosts, vjobs, locations), locations)


def test_nobody_is_paused_for_whom_vms_that_cannot_move_would_have_to_change_places() -> None:
    """Its memory could stay only if the two VMs of the other vjob were each where the other is."""
    hosts = (Node("n1", Resources(1, 400)), Node("n2", Resources(1, 850)))
    at = {"p0": running_on("n1"), "p1": running_on("n2"), "l0": running_on("n2")}
    for migrates, state in ((False, "sleeping"), (True, "paused")):
        can = replace(EVERYTHING, migrate=migrates)
        source = site(hosts, [of_platform("pair", can, 50, 300), of_platform("long", can, 600)], **at)
        decision = decide_with_pauses("rjsp", source, Parameters(pause_limit_s=3600.0, exempt_s=0.0))
        assert isinstance(decision, Decision)
        assert states(decision) == {"pair": "running", "long": state}
        assert decision.placement["pair-0"] == ("n2" if migrates else "n1")


def test_one_that_finds_no_room_says_nothing_of_one_that_is_bound_to_another_node() -> None:
    """Two starts were interrupted, and what is saved is restored only where it is: migrations make room for one."""
    can, hosts = replace(EVERYTHING, elsewhere=False), nodes(3, cpus=2, memory_mib=1000)
    waiting = [of_platform(name, can, 600, 10) for name in ("first", "second")]
    stays, moves = of_platform("kept", can, 900, rules=allowing(frozenset({"n1"}))), of_platform("moves", can, 500)
    at = {"k0": running_on("n1"), "m0": running_on("n2"), "f0": sleeping_on("n1"), "s0": sleeping_on("n2")}
    source = site(hosts, [stays, moves, *waiting], **at, f1=WAITING, s1=WAITING)
    decision = decide("slowdown", source, Parameters())
    assert isinstance(decision, Decision)
    assert running(decision) == {"kept", "moves", "second"}
    assert (decision.placement["moves-0"], decision.placement["second-0"]) == ("n3", "n2")
