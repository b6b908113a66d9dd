"""What is kept of a vjob's VMs from assessment to assessment is what would be found anew, whatever has changed."""

from __future__ import annotations

from dataclasses import replace

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios.world import make_settings

from rmsplugin.assessment.facts import Members
from rmsplugin.assessment.promises import Promise
from rmsplugin.engine.assess.members import KeptMembers, New, Placed, members_placed, members_to_be
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase

MADE = make_settings()
OVERBOOKED = {"vjob": MADE.partition["vjob"].model_copy(update={"cpu_overbooking": 2.0})}
SETTINGS = MADE.model_copy(update={"partition": OVERBOOKED})
PARTITIONS = st.sampled_from(["vjob", "gone"])
NODES = ("", "n1", "n2")
GEOMETRIES = (Geometry(2, 2, 512), Geometry(2, 2, 512, small_cpus=1, small_memory_mib=256), Geometry(2, 4, 512))
ROW = VMRow("vm0", 1, 0, "uuid", "mac", "10.0.0.10", "n1", memory_mib=512)

nodes = st.sampled_from(NODES)
promises = st.none() | st.builds(
    Promise,
    st.sampled_from([OperationKind.SUSPEND, OperationKind.MIGRATE, OperationKind.UNPAUSE]),
    st.dictionaries(st.sampled_from(["vm0", "vm1"]), st.sampled_from(NODES[1:]), max_size=2),
)
rows = st.builds(
    lambda host, destination, phase, mib: replace(
        ROW, host=host, destination=destination, image_node="n2", phase=phase, memory_mib=mib
    ),
    nodes,
    nodes,
    st.sampled_from([VMPhase.LIVE, VMPhase.SAVED]),
    st.sampled_from([256, 512]),
)
placed = st.builds(
    lambda row, cpus, mib, geometry, state, ending, ended, promise: Placed(
        (row, replace(row, name="vm1", idx=1)),
        ((cpus, mib), (None, None)),
        "vjob",
        geometry,
        state,
        ending,
        ended,
        promise,
    ),
    rows,
    st.none() | st.sampled_from([0.5, 1.0]),
    st.none() | st.sampled_from([100, 200]),
    st.sampled_from(GEOMETRIES),
    st.sampled_from([VJobState.RUNNING, VJobState.PAUSED, VJobState.UNPAUSING, VJobState.STOPPING]),
    st.booleans(),
    st.booleans(),
    promises,
)
mib = st.none() | st.sampled_from([100, 200])
new = st.builds(New, st.sampled_from("ab"), PARTITIONS, st.sampled_from(GEOMETRIES), mib, mib, promises)
#: What is asked for; of a vjob with VMs its name; and whether those that were not asked for since the last time go.
questions = st.tuples(new | st.tuples(st.sampled_from("ab"), placed), st.booleans())


def derived(members: Members) -> tuple[object, ...]:
    """All that others derive from the VMs of a vjob."""
    return (
        tuple(members),
        members.as_decided_about,
        members.locations,
        members.states,
        members.nodes,
        members.computing,
        members.hold_where_they_are,
    )


@settings(max_examples=few(400))
@given(st.lists(questions, max_size=12))
def test_what_is_kept_is_what_would_be_found(asked: list[tuple[New | tuple[str, Placed], bool]]) -> None:
    kept = KeptMembers(SETTINGS)
    for question, forget in asked:
        if isinstance(question, New):
            name, found, anew = question.vjob, kept.new(question), members_to_be(SETTINGS, question)
        else:
            name, found, anew = question[0], kept.placed(*question), members_placed(SETTINGS, question[1])
        assert derived(found) == derived(anew)
        if forget:
            kept.retain({name})


def test_what_is_as_it_was_is_the_same_object() -> None:
    kept = KeptMembers(SETTINGS)
    new = New("a", "vjob", GEOMETRIES[0], None, None, None)
    placed = Placed((ROW,), ((None, None),), "vjob", GEOMETRIES[0], VJobState.RUNNING, False, False, None)
    assert kept.new(new) is kept.new(new._replace())
    assert kept.placed("b", placed) is kept.placed("b", placed._replace(vms=(replace(ROW),)))
    assert kept.new(new) is not kept.new(new._replace(large_mib=100))


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    kept = KeptMembers(SETTINGS)
    of = New("a", "vjob", GEOMETRIES[0], None, None, None)
    found = kept.new(of)
    kept.new(of._replace(vjob="b"))
    kept.retain({"b"})
    assert kept.new(of) is not found
