"""What a platform cannot do is decided for nobody: a VM that cannot move stays, one that cannot be paused is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.least_loaded import LeastLoaded
from rmsplugin.decision.near import items_of, staying
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.result import Decision
from rmsplugin.decision.room import Site
from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
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
