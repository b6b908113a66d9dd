"""Whole vjobs go to groups by the groups' summaries, in the order of the queue."""

from __future__ import annotations

from unit.queues import Queue, nodes

from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.groups.assignment import assign
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import Group
from rmsplugin.groups.proposing import Memory, remembered
from rmsplugin.groups.summary import GroupState, hole_of, summaries
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, Node, NodeState
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing

#: Two groups of two nodes of two CPUs.
LEFT, RIGHT = Group("left", ("n1", "n2")), Group("right", ("n3", "n4"))
NO_ROOM = Reason(ReasonCode.NO_ROOM, "needs more")


def queue(*others: Node) -> Queue:
    return Queue(*nodes(4, cpus=2), *others)


def groups_of(configuration: Configuration, *groups: Group, memory: Memory | None = None) -> dict[str, str]:
    memory = memory or Memory()
    found = assign(configuration, groups or (LEFT, RIGHT), memory.before, memory.refused)
    return {name: assigned.group for name, assigned in found.items()}


def test_a_vjob_goes_where_its_vms_run() -> None:
    full = queue().add("a", "n4", "n3", cpus=2).add("b", "n1")
    assert groups_of(full.configuration) == {"a": "right", "b": "left"}


def test_a_vjob_goes_where_there_is_room_for_all_of_it() -> None:
    found = assign(queue().add("a", "n1").add("b", vms=4).configuration, (LEFT, RIGHT))
    assert found["b"] == Assigned("right", "there is room for it", chosen=True, by_room=True)


def test_a_small_vjob_leaves_the_large_hole_to_a_wide_one() -> None:
    assert groups_of(queue().add("a", "n1").add("b").add("c", vms=4).configuration) == {
        "a": "left",
        "b": "left",
        "c": "right",
    }


def test_fragments_are_no_room() -> None:
    pieces = queue().add("a", "n1").add("b", "n2").add("c", "n3", cpus=2).add("d", cpus=2)
    assert groups_of(pieces.configuration)["d"] == "right"


def test_a_vjob_whose_nodes_are_in_one_group_goes_there_however_full_it_is() -> None:
    full = queue().add("a", "n3", "n4", cpus=2).add("b", vms=2, rules=allowing(frozenset({"n3", "n4"})))
    found = assign(full.configuration, (LEFT, RIGHT))["b"]
    assert (found.group, found.chosen) == ("right", False)


def test_room_on_nodes_that_it_may_not_use_is_no_room() -> None:
    rules = allowing(None, frozenset({"n1", "n2", "n3"}))
    assert groups_of(queue().add("a", "n3", cpus=2).add("b", vms=2, rules=rules).configuration)["b"] == "right"


def test_a_vjob_that_sleeps_stays_with_its_saved_states() -> None:
    assert groups_of(queue().add("a", "n1").add("b", "zz:n4").configuration)["b"] == "right"


def test_a_vjob_that_sleeps_goes_elsewhere_if_its_group_has_no_room_for_it() -> None:
    full = queue().add("a", "n3", "n4", cpus=2, preemptible=False).add("b", "zz:n4")
    assert groups_of(full.configuration)["b"] == "left"


def test_a_vjob_that_sleeps_goes_elsewhere_if_its_group_takes_no_vms() -> None:
    down = Queue(*nodes(2, cpus=2), *(Node(f"n{i}", Resources(2, 4096), NodeState.DRAINING) for i in (3, 4)))
    assert groups_of(down.add("b", "zz:n4").configuration)["b"] == "left"


def test_a_saved_state_that_all_nodes_reach_ties_a_vjob_to_no_group() -> None:
    full = queue().add("a", "n1", "n2", cpus=2, preemptible=False).add("b", f"zz:{SHARED}")
    assert groups_of(full.configuration)["b"] == "right"


def test_one_that_finds_no_room_goes_where_those_behind_it_could_make_way() -> None:
    full = queue().add("a", "n1", "n2", cpus=2).add("b", vms=2).add("c", "n3", "n4", cpus=2)
    found = assign(full.configuration, (LEFT, RIGHT))["b"]
    assert (found.group, found.by_room) == ("right", False)


def test_nobody_makes_way_who_may_not_be_preempted() -> None:
    full = queue().add("b", vms=2).add("a", "n1", "n2", cpus=2, preemptible=False).add("c", "n3", "n4", cpus=2)
    assert groups_of(full.configuration)["b"] == "right"


