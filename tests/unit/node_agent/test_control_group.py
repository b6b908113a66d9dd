"""The node agent's control group, on trees of files as kernels of both versions show them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.libvirt.on_node.half import LibvirtOnNode
from rmsplugin.node_agent import control_group
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.memory_controllers import MIB, Version1, Version2

ON_NODE = LibvirtOnNode()
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
NAMED = "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
CPUSET = "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"


PRESSURE = "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def host(root: Path, mounts: str) -> Path:
    for name, text in (("proc/self/mountinfo", mounts), ("proc/pressure/memory", PRESSURE)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def write(group: Path, **values: object) -> Path:
    """Files of a control group; underscores stand for dots before the last part, as kernels name them."""
    group.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (group / name.replace("__", ".")).write_text(f"{value}\n")
    return group


def version1(root: Path, used_mib: int = 100, under_oom: int = 0, files_mib: int = 50) -> Path:
    host(root, V1 + NAMED)
    return write(
        root / "sys/fs/cgroup/memory/rmsplugin.partition",
        memory__limit_in_bytes=9223372036854771712,
        memory__usage_in_bytes=used_mib * MIB,
        memory__oom_control=f"oom_kill_disable 0\nunder_oom {under_oom}",
        memory__stat=f"total_active_file 0\ntotal_inactive_file {files_mib * MIB}",
        memory__swappiness=60,
    )


def version2(root: Path, used_mib: int = 100) -> Path:
    host(root, V2)
    write(root / "sys/fs/cgroup", cgroup__controllers="cpu memory pids", cgroup__subtree_control="cpu")
    return write(
        root / "sys/fs/cgroup/rmsplugin.partition",
        memory__max="max",
        memory__high="max",
        memory__current=used_mib * MIB,
        memory__swap__max="max",
    )


def vm(group: Path, name: str, used_mib: int, under_oom: int = 0) -> Path:
    return write(
        group / name,
        memory__usage_in_bytes=used_mib * MIB,
        memory__current=used_mib * MIB,
        memory__oom_control=f"under_oom {under_oom}",
        memory__limit_in_bytes=9223372036854771712,
        memory__high="max",
        memory__stat="total_active_file 0",
    )


def number(path: Path) -> int:
    return int(path.read_text()) // MIB


def test_hosts_without_what_a_bound_needs_are_not_bounded_and_say_why(tmp_path: Path) -> None:
    for number_, (mounts, why) in enumerate(
        (
            (NAMED, "no control groups with a memory controller are mounted"),
            (V2, "no control groups with a memory controller are mounted"),
        )
    ):
        root = host(tmp_path / str(number_), mounts)
        write(root / "sys/fs/cgroup", cgroup__controllers="cpu pids")
        report = control_group.bound(100, ON_NODE, root)
        assert (report["bounded"], report["why"], report["limit_mib"]) == (False, why, None)
        assert report["pressure"] == 1.5


def test_a_libvirt_that_leaves_memory_alone_bounds_nothing(tmp_path: Path) -> None:
    version1(tmp_path)
    qemu_conf = tmp_path / "etc/libvirt/qemu.conf"
    qemu_conf.parent.mkdir(parents=True)
    qemu_conf.write_text('cgroup_controllers = [ "cpu", "cpuset" ]\n')
    assert "cgroup_controllers" in control_group.bound(100, ON_NODE, tmp_path)["why"]
    qemu_conf.write_text('#cgroup_controllers = [ "cpu" ]\ncgroup_controllers = [ "cpu", "memory" ]\n')
    assert control_group.bound(500, ON_NODE, tmp_path)["bounded"]


def test_nothing_is_made_when_only_asked(tmp_path: Path) -> None:
    host(tmp_path, V1)
    write(tmp_path / "sys/fs/cgroup/memory")
    report = control_group.bound(0, ON_NODE, tmp_path)
    assert (report["bounded"], report["why"]) == (False, "")
    assert not (tmp_path / "sys/fs/cgroup/memory/rmsplugin.partition").exists()


def test_version_1_lets_wait_and_does_not_swap(tmp_path: Path) -> None:
    group = version1(tmp_path)
    report = control_group.bound(500, ON_NODE, tmp_path)
    assert report == {
        "bounded": True, "why": "", "limit_mib": 500, "used_mib": 100, "waits": False, "waiting": [],
        "pressure": 1.5,
    }  # fmt: skip
    assert (group / "memory.oom_control").read_text() == "1"
    assert (group / "memory.swappiness").read_text() == "0"
    assert control_group.bound(0, ON_NODE, tmp_path)["limit_mib"] == 500


@pytest.mark.parametrize(
    ("group", "vm"),
    [
        ("qemu-3-vjob12-0.libvirt-qemu", "vjob12-0"),
        ("machine-qemu\\x2d3\\x2dvjob12\\x2d0.scope", "vjob12-0"),
        ("qemu-1-other.libvirt-qemu", ""),
    ],
)
def test_the_vm_of_a_group_is_told_by_how_libvirt_and_systemd_name_it(group: str, vm: str) -> None:
    assert control_group._vm_of(Path(group)) == vm


def test_version_1_has_the_group_in_each_hierarchy_that_libvirt_uses(tmp_path: Path) -> None:
    version1(tmp_path)
    host(tmp_path, V1 + NAMED + CPUSET)
    write(tmp_path / "sys/fs/cgroup/cpuset", cpuset__cpus="0-3", cpuset__mems="0")
    (tmp_path / "sys/fs/cgroup/systemd").mkdir()
    control_group.bound(500, ON_NODE, tmp_path)
    made = tmp_path / "sys/fs/cgroup/cpuset/rmsplugin.partition"
    assert [(made / name).read_text() for name in ("cpuset.cpus", "cpuset.mems")] == ["0-3\n", "0\n"]
    assert not list((tmp_path / "sys/fs/cgroup/systemd").iterdir())


def test_version_1_shows_who_waits_before_the_kernel_says_so(tmp_path: Path) -> None:
    group = version1(tmp_path, used_mib=500, files_mib=2)
    assert control_group.bound(500, ON_NODE, tmp_path)["waits"], "all that is left are the pages of its programs"
    write(group, memory__stat=f"total_active_file {30 * MIB}\ntotal_inactive_file {30 * MIB}")
    assert not control_group.bound(0, ON_NODE, tmp_path)["waits"], "files can be let go of"
    version1(tmp_path / "later", used_mib=10, under_oom=1)
    (tmp_path / "later/sys/fs/cgroup/memory/rmsplugin.partition/memory.limit_in_bytes").write_text(str(500 * MIB))
    assert control_group.bound(0, ON_NODE, tmp_path / "later")["waits"]


def test_a_limit_that_the_kernel_refuses_is_told_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version1(tmp_path, used_mib=300)
    write_text = Path.write_text

    def busy(path: Path, text: str) -> int:
        if path.name == "memory.limit_in_bytes":
            raise OSError(16, "Device or resource busy")
        return write_text(path, text)

    monkeypatch.setattr(Path, "write_text", busy)
    with pytest.raises(AgentError, match="300 MiB are used, which cannot be made 200") as failure:
        control_group.bound(200, ON_NODE, tmp_path)
    assert failure.value.kind == "failed"


def test_version_2_holds_up_before_the_bound_and_does_not_swap(tmp_path: Path) -> None:
    group = version2(tmp_path)
    report = control_group.bound(1600, ON_NODE, tmp_path)
    assert (report["limit_mib"], report["used_mib"], report["waits"]) == (1600, 100, False)
    assert (number(group / "memory.max"), number(group / "memory.high")) == (1600, 1550)
    assert (group / "memory.swap.max").read_text() == "0"
    assert (tmp_path / "sys/fs/cgroup/cgroup.subtree_control").read_text() == "+memory"


def test_version_2_never_lowers_the_bound_below_what_is_used_for_the_kernel_would_kill(tmp_path: Path) -> None:
    group = version2(tmp_path, used_mib=300)
    control_group.bound(400, ON_NODE, tmp_path)
    high = (group / "memory.high").read_text()
    with pytest.raises(AgentError, match="300 MiB are used"):
        control_group.bound(200, ON_NODE, tmp_path)
    assert (number(group / "memory.max"), (group / "memory.high").read_text()) == (400, high)


def test_version_2_shows_who_is_held_up(tmp_path: Path) -> None:
    group = version2(tmp_path, used_mib=390)
    assert control_group.bound(400, ON_NODE, tmp_path)["waits"]
    write(group, memory__current=100 * MIB)
    assert not control_group.bound(0, ON_NODE, tmp_path)["waits"]


def test_vms_have_shares_of_what_is_left(tmp_path: Path) -> None:
    group = version1(tmp_path, used_mib=300)
    one, two = vm(group, "one", 100), vm(group, "two", 200)
    control_group.bound(400, ON_NODE, tmp_path)
    assert [number(each / "memory.limit_in_bytes") for each in (one, two)] == [150, 250]
    vm(group, "two", 200, under_oom=1)
    assert control_group.bound(400, ON_NODE, tmp_path)["waits"]
    assert [number(each / "memory.limit_in_bytes") for each in (one, two)] == [116, 284]


def test_version_2_holds_up_vms_at_their_shares_and_kills_none(tmp_path: Path) -> None:
    group = version2(tmp_path, used_mib=300)
    one, two = vm(group, "one", 100), vm(group, "two", 200)
    control_group.bound(400, ON_NODE, tmp_path)
    assert [number(each / "memory.high") for each in (one, two)] == [150, 250]
    assert not (one / "memory.max").exists()


@pytest.mark.parametrize("limit", [0, 299, 300, 303, 333, 1000])
@pytest.mark.parametrize("more", [None, 0, 1, 10, 500])
def test_shares_are_never_more_together_than_the_bound_and_never_less_than_what_is_used(
    limit: int, more: int | None
) -> None:
    limit *= MIB
    used = {Path(name): taken * MIB for name, taken in (("a", 0), ("b", 100), ("c", 200))}
    now = {vm: None if more is None else taken + more * MIB for vm, taken in used.items()}
    for waiting in ([], [Path("a")], [Path("b"), Path("c")], list(used)):
        given = control_group.shares(used, now, waiting, limit)
        assert sum(given.values()) <= max(limit, 300 * MIB)
        assert all(given[name] >= taken for name, taken in used.items())
    assert control_group.shares({}, {}, [], limit) == {}


@pytest.mark.parametrize("version", [version1, version2])
@pytest.mark.parametrize("step_mib", [1, 3, 7, 100])
def test_a_vm_that_takes_all_it_can_leaves_the_others_their_part_however_often_the_node_is_asked(
    tmp_path: Path, version: Callable[..., Path], step_mib: int
) -> None:
    group = version(tmp_path, used_mib=200)
    eater, calm = vm(group, "eater", 100), vm(group, "calm", 100)
    taken = 100
    for _ in range(60):
        control_group.bound(240, ON_NODE, tmp_path)
        share = min(number(eater / name) for name in ("memory.limit_in_bytes", "memory.high") if limited(eater / name))
        taken = min(taken + step_mib, share)
        use(eater, taken)
        use(group, taken + 100)
    assert 240 - 100 - taken == 16, "all but the part of the calm one is taken"
    assert 116 in {number(calm / name) for name in ("memory.limit_in_bytes", "memory.high") if limited(calm / name)}


def test_a_vm_that_comes_where_little_is_left_gets_its_part_of_what_nobody_has_taken(tmp_path: Path) -> None:
    group = version1(tmp_path, used_mib=200)
    eater, calm = vm(group, "eater", 100), vm(group, "calm", 100)
    control_group.bound(232, ON_NODE, tmp_path)
    use(eater, 110)
    new = vm(group, "new", 0)
    control_group.bound(232, ON_NODE, tmp_path)
    shares = [number(each / "memory.limit_in_bytes") for each in (eater, calm, new)]
    assert shares == [116, 108, 8]


def limited(path: Path) -> bool:
    return path.read_text().strip() not in ("max", "9223372036854771712")


def use(group: Path, mib: int) -> None:
    write(group, memory__usage_in_bytes=mib * MIB, memory__current=mib * MIB)


@pytest.mark.parametrize("version", [Version1, Version2])
def test_systemd_is_told_the_limit_and_makes_the_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: type
) -> None:
    group = version1(tmp_path) if version is Version1 else version2(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    tools, said = tmp_path / "tools", tmp_path / "said"
    tools.mkdir()
    (tools / "systemctl").write_text(
        f'#!/bin/sh\necho "$*" >>{said}\n[ "$2" != start ] || mv {group} {group.with_name("rmsplugin.slice")}\n'
    )
    (tools / "systemctl").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert control_group.bound(1600, ON_NODE, tmp_path)["limit_mib"] == 1600
    words = said.read_text()
    assert "start rmsplugin.slice" in words
    limit = f"MemoryLimit={1600 * MIB}" if version is Version1 else f"MemoryHigh={1550 * MIB} MemoryMax={1600 * MIB}"
    assert limit in words.splitlines()[-1]
    (tools / "systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    with pytest.raises(AgentError, match="systemctl set-property: no bus"):
        control_group.bound(1600, ON_NODE, tmp_path)


def test_a_kernel_that_does_not_count_pressure_has_none(tmp_path: Path) -> None:
    host(tmp_path, NAMED)
    (tmp_path / "proc/pressure/memory").unlink()
    assert control_group.bound(0, ON_NODE, tmp_path)["pressure"] is None
