"""Better-fit on the figures of RR-7398 (section 2.1.2), rebuilt with the shares that its text tells; and its edges."""

from __future__ import annotations

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Rules, allowing
from rmsplugin.packing.arriving import pack_arriving
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.item import Item
from rmsplugin.packing.vmpp import NoPacking


def nodes(count: int, state: NodeState = NodeState.UP) -> list[Node]:
    """Nodes on which a hundredth of the CPUs is one per cent, as in the report: one dimension."""
    return [Node(f"PM{i}", Resources(1.0, 1000), state) for i in range(1, count + 1)]


def workload(name: str, percent: float, memory_mib: int = 0, rules: Rules = ()) -> Item:
    return Item(VM(name, Resources(percent / 100, memory_mib)), rules)


def placed(count: int, **at: dict[str, int]) -> BetterFit:
    """Nodes that host workloads of these per cents."""
    fit = BetterFit(nodes(count))
    for node, hosted in at.items():
        for name, percent in hosted.items():
            fit.put(workload(name, percent), node)
    return fit


def test_figure_1_an_arriving_workload_takes_the_place_of_one_that_fills_its_node_less() -> None:
    fit = placed(3, PM1={"WL1": 10, "WL2": 40, "WL3": 40}, PM2={"WL4": 30, "WL5": 30, "WL6": 20, "WL7": 10})
    assert fit.insert(workload("WL8", 20))
    assert (fit.assignment["WL8"], fit.assignment["WL1"], fit.nodes_used) == ("PM1", "PM2", 2)
    assert {name: node for name, node in fit.assignment.items() if name not in ("WL1", "WL8")} == {
        **dict.fromkeys(("WL2", "WL3"), "PM1"),
        **dict.fromkeys(("WL4", "WL5", "WL6", "WL7"), "PM2"),
    }


def test_figure_1_without_free_capacity_a_new_machine_takes_the_one_that_was_replaced() -> None:
    fit = placed(3, PM1={"WL1": 10, "WL2": 80}, PM2={"WL4": 95})
    assert fit.insert(workload("WL8", 20))
    assert (fit.assignment["WL8"], fit.assignment["WL1"]) == ("PM1", "PM3")


def test_figure_2_what_is_left_beside_a_terminated_workload_goes_to_the_first_machine() -> None:
    fit = placed(2, PM1={"WL1": 40, "WL2": 30, "WL3": 15, "WL4": 5}, PM2={"WL5": 10, "WL6": 90})
    assert fit.remove("WL6") == "PM2"
    assert fit.empty("PM2")
    assert (fit.assignment["WL5"], fit.nodes_used) == ("PM1", 1)


def test_figure_3_an_underutilised_machine_is_emptied() -> None:
    fit = placed(2, PM1={"WL1": 40, "WL2": 30}, PM2={"WL3": 10, "WL4": 10})
    assert fit.underloaded() == ["PM2"]
    before = fit.assignment
    assert fit.moves_to_empty("PM2") == {"WL3": "PM1", "WL4": "PM1"}
    assert fit.moves_to_empty("PM1") == {"WL1": "PM2", "WL2": "PM2"}
    assert fit.assignment == before
    assert fit.empty("PM2")
    assert set(fit.assignment.values()) == {"PM1"}
    assert fit.underloaded() == []


def test_an_overloaded_machine_gives_its_smallest_workload_away_even_to_a_new_machine() -> None:
    fit = placed(3, PM1={"WL1": 80, "WL2": 40}, PM2={"WL3": 90})
    assert fit.overloaded() == ["PM1"]
    assert fit.relieve("PM1")
    assert (fit.assignment["WL1"], fit.assignment["WL2"]) == ("PM1", "PM3")


def test_a_machine_is_not_emptied_in_part() -> None:
    fit = placed(2, PM1={"WL1": 85}, PM2={"WL2": 10, "WL3": 10})
    before = fit.assignment
    assert not fit.empty("PM2")
    assert fit.assignment == before


