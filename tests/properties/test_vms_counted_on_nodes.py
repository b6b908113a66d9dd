"""VMs that come and go: what is counted of them on the way is what is counted anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.standing import Standing

VMS, NODES = ("a", "b", "c"), ("n1", "n2", "n3")
some_vms = st.frozensets(st.sampled_from(VMS), min_size=1)
some_nodes = st.frozensets(st.sampled_from(NODES), min_size=1)
#: A VM comes to a node, or leaves it if it is there.
moves = st.lists(st.tuples(st.sampled_from(VMS), st.sampled_from(NODES)), max_size=20)


@given(st.lists(st.tuples(some_vms, some_nodes), min_size=1, max_size=3), moves, moves)
def test_vms_on_nodes_are_counted_while_they_come_and_go(
    asked: list[tuple[frozenset[str], frozenset[str]]],
    before: list[tuple[str, str]],
    after: list[tuple[str, str]],
) -> None:
    standing, held = Standing({}), set[tuple[str, str]]()
    for number, (vm, node) in enumerate([*before, *after]):
        if (vm, node) in held and number % 2:
            standing.remove(vm, node)
            held.remove((vm, node))
        else:
            standing.put(vm, node)
            held.add((vm, node))
        if number >= len(before):
            for vms, nodes in asked:
                found = {each for each, where in held if each in vms and where in nodes}
                assert standing.number_on(vms, nodes) == len(found)
                assert standing.number_hosting(nodes) == len({where for _, where in held} & nodes)


def test_numbers_are_right_whatever_else_was_asked() -> None:
    standing, node = Standing({}), frozenset({"n1"})
    asked = [frozenset({"a", str(number)}) for number in range(200)]
    for vms in asked:
        assert standing.number_on(vms, node) == 0
    standing.put("a", "n1")
    assert {standing.number_on(vms, node) for vms in asked} == {1}
    standing.remove("a", "n1")
    assert {standing.number_on(vms, node) for vms in reversed(asked)} == {0}
    standing.put("a", "n1")
    many = [frozenset({"n1", f"m{number}"}) for number in range(200)]
    assert {standing.number_hosting(nodes) for nodes in (*many, *reversed(many))} == {1}
    standing.put("b", "n1")
    standing.remove("a", "n1")
    assert {standing.number_hosting(nodes) for nodes in many} == {1}
    standing.remove("b", "n1")
    assert {standing.number_hosting(nodes) for nodes in many} == {0}


@given(st.lists(st.tuples(st.sampled_from(VMS), st.sampled_from(NODES)), unique=True), moves)
def test_a_copy_has_the_vms_of_the_original_and_goes_its_own_way(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    original, held = Standing({}, before), set(before)
    every = frozenset(VMS), frozenset(NODES)
    original.number_on(*every)
    copied, alone = original.copy(), Standing({}, before)
    for vm, node in after:
        (copied.remove if node in copied.nodes_of(vm) else copied.put)(vm, node)
        (alone.remove if node in alone.nodes_of(vm) else alone.put)(vm, node)
    assert {(vm, node) for vm in VMS for node in original.nodes_of(vm)} == held
    assert original.number_on(*every) == len({vm for vm, _ in held})
    assert copied.number_on(*every) == alone.number_on(*every)
    assert [set(copied.vms_on(node)) for node in NODES] == [set(alone.vms_on(node)) for node in NODES]
    assert [set(copied.nodes_of(vm)) for vm in VMS] == [set(alone.nodes_of(vm)) for vm in VMS]
    assert copied.number_hosting(every[1]) == alone.number_hosting(every[1])
