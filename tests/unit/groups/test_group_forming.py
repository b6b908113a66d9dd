"""Groups of a site: by settings, by partitions, by switches; each host in exactly one, whatever the settings say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.groups.forming import Formed, form


def hosts(first: int, last: int) -> list[str]:
    return [f"n{number}" for number in range(first, last + 1)]


def shown(formed: Formed) -> dict[str, list[str]]:
    return {group.name: list(group.hosts) for group in formed.groups}


def test_each_hosts_partition_is_a_group() -> None:
    formed = form({"small": hosts(1, 3), "large": hosts(4, 6)})
    assert shown(formed) == {"small": hosts(1, 3), "large": hosts(4, 6)}
    assert formed.faults == ()


def test_partitions_that_share_hosts_are_one_group() -> None:
    formed = form({"day": hosts(1, 3), "other": hosts(7, 8), "night": hosts(3, 5), "all": hosts(2, 2)})
    assert shown(formed) == {"other": hosts(7, 8), "day+night+all": hosts(1, 5)}


def test_partitions_that_a_third_one_joins_are_one_group() -> None:
    assert shown(form({"a": hosts(1, 2), "b": hosts(3, 4), "c": hosts(2, 3)})) == {"a+b+c": hosts(1, 4)}


def test_a_partition_without_hosts_is_no_group() -> None:
    assert form({"empty": []}) == Formed()


def test_a_large_partition_is_split_into_groups_of_about_one_size() -> None:
    formed = form({"vmhosts": hosts(1, 11)}, most=5)
    assert shown(formed) == {"vmhosts-1": hosts(1, 4), "vmhosts-2": hosts(5, 8), "vmhosts-3": hosts(9, 11)}


def test_the_default_bound_is_a_thousand_hosts() -> None:
    assert [len(group.hosts) for group in form({"p": hosts(1, 1000)}).groups] == [1000]
    assert [len(group.hosts) for group in form({"p": hosts(1, 1001)}).groups] == [501, 500]


def test_a_split_keeps_the_hosts_of_a_switch_together() -> None:
    switches = [hosts(6, 9), hosts(1, 3), [*hosts(4, 5), "elsewhere"]]
    formed = form({"p": hosts(1, 10)}, switches=switches, most=6)
    assert shown(formed) == {"p-1": hosts(6, 9), "p-2": [*hosts(1, 5), "n10"]}


def test_a_switch_with_more_hosts_than_a_group_may_have_is_split() -> None:
    formed = form({"p": hosts(1, 9)}, switches=[hosts(1, 9)], most=4)
    assert [len(group.hosts) for group in formed.groups] == [3, 3, 3]


def test_named_groups_have_the_hosts_that_the_settings_name() -> None:
    formed = form({"p": hosts(1, 4), "q": hosts(5, 6)}, {"left": ["n2", "n1"], "right": [*hosts(3, 5)], "q": ["n6"]})
    assert shown(formed) == {"left": hosts(1, 2), "right": hosts(3, 5), "q": ["n6"]}
    assert formed.faults == ()


def test_a_named_group_may_be_larger_than_the_bound() -> None:
    assert shown(form({"p": hosts(1, 9)}, {"all": hosts(1, 9)}, most=2)) == {"all": hosts(1, 9)}


@pytest.mark.parametrize(
    ("named", "groups", "fault"),
    [
        (
            {"a": hosts(1, 3), "b": hosts(3, 4)},
            {"a": hosts(1, 3), "b": ["n4"]},
            "[group.b] names n3, which is in [group.a]: it stays there",
        ),
        (
            {"a": [*hosts(1, 4), "n9", "m1"]},
            {"a": hosts(1, 4)},
            "[group.a] names n9, m1: no hosts partition has such a node",
        ),
        (
            {"a": ["n1"]},
            {"a": ["n1"], "p": hosts(2, 4)},
            "n2, n3, n4 of hosts partition p are in no [group.NAME]: add them to one; "
            "until then they are a group of their own",
        ),
        (
            {"p": ["n1"]},
            {"p": ["n1"], "p+rest": hosts(2, 4)},
            "n2, n3, n4 of hosts partition p are in no [group.NAME]: add them to one; "
            "until then they are a group of their own",
        ),
    ],
)
def test_a_fault_of_the_settings_is_told_and_each_host_has_a_group(
    named: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]], fault: str
) -> None:
    formed = form({"p": hosts(1, 4)}, named)
    assert shown(formed) == groups
    assert formed.faults == (fault,)


def test_many_hosts_are_told_by_their_number() -> None:
    (fault,) = form({"p": hosts(1, 9)}, {"a": ["n1"]}).faults
    assert fault.startswith("n2, n3, n4 and 5 more of hosts partition p are in no [group.NAME]")


def test_a_partition_of_which_no_group_names_a_host_is_a_group_and_no_fault() -> None:
    formed = form({"p": hosts(1, 2), "q": hosts(3, 4)}, {"a": hosts(1, 2)})
    assert shown(formed) == {"a": hosts(1, 2), "q": hosts(3, 4)}
    assert formed.faults == ()


NAMES = st.lists(st.sampled_from(hosts(1, 12)), max_size=12)


@given(
    partitions=st.dictionaries(st.sampled_from("pqr"), NAMES.map(lambda names: list(dict.fromkeys(names)))),
    named=st.dictionaries(st.sampled_from(("a", "b", "p", "q-1")), NAMES),
    switches=st.lists(NAMES, max_size=3),
    most=st.integers(1, 5),
)
def test_each_host_is_in_exactly_one_group(
    partitions: dict[str, list[str]], named: dict[str, list[str]], switches: list[list[str]], most: int
) -> None:
    formed = form(partitions, named, switches, most)
    found = [host for group in formed.groups for host in group.hosts]
    assert sorted(found) == sorted({host for each in partitions.values() for host in each})
    names = [group.name for group in formed.groups]
    assert len(set(names)) == len(names)
    assert all(len(group.hosts) <= most for group in formed.groups if group.name not in named)
    assert all(group.hosts for group in formed.groups)
