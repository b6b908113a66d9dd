"""Geometry: what is read of the wrapper's line, by this release and of those to come."""

from __future__ import annotations

import itertools

import pytest

from rmsplugin.model.vjob import Geometry

KEYS = ("vms=2", "cpus=3", "memory=512", "ntasks=4", "cpus_per_task=1", "image=big-one")
GEOMETRY = Geometry(vms=2, cpus=3, memory_mib=512, ntasks=4, cpus_per_task=1, image="big-one")


def test_what_is_written_is_read_again() -> None:
    assert str(GEOMETRY) == ",".join(KEYS)
    assert Geometry.parse(f" {GEOMETRY}\n") == GEOMETRY


UNEVEN = Geometry(3, 3, 768, ntasks=8, small_cpus=2, small_memory_mib=512)


def test_of_uneven_tasks_the_first_vms_have_more() -> None:
    assert [UNEVEN.cpus_of(index) for index in range(3)] == [3, 3, 2]
    assert [UNEVEN.memory_mib_of(index) for index in range(3)] == [768, 768, 512]
    assert (UNEVEN.total_cpus, UNEVEN.total_memory_mib) == (8, 2048)
    assert Geometry.parse(str(UNEVEN)) == UNEVEN
    assert str(UNEVEN).endswith(",image=default,small_cpus=2,small_memory=512")


def test_vms_of_a_line_of_an_older_release_are_of_one_size_whatever_its_tasks() -> None:
    """They run, or sleep, with that size."""
    old = Geometry.parse("vms=3,cpus=3,memory=768,ntasks=8,cpus_per_task=1,image=default")
    assert ([old.cpus_of(index) for index in range(3)], old.total_cpus, old.total_memory_mib) == ([3, 3, 3], 9, 2304)
    assert "small" not in str(old)


@pytest.mark.parametrize(
    ("vms", "small"),
    [
        (3, "small_cpus=3,small_memory=512"),
        (3, "small_cpus=4,small_memory=512"),
        (3, "small_cpus=2,small_memory=769"),
        (3, "small_cpus=2,small_memory=0"),
        (3, "small_cpus=2"),
        (3, "small_memory=512"),
        (3, "small_cpus=2.5,small_memory=512"),
        (4, "small_cpus=2,small_memory=512"),
    ],
)
def test_smaller_vms_that_cannot_be(vms: int, small: str) -> None:
    with pytest.raises(ValueError, match="small_"):
        Geometry.parse(f"vms={vms},cpus=3,memory=768,ntasks=8,cpus_per_task=1,image=default,{small}")


def test_the_keys_come_in_any_order() -> None:
    for keys in itertools.permutations(KEYS):
        assert Geometry.parse(",".join(keys)) == GEOMETRY


def test_a_key_that_an_older_release_may_do_without_is_ignored() -> None:
    assert Geometry.parse(",".join(("x_colour=red", *KEYS[:3], "x_empty=", *KEYS[3:]))) == GEOMETRY


def test_a_key_of_a_newer_release_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="made by a newer release: unknown key 'gpus'"):
        Geometry.parse(",".join((*KEYS, "gpus=1")))


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_missing_or_there_twice_is_named(key: str) -> None:
    name = key.partition("=")[0]
    with pytest.raises(ValueError, match=f"lacks {name}$"):
        Geometry.parse(",".join(other for other in KEYS if other != key))
    with pytest.raises(ValueError, match=f"{name} is there twice"):
        Geometry.parse(",".join((*KEYS, key)))


def test_an_ignored_key_that_is_there_twice_is_refused_too() -> None:
    with pytest.raises(ValueError, match="x_a is there twice"):
        Geometry.parse(",".join((*KEYS, "x_a=1", "x_a=2")))


@pytest.mark.parametrize(
    "value",
    ["vms=", "vms=0", "vms=-1", "vms=1_0", "vms=١", "vms=1234567", "cpus=1.5", "memory=1G", "image=", "image=../a"],
)
def test_a_value_that_no_vm_can_have(value: str) -> None:
    name = value.partition("=")[0]
    with pytest.raises(ValueError, match=name):
        Geometry.parse(",".join(value if key.startswith(f"{name}=") else key for key in KEYS))


@pytest.mark.parametrize("text", ["", ",", "vms", "=1", "vms=1,", f"{GEOMETRY},", f",{GEOMETRY}", f"{GEOMETRY},a=b=c"])
def test_a_text_of_another_form(text: str) -> None:
    with pytest.raises(ValueError, match="not a vjob geometry"):
        Geometry.parse(text)


@pytest.mark.parametrize(
    ("text", "wishes"),
    [
        ("spread=1", {"spread"}),
        ("exclusive=user,spread=1", {"spread", "exclusive"}),
        ("spread=1,exclusive=yes", {"spread", "alone"}),
        ("exclusive=mcs", {"labelled"}),
    ],
)
def test_wishes_are_read_and_written(text: str, wishes: set[str]) -> None:
    found = Geometry.parse(f"{GEOMETRY},{text}")
    assert found.wishes == wishes
    assert Geometry.parse(str(found)) == found
    assert GEOMETRY.wishes == frozenset()


def test_the_most_switches_are_read_and_written() -> None:
    found = Geometry.parse(f"{GEOMETRY},switches=2,spread=1")
    assert (found.switches, found.wishes, found.wishing) == (2, {"spread"}, True)
    assert Geometry.parse(str(found)) == found
    assert (GEOMETRY.switches, GEOMETRY.wishing) == (0, False)
    for text in ("0", "-1", "1000000", "2@10", ""):
        with pytest.raises(ValueError, match=r"switches cannot be|not a vjob geometry"):
            Geometry.parse(f"{GEOMETRY},switches={text}")


@pytest.mark.parametrize("text", ["spread=2", "exclusive=topo", "exclusive="])
def test_a_wish_that_only_a_newer_release_knows_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="made by a newer release"):
        Geometry.parse(f"{GEOMETRY},{text}")
