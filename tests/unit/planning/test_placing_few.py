"""A few vjobs of many act: they alone are placed, and where VMs are equal no solver is needed for the proof."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, NodeState, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.target import placement
from rmsplugin.planning.target.acting import acting
from rmsplugin.planning.target.keep import keep
from rmsplugin.planning.target.placement import Placed, place
from rmsplugin.planning.target.replacement import replacement
from rmsplugin.planning.target.waits import waits_mib

ONE = Resources(1, 1024)
RUNS, SLEEPS, WAITS = VJobState.RUNNING, VJobState.SLEEPING, VJobState.WAITING


def cluster(places: Mapping[str, list[Location]], nodes: int = 8, **states: NodeState) -> Configuration:
    """Vjobs of VMs of one CPU, on nodes n0, n1, ... of one."""
    vjobs = tuple(VJob(name, tuple(VM(f"{name}-{i}", ONE) for i in range(len(at)))) for name, at in places.items())
    locations = {f"{name}-{i}": each for name, at in places.items() for i, each in enumerate(at)}
    found = tuple(Node(f"n{i}", ONE, states.get(f"n{i}", NodeState.UP)) for i in range(nodes))
    return Configuration(found, vjobs, locations)


def on(*nodes: int) -> list[Location]:
    return [running_on(f"n{node}") for node in nodes]


BUSY = cluster({"a": on(0, 1, 2, 3, 4), "b": on(5), "c": [WAITING], "d": [WAITING]})


def test_only_who_acts_is_left_and_nodes_that_have_room_for_them() -> None:
    part = acting(BUSY, {"a": RUNS, "b": SLEEPS, "c": RUNS, "d": WAITS})
    assert part is not None
    assert [vjob.name for vjob in part.vjobs] == ["b", "c"]
    assert [node.name for node in part.nodes] == ["n5", "n6", "n7"]
    assert part.free("n5") == Resources(0, 0) and part.free("n6") == ONE


def test_nothing_is_left_out_where_one_that_goes_on_running_has_to_move() -> None:
    places = {"a": on(0, 1), "b": [WAITING]}
    states = {"a": RUNS, "b": RUNS}
    assert acting(cluster(places), states) is not None
    assert acting(cluster(places, n1=NodeState.DRAINING), states) is None
    crowded = cluster({"a": on(0, 0), "b": [WAITING]})
    assert acting(crowded, states) is None


def test_a_vjob_of_which_only_a_part_runs_acts() -> None:
    assert acting(cluster({"a": [*on(0), WAITING]}), {"a": WAITS}) is None
    assert acting(cluster({"a": [*on(0), *[sleeping_on("n1")]]}), {"a": RUNS}) is None


def test_starts_beside_others_are_placed_without_a_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def seen(source: Configuration, *rest: object) -> object:
        sizes.append(len(source.vjobs))
        return replacement(source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(placement, "replacement", seen)
    sample = {**{f"a-{i}": f"n{i}" for i in range(5)}, "b-0": "n5", "c-0": "n6"}
    placed = place(BUSY, {"a": RUNS, "b": RUNS, "c": RUNS, "d": WAITS}, sample)
    assert isinstance(placed, Placed) and sizes == [1]
    assert placed.target == {**BUSY.locations, "c-0": running_on("n6")}
    assert placed.optimal and placed.plan.cost == 0
    assert placed.nodes_used == placed.nodes_lower_bound == 7


def test_arrivals_that_wait_for_suspends_are_proven_to_have_to_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two nodes are free, two VMs are suspended, four start: two of them wait for a suspend of 1024 MiB."""
    source = cluster({"w": [WAITING] * 4, "a": on(0, 1, 2, 3), "b": on(4, 5)})
    states = {"w": RUNS, "a": RUNS, "b": SLEEPS}
    monkeypatch.setattr(placement, "_widen", None)
    monkeypatch.setattr(placement, "settle", None)
    sample = {f"{name}-{i}": f"n{4 * at + i}" for at, name in enumerate("wa") for i in range(4)}
    placed = place(source, states, sample)
    assert isinstance(placed, Placed) and placed.optimal
    assert placed.plan.cost == 2 * 1024 + 2 * 1024


def waits(places: Mapping[str, list[Location]], states: Mapping[str, VJobState]) -> int:
    return waits_mib(replacement(cluster(places), states, None))


