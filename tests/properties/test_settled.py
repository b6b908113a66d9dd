"""Whatever is seen, something can be decided about the settled part, and nobody's memory is given away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.assessment.facts import Members, NodeFacts, RoomUse, VJobFacts, VMFacts
from rmsplugin.assessment.settled import settled
from rmsplugin.model.elements import SHARED, TERMINATED, VM, WAITING, Location, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources

NAMES = ("n1", "n2", "n3")

NODES = st.tuples(
    *(
        st.builds(
            NodeFacts,
            st.just(name),
            st.builds(Resources, st.sampled_from([1.0, 4.0]), st.sampled_from([1024, 4096])),
            st.sampled_from([RoomUse.HELD, *RoomUse]),
            st.sampled_from(["", "", "", "silent"]),
        )
        for name in NAMES
    )
)
PLACES = st.sampled_from(
    [WAITING, TERMINATED, sleeping_on(SHARED), *(f(name) for f in (running_on, sleeping_on) for name in (*NAMES, "n9"))]
)


@st.composite
def vm_facts(draw: st.DrawFn, name: str) -> VMFacts:
    place: Location = draw(PLACES)
    held = {place.node} if place.state is VMState.RUNNING else set()
    held |= draw(st.sets(st.sampled_from(NAMES), max_size=1)) if draw(st.integers(0, 3)) == 0 else set()
    demand = Resources(draw(st.sampled_from([0.0, 0.37, 1.0])), draw(st.sampled_from([256, 1024])))
    return VMFacts(VM(name, demand), place, frozenset(each for each in held if each))


@st.composite
def queues(draw: st.DrawFn) -> list[VJobFacts]:
    return [
        VJobFacts(
            f"v{number}",
            Members(draw(vm_facts(f"v{number}-{index}")) for index in range(draw(st.integers(0, 2)))),
            frozenset(draw(st.sets(st.sampled_from((*NAMES, "n9"))))),
            draw(st.sampled_from(["", "", "is starting"])),
            ran_s=draw(st.sampled_from([0.0, 1.0, -1.0])),
        )
        for number in range(draw(st.integers(0, 5)))
    ]


@given(nodes=NODES, queue=queues())
def test_each_vjob_is_in_it_or_left_out_with_a_reason(nodes: tuple[NodeFacts, ...], queue: list[VJobFacts]) -> None:
    found = settled(nodes, queue)
    inside = [vjob.name for vjob in found.configuration.vjobs if not vjob.in_transit]
    assert inside == [vjob.name for vjob in queue if vjob.name not in found.left_out]
    assert found.left_out.keys() <= {vjob.name for vjob in queue}
    assert all(reason.sentence for reason in found.left_out.values())
    assert [node.name for node in found.configuration.nodes] == list(NAMES)


@given(nodes=NODES, queue=queues())
def test_nothing_that_somebody_holds_is_free(nodes: tuple[NodeFacts, ...], queue: list[VJobFacts]) -> None:
    found = settled(nodes, queue)
    for node in nodes:
        held = [each.vm.demand for vjob in queue for each in vjob.vms if node.name in each.holds]
        usable = node.room is RoomUse.HELD and not node.out_of_reach
        size = node.size if usable else Resources(0, 0)
        free = found.configuration.free(node.name)
        assert free.memory_mib <= max(0, size.memory_mib - sum(demand.memory_mib for demand in held))
        assert free.cpus <= max(0.0, size.cpus - sum(demand.cpus for demand in held)) + 1e-6


@given(nodes=NODES, queue=queues())
def test_nobody_is_decided_about_where_nobody_can_act(nodes: tuple[NodeFacts, ...], queue: list[VJobFacts]) -> None:
    found = settled(nodes, queue)
    reachable = {node.name for node in nodes if not node.out_of_reach} | {SHARED, None}
    assert {location.node for location in found.configuration.locations.values()} <= reachable
