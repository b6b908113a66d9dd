"""Telling apart: equal VMs get the nodes that a program wants for their class, and nodes of their own where needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rmsplugin.model.joint import Spread
from rmsplugin.packing import telling_apart
from rmsplugin.packing.telling_apart import Member, Wanted, staying, tell_apart

A, B = Spread(frozenset("a")), Spread(frozenset("b"))


def wanted(members: Sequence[Member], nodes: str) -> Wanted:
    """A class, and a node for each of its VMs, in any order."""
    return Wanted(members, Counter(map(int, nodes)))


def test_vms_that_may_be_beside_each_other_stay_if_their_node_is_wanted() -> None:
    members = [Member("x", 1, None), Member("y", 1, None), Member("z", None, None)]
    assert tell_apart([wanted(members, "122")]) == {"x": 1, "y": 2, "z": 2}


def test_two_of_a_group_that_would_be_on_one_node_change_places_with_others() -> None:
    members = [Member("x", 1, A), Member("y", None, A), Member("z", 2, None)]
    assert tell_apart([wanted(members, "112")]) == {"x": 1, "y": 2, "z": 1}


def test_a_vm_comes_to_no_node_where_one_of_its_group_of_another_class_stays() -> None:
    large = wanted([Member("x", 1, A)], "1")
    small = wanted([Member("y", None, A), Member("z", None, B)], "12")
    assert tell_apart([large, small]) == tell_apart([small, large]) == {"x": 1, "y": 2, "z": 1}


def test_a_class_is_placed_again_if_a_later_one_had_no_choice() -> None:
    """In the first round ``x`` goes where it is alone so far; but ``z`` can be nowhere else."""
    first = wanted([Member("x", None, A), Member("y", None, B)], "12")
    later = wanted([Member("z", None, A)], "1")
    other = wanted([Member("z", None, A)], "2")
    assert tell_apart([first, later]) == {"x": 2, "y": 1, "z": 1}
    assert tell_apart([first, other]) == {"x": 1, "y": 2, "z": 2}


def test_there_are_no_places_where_a_node_has_to_have_two_of_a_group() -> None:
    alone = [Member("x", None, A), Member("y", None, A)]
    assert tell_apart([wanted(alone, "11")]) is None
    assert tell_apart([wanted(alone[:1], "1"), wanted(alone[1:], "1")]) is None


def test_so_many_groups_and_nodes_are_told_apart_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow knows no limit of its own."""
    two = [wanted([Member("x", None, A), Member("y", None, B)], "12")]
    monkeypatch.setattr(telling_apart, "_MOST_WAYS", 4)
    assert tell_apart(two) is not None
    monkeypatch.setattr(telling_apart, "_MOST_WAYS", 3)
    assert tell_apart(two) is None


@st.composite
def classes(draw: st.DrawFn, most_classes: int) -> list[Wanted]:
    """VMs of which no two of a group are on one node, and nodes that are wanted for them."""
    groups = st.sampled_from([None, A, B])
    found, spots = [], set()
    for number in range(draw(st.integers(1, most_classes))):
        members = []
        for k, apart in enumerate(draw(st.lists(groups, min_size=1, max_size=4))):
            node = draw(st.sampled_from([None, 1, 2, 3]))
            if (apart, node) in spots:
                node = None
            if apart is not None and node is not None:
                spots.add((apart, node))
            members.append(Member(f"v{number}-{k}", node, apart))
        nodes = draw(st.lists(st.integers(1, 3), min_size=len(members), max_size=len(members)))
        found.append(Wanted(members, Counter(nodes)))
    return found


def keeps(classes: Sequence[Wanted], placed: Mapping[str, int]) -> bool:
    """Whether no two VMs of a group are on one node, and each class is where it is wanted."""
    vms = [each for k in classes for each in k.members]
    spots = [(each.apart, placed[each.name]) for each in vms if each.apart is not None]
    there = [Counter(placed[each.name] for each in k.members) for k in classes]
    return len(spots) == len(set(spots)) and there == [k.hosted for k in classes] and len(placed) == len(vms)


def all_ways(classes: Sequence[Wanted]) -> Iterator[dict[str, int]]:
    orders = [set(permutations(Counter(k.hosted).elements())) for k in classes]
    names = [each.name for k in classes for each in k.members]
    for way in product(*orders):
        yield dict(zip(names, (node for nodes in way for node in nodes), strict=True))


@given(classes(most_classes=1))
def test_places_of_one_class_are_found_if_any_are_and_as_many_stay_as_can(classes: list[Wanted]) -> None:
    found = tell_apart(classes)
    most = max((staying(classes, way) for way in all_ways(classes) if keeps(classes, way)), default=None)
    assert (None if found is None else staying(classes, found)) == most
    assert found is None or keeps(classes, found)
    event(f"{most} stay")


@given(classes(most_classes=3))
def test_places_of_several_classes_keep_their_groups_apart_and_no_more_stay_than_any_equal_ones(
    classes: list[Wanted],
) -> None:
    found = tell_apart(classes)
    event("none" if found is None else "found")
    if found is not None:
        assert keeps(classes, found)
        assert staying(classes, found) <= sum(k.most_stay for k in classes)