def test_those_that_wait_are_shared_out_by_their_demand() -> None:
    full = queue().add("a", "n1", "n2", "n3", "n4", cpus=2, preemptible=False)
    for number in range(4):
        full.add(f"w{number}", cpus=2)
    found = groups_of(full.configuration, Group("left", ("n1", "n2")), Group("right", ("n3", "n4")))
    assert sorted(found[f"w{number}"] for number in range(4)) == ["left", "left", "right", "right"]


def test_one_that_waits_for_room_stays_in_its_group() -> None:
    full = queue().add("a", "n1", "n2", cpus=2, preemptible=False).add("b", "n3", "n4", cpus=2, preemptible=False)
    full.add("c")
    for name in ("left", "right"):
        assert groups_of(full.configuration, memory=Memory({"c": name}))["c"] == name


def test_one_that_a_group_had_no_room_for_tries_another_one() -> None:
    source = queue().add("a", "n1").add("b").configuration
    assert groups_of(source)["b"] == "left"
    assert groups_of(source, memory=Memory(refused={"b": {"left"}}))["b"] == "right"


def test_a_refusal_is_remembered_until_the_vjob_runs() -> None:
    by_room = {"b": Assigned("left", "", chosen=True, by_room=True)}
    once = remembered(by_room, {"b": NO_ROOM}, Memory())
    assert (once.before, once.refused) == ({"b": "left"}, {"b": {"left"}})
    elsewhere = {"b": Assigned("right", "", chosen=True, by_room=True)}
    assert remembered(elsewhere, {"b": NO_ROOM}, once).refused == {"b": {"left", "right"}}
    assert remembered(elsewhere, {"b": Reason(ReasonCode.FITS, "fits")}, once).refused == {}


def test_a_refusal_by_a_group_that_never_promised_room_is_none() -> None:
    assert remembered({"b": Assigned("left", "", chosen=True)}, {"b": NO_ROOM}, Memory()).refused == {}


def test_one_that_is_wider_than_every_group_waits_and_is_told_why() -> None:
    found = assign(queue().add("a", vms=5).configuration, (LEFT, RIGHT))["a"]
    assert found.note == "no group can host it, and a vjob is never split"


def test_a_vjob_whose_nodes_are_all_down_waits_in_their_group() -> None:
    down = Queue(*nodes(2, cpus=2), *(Node(f"n{i}", Resources(2, 4096), NodeState.DOWN) for i in (3, 4)))
    found = assign(down.add("a", rules=allowing(frozenset({"n3"}))).configuration, (LEFT, RIGHT))["a"]
    assert (found.group, found.note) == ("right", "")


def test_a_summary_tells_of_sizes_holes_and_states() -> None:
    drained = Queue(*nodes(2, cpus=2), Node("n3", Resources(4, 8192)), Node("n4", Resources(4, 8192), NodeState.DOWN))
    configuration = drained.add("a", "n1", cpus=0.75, memory_mib=1000).configuration
    left, right = summaries(configuration, (LEFT, RIGHT))
    assert (left.state, left.nodes, left.up, left.size) == (GroupState.UP, 2, 2, Resources(4, 8192))
    assert left.free == Resources(3.25, 7192)
    assert left.largest == Resources(2, 4096)
    (kind,) = left.classes
    assert kind.holes == {(200, 4096): 1, (100, 3072): 1}
    assert (right.nodes, right.up, right.size) == (2, 1, Resources(4, 8192))


def test_a_group_without_a_node_that_is_up_is_draining_or_down() -> None:
    states = [NodeState.DRAINING, NodeState.DOWN, NodeState.DOWN, NodeState.DOWN]
    none = Configuration(tuple(Node(f"n{i}", Resources(1, 1), state) for i, state in enumerate(states, 1)), (), {})
    assert [each.state for each in summaries(none, (LEFT, RIGHT))] == [GroupState.DRAINING, GroupState.DOWN]


def test_a_hole_is_never_larger_than_what_is_free() -> None:
    assert hole_of(Resources(3.99, 1023)) == (300, 768)
    assert hole_of(Resources(0.57, 255)) == (50, 0)
    assert hole_of(Resources(-1, -5)) == (0, 0)
