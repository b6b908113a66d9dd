"""Groups are given to managers evenly, and stay where they are if they can."""

from __future__ import annotations

from collections import Counter

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.decision.manager_assignment import assign_groups

NAMES = [f"m{number}" for number in range(6)]
sizes = st.dictionaries(st.integers(0, 30).map("g{}".format), st.integers(1, 1000), max_size=20)
managers = st.sets(st.sampled_from(NAMES))
owners = st.dictionaries(st.integers(0, 30).map("g{}".format), st.sampled_from([*NAMES, "gone"]), max_size=20)


def loads(given_sizes: dict[str, int], there: set[str], found: dict[str, str]) -> dict[str, int]:
    total = dict.fromkeys(there, 0)
    for group, manager in found.items():
        total[manager] += given_sizes[group]
    return total


@given(sizes, managers, owners)
@settings(max_examples=few(500), deadline=None)
def test_each_group_has_one_that_is_there_no_move_evens_loads_and_to_ask_again_moves_nothing(
    given_sizes: dict[str, int], there: set[str], before: dict[str, str]
) -> None:
    found = assign_groups(given_sizes, there, before)
    if not there:
        assert found == {}
        return
    assert found.keys() == given_sizes.keys() and set(found.values()) <= there
    total = loads(given_sizes, there, found)
    for group, manager in found.items():
        assert total[manager] - min(total.values()) <= given_sizes[group], "moving it would even the loads"
    assert assign_groups(given_sizes, there, found) == found
    assert assign_groups(given_sizes, sorted(there, reverse=True), dict(reversed(before.items()))) == found


kept_at = st.dictionaries(st.integers(0, 30).map("g{}".format), st.sampled_from([*NAMES, "gone"]), max_size=8)


@given(sizes, managers, owners, kept_at)
@settings(max_examples=few(500), deadline=None)
def test_a_group_is_where_an_operator_wants_it_and_the_others_even_loads_as_far_as_they_can(
    given_sizes: dict[str, int], there: set[str], before: dict[str, str], kept: dict[str, str]
) -> None:
    found = assign_groups(given_sizes, there, before, kept)
    if not there:
        assert found == {}
        return
    fixed = {group: manager for group, manager in kept.items() if group in given_sizes and manager in there}
    assert found.keys() == given_sizes.keys() and set(found.values()) <= there
    assert {group: found[group] for group in fixed} == fixed
    total = loads(given_sizes, there, found)
    for group, manager in found.items():
        if group not in fixed:
            assert total[manager] - min(total.values()) <= given_sizes[group], "moving it would even the loads"
    assert assign_groups(given_sizes, there, found, kept) == found, "to ask again moves nothing"
    assert assign_groups(given_sizes, there, before, fixed) == found, "who is gone, and what is gone, counts nothing"


@given(sizes, managers, owners, kept_at, managers)
@settings(max_examples=few(300), deadline=None)
def test_a_manager_that_is_closed_keeps_what_it_has_and_gets_no_more_but_by_order(
    given_sizes: dict[str, int], there: set[str], before: dict[str, str], kept: dict[str, str], closed: set[str]
) -> None:
    found = assign_groups(given_sizes, there, before, kept, closed)
    assert found.keys() == (given_sizes.keys() if there else set())
    if there <= closed:
        assert found == assign_groups(given_sizes, there, before, kept)
        return
    for group, manager in found.items():
        assert manager not in closed or manager in (before.get(group), kept.get(group))
    assert assign_groups(given_sizes, there, found, kept, closed) == found, "to ask again moves nothing"


barred_from = st.dictionaries(st.integers(0, 30).map("g{}".format), managers, max_size=12)


@given(sizes, managers, owners, kept_at, managers, barred_from)
@settings(max_examples=few(500), deadline=None)
def test_no_group_is_at_a_manager_that_cannot_have_it_while_another_one_can(
    given_sizes: dict[str, int],
    there: set[str],
    before: dict[str, str],
    kept: dict[str, str],
    closed: set[str],
    barred: dict[str, set[str]],
) -> None:
    found = assign_groups(given_sizes, there, before, kept, closed, barred)
    assert found.keys() == (given_sizes.keys() if there else set())
    total = loads(given_sizes, there, found)
    for group, manager in found.items():
        able = there - barred.get(group, set()) or there
        assert manager in able
        taking = able - closed or able
        if kept.get(group) not in able:
            gap = total[manager] - min(total[each] for each in taking)
            assert gap <= given_sizes[group], "moving it would even the loads"
    assert assign_groups(given_sizes, there, found, kept, closed, barred) == found, "to ask again moves nothing"


@given(sizes, managers, owners, st.data())
@settings(max_examples=few(300), deadline=None)
def test_groups_that_are_kept_where_they_are_move_nothing_and_one_that_is_let_go_leaves_no_trace(
    given_sizes: dict[str, int], there: set[str], before: dict[str, str], data: st.DataObject
) -> None:
    found = assign_groups(given_sizes, there, before)
    some = data.draw(st.sets(st.sampled_from(sorted(found))) if found else st.just(set()))
    assert assign_groups(given_sizes, there, found, {group: found[group] for group in some}) == found
    assert assign_groups(given_sizes, there, before, {}) == assign_groups(given_sizes, there, before)


@given(st.integers(2, 25), st.integers(2, 6), st.data())
@settings(max_examples=few(200), deadline=None)
def test_of_groups_of_one_size_one_moves_by_an_order_and_at_most_one_in_exchange(
    count: int, present: int, data: st.DataObject
) -> None:
    same = {f"g{number}": 500 for number in range(count)}
    before = assign_groups(same, NAMES[:present], {})
    group = data.draw(st.sampled_from(sorted(same)))
    target = data.draw(st.sampled_from(NAMES[:present]))
    after = assign_groups(same, NAMES[:present], before, {group: target})
    moved = {each for each in same if after[each] != before[each]}
    assert after[group] == target
    assert len(moved - {group}) <= 1
    assert not moved or group in moved, "who is where it is to be has nobody move"
    # With so many groups that each manager can have its share, the numbers are as even as without the order.
    assert max(numbers(after, present)) - min(numbers(after, present)) <= 1


@given(st.integers(0, 25), st.integers(2, 6))
@settings(max_examples=few(200), deadline=None)
def test_of_groups_of_one_size_those_of_who_leaves_move_and_to_who_joins_no_more_than_its_share(
    count: int, present: int
) -> None:
    same = {f"g{number}": 500 for number in range(count)}
    before = assign_groups(same, NAMES[:present], {})
    assert max(numbers(before, present)) - min(numbers(before, present)) <= 1
    left = assign_groups(same, NAMES[: present - 1], before)
    assert {group for group in same if left[group] != before[group]} == {
        group for group, owner in before.items() if owner == NAMES[present - 1]
    }
    joined = assign_groups(same, NAMES[:present], left)
    moved = {group for group in same if joined[group] != left[group]}
    assert {joined[group] for group in moved} <= {NAMES[present - 1]}
    assert len(moved) <= count // present + 1


def numbers(found: dict[str, str], present: int) -> list[int]:
    counted = Counter(found.values())
    return [counted[name] for name in NAMES[:present]]


def test_twenty_groups_of_five_hundred_hosts_are_shared_by_four_managers() -> None:
    same = {f"g{number}": 500 for number in range(20)}
    assert Counter(assign_groups(same, NAMES[:4], {}).values()) == Counter(dict.fromkeys(NAMES[:4], 5))