def test_best_fit_is_the_machine_with_the_smallest_room() -> None:
    fit = placed(3, PM1={"WL1": 20}, PM2={"WL2": 60}, PM3={"WL3": 40})
    assert fit.insert(workload("WL4", 30))
    assert fit.assignment["WL4"] == "PM2"


def test_the_workload_is_replaced_that_leaves_least_room() -> None:
    fit = placed(3, PM1={"WL1": 15, "WL2": 10, "WL3": 75}, PM2={"WL4": 80})
    assert fit.insert(workload("WL5", 25))  # neither place holds it; PM2 has room for either
    assert fit.assignment["WL5"] == "PM3"  # 10 or 15 less on PM1 are not enough
    fit = placed(3, PM1={"WL1": 15, "WL2": 10, "WL3": 65}, PM2={"WL4": 80})
    assert fit.insert(workload("WL5", 20))
    assert (fit.assignment["WL2"], fit.assignment["WL1"]) == ("PM2", "PM1")


def test_what_is_replaced_has_to_find_room_where_the_arriving_one_would() -> None:
    """Two dimensions: PM1 would be fuller with WL3 instead of WL1, but PM2 has room for WL3 only."""
    fit = BetterFit(nodes(3))
    fit.put(workload("WL1", 40, 0), "PM1")
    fit.put(workload("WL4", 50, 400), "PM1")
    fit.put(workload("WL2", 70, 400), "PM2")
    assert fit.insert(workload("WL3", 20, 500))
    assert (fit.assignment["WL3"], fit.assignment["WL1"]) == ("PM2", "PM1")


def test_of_an_overloaded_machine_only_those_leave_that_take_of_what_is_short() -> None:
    fit = BetterFit(nodes(2))
    fit.put(workload("WL1", 0, 10), "PM1")
    fit.put(workload("WL2", 60, 10), "PM1")
    fit.put(workload("WL3", 70, 10), "PM1")
    assert fit.relieve("PM1")
    assert fit.assignment == {"WL1": "PM1", "WL2": "PM2", "WL3": "PM1"}


def test_an_overloaded_machine_keeps_what_finds_no_room() -> None:
    fit = placed(2, PM1={"WL1": 80, "WL2": 40}, PM2={"WL3": 90})
    assert not fit.relieve("PM1")
    assert fit.assignment == {"WL1": "PM1", "WL2": "PM1", "WL3": "PM2"}


def test_workloads_that_stay_are_not_replaced_and_rules_are_obeyed() -> None:
    fit = BetterFit(nodes(3))
    fit.put(workload("WL1", 10), "PM1", stays=True)
    fit.put(workload("WL2", 85), "PM1")
    fit.put(workload("WL3", 70), "PM2")
    assert fit.insert(workload("WL4", 15, rules=allowing(frozenset({"PM3"}))))
    assert (fit.assignment["WL1"], fit.assignment["WL4"]) == ("PM1", "PM3")
    assert fit.insert(workload("WL5", 15))
    assert (fit.assignment["WL1"], fit.assignment["WL5"]) == ("PM1", "PM2")
    assert not fit.empty("PM1")


def test_who_finds_no_room_changes_nothing() -> None:
    fit = placed(1, PM1={"WL1": 50})
    assert not fit.insert(workload("WL2", 60))
    assert fit.assignment == {"WL1": "PM1"}


def test_all_are_packed_as_they_arrive() -> None:
    found = pack_arriving([workload("a", 60), workload("b", 50), workload("c", 40), workload("d", 50)], nodes(4))
    assert not isinstance(found, NoPacking)
    assert (found.nodes_used, found.lower_bound, found.ffd_nodes_used) == (2, 2, 2)
    assert found.assignment == {"a": "PM1", "c": "PM1", "b": "PM2", "d": "PM2"}
    assert pack_arriving([], nodes(1)) == pack_arriving([], [])


def test_no_packing_has_a_reason() -> None:
    proven = pack_arriving([workload("a", 60)], nodes(1, NodeState.DRAINING))
    assert isinstance(proven, NoPacking) and proven.proven
    found = pack_arriving([workload("a", 60), workload("b", 60), workload("c", 50)], nodes(2))
    assert found == NoPacking("better-fit finds no node with room for VM c", False)
