"""Configurations: viability (by the papers' figures), states of vjobs, steps, copies; and amounts of resources."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S
from properties.generators import configurations, problems_of_planning

import rmsplugin
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    paused_on,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.validation import InvalidConfigurationError
from rmsplugin.model.vjob import VJobState

UNIPROCESSORS = tuple(Node(f"N{i}", Resources(1, 1024)) for i in (1, 2, 3))
VM1, VM2, VM3 = VM("VM1", Resources(0, 512)), VM("VM2", Resources(1, 512)), VM("VM3", Resources(1, 512))


def figure(*hosts: str) -> Configuration:
    """Three uniprocessor nodes, VM1 idle, VM2 and VM3 active; on these hosts."""
    vjobs = tuple(VJob(f"vjob{vm.name[2:]}", (vm,)) for vm in (VM1, VM2, VM3))
    return Configuration(UNIPROCESSORS, vjobs, {f"VM{i}": running_on(host) for i, host in enumerate(hosts, start=1)})


# The drawings are lost in the texts of the papers; what these say of them determines them, or is met by these.


def test_vee09_figure_2a_and_rr6929_figure_5a_two_active_vms_on_one_processor_are_not_viable() -> None:
    assert figure("N2", "N1", "N1").overloaded() == ["N1"]


def test_vee09_figure_2b_is_viable() -> None:
    before = figure("N2", "N1", "N3")
    assert before.overloaded() == []
    assert sum(used != NOTHING for used in before.used.values()) == 3


@pytest.mark.parametrize("hosts", [("N2", "N2", "N3"), ("N3", "N1", "N3")])
def test_vee09_figures_3a_and_3b_use_two_nodes_and_are_viable(hosts: tuple[str, str, str]) -> None:
    after = figure(*hosts)
    assert after.overloaded() == []
    assert sum(used != NOTHING for used in after.used.values()) == 2


@pytest.mark.parametrize("hosts", [("N1", "N1", "N2"), ("N2", "N1", "N2")])
def test_rr6929_figure_5b_each_node_hosts_at_most_one_busy_vm_and_is_viable(hosts: tuple[str, str, str]) -> None:
    assert figure(*hosts).overloaded() == []


def test_sleeping_and_waiting_vms_have_no_impact_on_viability() -> None:
    crowd = figure("N1", "N1", "N1")
    assert crowd.overloaded() == ["N1"]
    assert crowd.with_locations({"VM2": sleeping_on("N1")}).overloaded() == []
    assert crowd.with_locations({"VM2": WAITING}).overloaded() == []


def test_memory_alone_makes_a_configuration_not_viable() -> None:
    vms = tuple(VM(f"vm{i}", Resources(0, 400)) for i in range(3))
    crowd = Configuration(UNIPROCESSORS, (VJob("v", vms),), {vm.name: running_on("N2") for vm in vms})
    assert crowd.overloaded() == ["N2"]
    assert crowd.free("N2") == Resources(1, -176)
    assert crowd.free("N1") == Resources(1, 1024)


W, T, R, S = WAITING, TERMINATED, running_on("N1"), sleeping_on("N1")
P = paused_on("N1")


@pytest.mark.parametrize(
    ("locations", "state"),
    [
        ((W, W, W), VJobState.WAITING),
        ((R, R, R), VJobState.RUNNING),
        ((S, S, S), VJobState.SLEEPING),
        ((T, T, T), VJobState.TERMINATED),
        ((R, S, S), VJobState.RUNNING),
        ((S, S, R), VJobState.RUNNING),
        ((R, W, R), VJobState.WAITING),
        ((S, W, S), VJobState.WAITING),
        ((R, R, T), VJobState.TERMINATED),
        ((S, T, S), VJobState.TERMINATED),
        ((W, T, W), VJobState.TERMINATED),
        ((W, T, R), VJobState.TERMINATED),
        ((R, S, W), VJobState.WAITING),
        ((P, P, P), VJobState.PAUSED),
        ((P, S, S), VJobState.PAUSED),
        ((P, R, S), VJobState.RUNNING),
        ((P, W, S), VJobState.WAITING),
    ],
)
def test_the_state_of_a_vjob_also_while_its_vms_differ(locations: tuple[Location, ...], state: VJobState) -> None:
    vjob = VJob("vjob", (VM1, VM2, VM3))
    names = [vm.name for vm in vjob.vms]
    assert Configuration(UNIPROCESSORS, (vjob,), dict(zip(names, locations, strict=True))).state(vjob) is state


def test_a_vjob_demands_what_its_vms_demand_together() -> None:
    assert VJob("vjob", (VM1, VM2, VM3)).demand == Resources(2, 1536)


@pytest.mark.parametrize(
    ("nodes", "exclude", "allowed"),
    [
        (None, (), ["N1", "N2", "N3"]),
        (("N1", "N2"), (), ["N1", "N2"]),
        (None, ("N2",), ["N1", "N3"]),
        (("N1", "N2"), ("N2",), ["N1"]),
        (("N1",), ("N1",), []),
    ],
)
def test_nodes_and_exclude_restrict_where_a_vjob_may_be(
    nodes: tuple[str, ...] | None, exclude: tuple[str, ...], allowed: list[str]
) -> None:
    vjob = VJob("v", (VM1,), rules=allowing(None if nodes is None else frozenset(nodes), frozenset(exclude)))
    assert [node.name for node in UNIPROCESSORS if vjob.allows(node.name)] == allowed


@given(problems_of_planning(consistent=False, overcommitted=True))
def test_a_step_gives_what_would_be_made_anew(problem: tuple[Configuration, Mapping[str, Location]]) -> None:
    source, target = problem
    assert source.used is not None and source.vjob_by_vm is not None  # derived before the step, and handed on
    stepped = source.with_locations(target)
    fresh = Configuration(source.nodes, source.vjobs, {**source.locations, **target})
    assert stepped == fresh
    assert hash(stepped) == hash(fresh)
    assert stepped.vm_by_name == fresh.vm_by_name
    for node in source.nodes:
        assert stepped.used[node.name].memory_mib == fresh.used[node.name].memory_mib
        assert stepped.used[node.name].centi_cpus == fresh.used[node.name].centi_cpus
    assert stepped.overloaded() == fresh.overloaded()
    assert source.with_locations({}) == source


@pytest.mark.parametrize(
    ("updates", "sentence"),
    [
        ({"VM9": WAITING}, r"\$\.locations\.VM9: no vjob has a VM of this name"),
        ({"VM1": running_on("N9")}, r"\$\.locations\.VM1\.host: there is no node 'N9'"),
        ({"VM1": running_on(SHARED)}, r"a VM runs on a node, not on 'shared'"),
        ({"VM1": Location(VMState.WAITING, "N1")}, r"a VM that is waiting is on no node"),
    ],
)
def test_a_step_to_nowhere_is_refused(updates: Mapping[str, Location], sentence: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=sentence):
        figure("N1", "N2", "N3").with_locations(updates)


def test_a_configuration_does_not_change_when_the_mapping_it_was_made_from_does() -> None:
    locations = {"VM1": running_on("N1")}
    made = Configuration(UNIPROCESSORS, (VJob("v", (VM1,)),), locations)
    locations["VM1"] = running_on("N9")
    assert made.locations == {"VM1": running_on("N1")}


def test_a_step_does_not_change_what_it_started_from() -> None:
    before = figure("N1", "N2", "N3")
    used = dict(before.used)
    after = before.with_locations({"VM1": running_on("N2")})
    assert before.used == used
    assert before.locations["VM1"] == running_on("N1")
    assert after.used["N2"] == Resources(1, 1024)
    assert after.vm_by_name is before.vm_by_name, "what no step changes is not derived at each step"


@given(configurations(consistent=False))
def test_a_copy_through_pickle_equals_its_original_and_carries_nothing_derived(original: Configuration) -> None:
    lean = len(pickle.dumps(original))
    assert original.used is not None and hash(original) and original.vm_by_name is not None
    copy = pickle.loads(pickle.dumps(original))
    assert len(pickle.dumps(original)) == lean
    assert copy == original
    assert hash(copy) == hash(original)
    assert copy.used == original.used


def test_a_copy_in_another_process_is_found_in_a_set() -> None:
    original = figure("N1", "N2", "N3")
    assert hash(original)
    program = (
        "import pickle, sys; c = pickle.load(sys.stdin.buffer);"
        "fresh = type(c)(c.nodes, c.vjobs, c.locations); assert c in {fresh}; print('found')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(original),
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == b"found\n"


def test_configurations_that_differ_in_a_location_a_node_or_a_vjob_are_different() -> None:
    base = figure("N1", "N2", "N3")
    drained = Configuration(
        (*UNIPROCESSORS[:2], Node("N3", Resources(1, 1024), NodeState.DRAINING)), base.vjobs, base.locations
    )
    others = [base, figure("N1", "N2", "N2"), drained, Configuration(base.nodes, base.vjobs[::-1], base.locations)]
    assert len(set(others)) == len(others)
    assert len({base, figure("N1", "N2", "N3")}) == 1
    assert len({hash(each) for each in others}) == len(others), "a search over configurations looks them up in sets"


hundredths = st.integers(0, 400)


@given(st.lists(hundredths, max_size=60), st.integers(0, 8000))
def test_sums_of_fractions_fit_exactly_when_their_hundredths_do(demands: list[int], capacity: int) -> None:
    total = sum((Resources(centi / 100, 0) for centi in demands), NOTHING)
    room = Resources(capacity / 100, 0)
    assert total.centi_cpus == sum(demands)
    assert room.holds(total) is (sum(demands) <= capacity)
    assert (Resources(sum(demands) / 100, 0) - total).centi_cpus == 0


def test_three_tenths_fit_though_their_sum_is_not_exact() -> None:
    thrice = sum([Resources(0.1, 0)] * 3, NOTHING)
    assert thrice.cpus > 0.3
    assert Resources(0.3, 0).holds(thrice)


def test_both_dimensions_have_to_fit() -> None:
    room = Resources(1, 1024)
    assert room.holds(Resources(1, 1024))
    assert not room.holds(Resources(1.01, 1024))
    assert not room.holds(Resources(1, 1025))
    assert not room.holds(Resources(float("nan"), 0))
    assert str(Resources(0.1 + 0.2, 512)) == "0.3 CPUs and 512 MiB"


_OURS = os.path.dirname(rmsplugin.__file__)


def lines(act: Callable[[], object]) -> int:
    """How many lines of ours an act runs, each turn of a loop anew: what it costs, however busy the machine is."""
    found = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal found
        if not frame.f_code.co_filename.startswith(_OURS):  # what is told of garbage is not
            return None
        found += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return found


def test_a_step_costs_what_it_changes_and_not_what_there_is() -> None:
    def crowd(vjobs: int) -> Configuration:
        everywhere = allowing(frozenset(node.name for node in nodes))
        jobs = tuple(
            VJob(f"v{j}", tuple(VM(f"v{j}-{k}", Resources(0.05, 512)) for k in range(10)), rules=everywhere)
            for j in range(vjobs)
        )
        locations = {vm.name: running_on(f"n{k * 50}") for vjob in jobs for k, vm in enumerate(vjob.vms)}
        return Configuration(nodes, jobs, locations)

    def step(crowd: Configuration) -> Configuration:
        stepped = crowd.with_locations({"v0-0": WAITING})
        assert stepped.free("n0").memory_mib == crowd.free("n0").memory_mib + 512
        return stepped

    nodes = tuple(Node(f"n{i}", Resources(16, 65536)) for i in range(500))
    few, many = crowd(30), crowd(300)
    assert (many.used["n50"].centi_cpus, many.used["n50"].memory_mib) == (1500, 153600)
    for each in (few, many):
        step(each)  # derives what it lacks
    assert lines(lambda: step(few)) == lines(lambda: step(many))


def test_to_validate_vms_costs_as_much_for_each_however_many_there_are() -> None:
    nodes = tuple(Node(f"n{i}", Resources(16, 65536)) for i in range(50))

    def validate(vjobs: int) -> int:
        jobs = tuple(VJob(f"v{j}", (VM(f"v{j}-0", Resources(0.05, 512)),)) for j in range(vjobs))
        locations = {vjob.vms[0].name: running_on(f"n{j % 50}") for j, vjob in enumerate(jobs)}
        return lines(lambda: Configuration(nodes, jobs, locations).used)

    thousand = validate(2000) - validate(1000)
    assert thousand == validate(3000) - validate(2000) > 0
