"""Control groups of both versions, as files: which VMs are here, whether they stand still, and what they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmsplugin.adapters.platform.podman.on_node import groups
from rmsplugin.adapters.platform.podman.on_node.groups import Group

VM = "vjob7-0"
CONTAINER = f"rmsplugin/{VM}/libpod-0123"


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, tmp_path: Path) -> int:
    if request.param == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    return int(request.param)


def fill(root: Path, version: int, controller: str, group: str, **files: str) -> None:
    directory = (root if version == 2 else root / controller) / group
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_vms_are_the_groups_in_which_something_runs(tmp_path: Path, version: int) -> None:
    assert groups.names(tmp_path) == []
    fill(tmp_path, version, "freezer", CONTAINER, cgroup__procs="11\n12\n")
    fill(tmp_path, version, "freezer", f"{CONTAINER}/made-by-the-user", cgroup__procs="13\n")
    fill(tmp_path, version, "freezer", f"rmsplugin/{VM}/conmon", cgroup__procs="10\n")
    fill(tmp_path, version, "freezer", "rmsplugin/vjob8-0/libpod-99", cgroup__procs="")
    fill(tmp_path, version, "freezer", "rmsplugin/vjob8-0/conmon", cgroup__procs="20\n")
    fill(tmp_path, version, "freezer", "rmsplugin/other/libpod-98", cgroup__procs="30\n")
    assert groups.names(tmp_path) == [VM]
    assert sorted(Group(VM, tmp_path).processes()) == [11, 12, 13]
    assert Group("vjob8-0", tmp_path).processes() == Group("vjob9-0", tmp_path).processes() == []


def test_a_vm_is_frozen_and_let_go_on_by_its_group(tmp_path: Path, version: int) -> None:
    group = Group(VM, tmp_path)
    assert not group.is_frozen()
    group.thaw()  # nothing is there
    files = {"freezer__state": "THAWED", "cgroup__freeze": "0", "cgroup__events": "frozen 0"}
    fill(tmp_path, version, "freezer", CONTAINER, **files)
    assert not group.is_frozen()
    if version == 1:
        assert group.freeze(1) and group.is_frozen()
        group.thaw()
        assert not group.is_frozen()
        return
    file = tmp_path / CONTAINER / "cgroup.freeze"
    assert not group.freeze(0.01), "the kernel says when all stand still, and not what it was told"
    assert file.read_text() == "1"
    (tmp_path / CONTAINER / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert group.freeze(1)
    group.thaw()
    assert file.read_text() == "0"


@pytest.mark.parametrize(
    ("state", "told", "seen"), [("THAWED", "0", "0"), ("FREEZING", "1", "0"), ("FROZEN", "1", "1")]
)
def test_a_vm_some_of_whose_processes_wait_for_storage_is_told_to_stand_still(
    tmp_path: Path, version: int, state: str, told: str, seen: str
) -> None:
    assert not Group(VM, tmp_path).is_told_to_stand_still(), "it is not there"
    files = {"freezer__state": f"{state}\n", "cgroup__freeze": f"{told}\n", "cgroup__events": f"frozen {seen}\n"}
    fill(tmp_path, version, "freezer", CONTAINER, **files)
    assert Group(VM, tmp_path).is_told_to_stand_still() == (told == "1")
    assert Group(VM, tmp_path).is_frozen() == (seen == "1")


def test_counters(tmp_path: Path, version: int) -> None:
    group = Group(VM, tmp_path)
    assert (group.cpu_time_ns(), group.cpu_delay_ns(), group.memory_kib()) == (None, None, (None, None))
    mib = 1 << 20
    if version == 1:
        fill(tmp_path, 1, "cpuacct", CONTAINER, cpuacct__usage="5000\n")
        stat = f"inactive_file 1\ntotal_inactive_file {3 * mib}\n"
        files = {"memory__usage_in_bytes": f"{10 * mib}\n", "memory__limit_in_bytes": f"{64 * mib}\n"}
        fill(tmp_path, 1, "memory", CONTAINER, **files, memory__stat=stat)
    else:
        fill(tmp_path, 2, "", CONTAINER, cpu__stat="usage_usec 5\nuser_usec 4\n", memory__current=f"{10 * mib}\n")
        pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 total=3\n"
        fill(tmp_path, 2, "", CONTAINER, cpu__pressure=pressure, memory__max=f"{64 * mib}\n")
        fill(tmp_path, 2, "", CONTAINER, memory__stat=f"inactive_file {3 * mib}\n")
    assert group.cpu_time_ns() == 5000
    assert group.cpu_delay_ns() == (None if version == 1 else 7000)
    assert group.memory_kib() == (7 * 1024, 64 * 1024)


def test_a_group_of_which_more_is_taken_back_than_it_has_takes_nothing(tmp_path: Path) -> None:
    files = {"memory__usage_in_bytes": "1000\n", "memory__limit_in_bytes": "2048\n"}
    fill(tmp_path, 1, "memory", CONTAINER, **files, memory__stat="total_inactive_file 5000\n")
    assert Group(VM, tmp_path).memory_kib() == (0, 2)


def test_empty_groups_are_removed_and_others_stay(tmp_path: Path) -> None:
    for controller in ("freezer", "memory"):
        fill(tmp_path, 1, controller, CONTAINER)
        fill(tmp_path, 1, controller, "rmsplugin/vjob8-0/libpod-99")
    Group(VM, tmp_path).remove()
    assert sorted(path.name for path in tmp_path.glob("*/rmsplugin/*")) == ["vjob8-0", "vjob8-0"]