def test_a_vjob_that_resumes_waits_as_a_whole() -> None:
    """Three nodes are free; of three VMs that resume with a fourth, none is early."""
    images = [sleeping_on(f"n{node}") for node in (5, 6, 7, 0)]
    assert waits({"s": images, "a": on(1, 2, 3, 4), "b": on(0)}, {"s": RUNS, "a": RUNS, "b": SLEEPS}) == 4 * 1024


def test_the_cheaper_of_a_late_resume_and_of_late_starts_counts() -> None:
    """The states to resume lie on nodes in use: early, a copy is the dearest action, and late VMs wait longer."""
    images = [sleeping_on("n0"), sleeping_on("n1")]
    states = {"s": RUNS, "w": RUNS, "a": RUNS, "b": SLEEPS}
    # Four nodes are free. Two resumes late wait 1024 MiB each; one start late waits for a copy, 2048 MiB.
    assert waits({"s": images, "w": [WAITING] * 3, "a": on(0, 1, 2), "b": on(3)}, states) == 2048
    # Three nodes are free: the resumes late, or two starts late.
    assert waits({"s": images, "w": [WAITING] * 3, "a": on(0, 1, 2), "b": on(3, 4)}, states) == 2048
    # Five nodes are free: nobody is late, if the states are copied in the first pool.
    assert waits({"s": images, "w": [WAITING] * 3, "a": on(0, 1), "b": on(2)}, states) == 0


def test_nothing_waits_where_nobody_is_suspended() -> None:
    assert waits({"w": [WAITING] * 3, "a": on(0)}, {"w": RUNS, "a": RUNS}) == 0


def test_a_saved_state_on_a_node_in_use_is_copied_without_a_look_at_equal_vms(monkeypatch: pytest.MonkeyPatch) -> None:
    source = cluster({"a": on(0, 1, 2), "s": [sleeping_on("n0")]})
    states, sample = {"a": RUNS, "s": RUNS}, {"a-0": "n0", "a-1": "n1", "a-2": "n2", "s-0": "n3"}
    monkeypatch.setattr(placement, "_fall_back", None)
    monkeypatch.setattr(placement, "keep_all", None)
    placed = place(source, states, sample)
    assert isinstance(placed, Placed) and placed.optimal and placed.plan.cost == 2 * 1024


def test_a_smaller_vm_makes_room_for_a_saved_state_although_it_does_not_act() -> None:
    small, large = Resources(1, 512), Resources(1, 4096)
    vjobs = (VJob("a", (VM("a-0", small),)), VJob("s", (VM("s-0", large),)), VJob("b", (VM("b-0", large),)))
    nodes = tuple(Node(f"n{i}", Resources(2, 4096)) for i in range(3))
    locations = {"a-0": running_on("n0"), "s-0": sleeping_on("n0"), "b-0": running_on("n1")}
    source = Configuration(nodes, vjobs, locations)
    states, sample = {"a": RUNS, "s": RUNS, "b": RUNS}, {"a-0": "n0", "s-0": "n2", "b-0": "n1"}
    placed = place(source, states, sample)
    assert isinstance(placed, Placed) and placed.target["s-0"] == running_on("n0")
    assert placed.target["a-0"] == running_on("n2") and placed.plan.cost < 2 * 4096


def test_resumes_that_wait_anyway_wait_where_their_states_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two states lie on nodes of one that is suspended, the third on that of one that goes on running."""
    images = [sleeping_on("n4"), sleeping_on("n3"), sleeping_on("n0")]
    source = cluster({"a": on(0, 1, 2), "s": images, "b": on(3, 4, 5)}, nodes=6)
    states = {"a": RUNS, "s": RUNS, "b": SLEEPS}
    sample = {**{f"a-{i}": f"n{i}" for i in range(3)}, **{f"s-{i}": f"n{3 + i}" for i in range(3)}}
    monkeypatch.setattr(placement, "_widen", None)
    monkeypatch.setattr(placement, "settle", None)
    placed = place(source, states, sample)
    assert isinstance(placed, Placed) and placed.optimal
    assert [placed.target[f"s-{i}"].node for i in range(3)] == ["n4", "n3", "n5"]
    assert placed.plan.cost == 3 * 1024 + 2 * (1024 + 1024) + (2048 + 1024)


def test_of_two_equal_vms_the_one_that_runs_is_kept() -> None:
    source = cluster({"a": on(0), "s": [sleeping_on("n0")]}, nodes=2)
    problem = replacement(source, {"a": RUNS, "s": RUNS}, None)
    for wait_mib in (None, 0, 1024):
        (kept, *_) = (keep(place, problem.classes, wait_mib) for place in problem.places)
        assert (list(kept.residents.values()), list(kept.images.values())) == ([1], [0])
