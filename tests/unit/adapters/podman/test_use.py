"""What a container has used, by control groups of both versions as files, over its saves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit.adapters.podman.test_groups import CONTAINER, VM, fill

from rmsplugin.adapters.platform.podman.on_node import acts, state_file, use
from rmsplugin.adapters.platform.podman.on_node.groups import Group
from rmsplugin.adapters.platform.podman.on_node.use import Use

MIB = 1 << 20


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where agents note what they know."""
    directory = tmp_path / "known"
    monkeypatch.setattr(acts, "DIRECTORY", directory)
    return directory


def group_of(root: Path, version: int, used_mib: int = 40) -> Group:
    """A container that has computed for 5 s, and uses so much memory besides 9 MiB of caches."""
    current = f"{(used_mib + 9) * MIB}\n"
    if version == 2:
        root.mkdir(exist_ok=True)
        (root / "cgroup.controllers").write_text("cpu memory\n")
        fill(root, 2, "", CONTAINER, cpu__stat="usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n")
        fill(root, 2, "", CONTAINER, memory__current=current, memory__peak=f"{70 * MIB}\n", cgroup__procs="11\n12\n")
        fill(root, 2, "", CONTAINER, memory__stat=f"active_file {2 * MIB}\ninactive_file {7 * MIB}\n")
        return Group(VM, root)
    times = {"cpuacct__usage": "5000000000", "cpuacct__usage_user": "4000000000", "cpuacct__usage_sys": "1000000000"}
    fill(root, 1, "cpuacct", CONTAINER, **times)
    fill(root, 1, "freezer", CONTAINER, cgroup__procs="11\n12\n")
    sizes = {"memory__usage_in_bytes": current, "memory__max_usage_in_bytes": f"{70 * MIB}\n"}
    stat = f"active_file 1\ntotal_active_file {2 * MIB}\ntotal_inactive_file {7 * MIB}\n"
    fill(root, 1, "memory", CONTAINER, **sizes, memory__stat=stat)
    return Group(VM, root)


def processes(proc: Path) -> Path:
    """One of a user's, and one of root's."""
    for pid, owner in (("11", 1000), ("12", 0)):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "io").write_text("rchar: 30\nwchar: 20\nsyscr: 1\nread_bytes: 0\n")
        os.chown(proc / pid, owner, owner)
    return proc


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a process of a user's")
@pytest.mark.parametrize("version", [1, 2])
def test_a_container_has_used_what_its_groups_and_its_users_processes_say(tmp_path: Path, version: int) -> None:
    group = group_of(tmp_path / "groups", version)
    used = use.of(VM, group, processes(tmp_path / "proc"))
    assert used == Use(5_000_000, 4_000_000, 1_000_000, 40 * MIB, 70 * MIB, 30, 20)


@pytest.mark.parametrize("version", [1, 2])
def test_a_restored_container_goes_on_counting_where_its_state_was_saved(tmp_path: Path, version: int) -> None:
    group = group_of(tmp_path / "groups", version)
    state = tmp_path / "state"
    state.write_bytes(b"exported")
    state_file.add(state, VM, "ab" * 32, Use(2_000_000, 1_500_000, 500_000, 90 * MIB, 95 * MIB, 7, 8))
    use.begin(VM, state_file.require(state, VM).use)
    used = use.of(VM, group, tmp_path / "nowhere")
    assert used == Use(7_000_000, 5_500_000, 1_500_000, 90 * MIB, 95 * MIB, 7, 8)
    use.begin(VM, Use())
    assert use.of(VM, group, tmp_path / "nowhere").cpu_us == 5_000_000, "one that starts anew begins anew"


def test_the_most_memory_is_the_most_that_was_seen(tmp_path: Path) -> None:
    use.begin(VM, Use(cpu_us=3))
    for used_mib in (40, 60, 20):
        group = group_of(tmp_path / "groups", 1, used_mib)
        use.see(VM, group)
    used = use.of(VM, group, tmp_path / "nowhere")
    assert (used.cpu_us, used.memory_bytes) == (5_000_003, 60 * MIB)


def test_a_state_of_an_older_release_says_nothing_of_use() -> None:
    for said in (None, {"cpu_us": 5}, {"cpu_us": "x"}, 7, {**Use()._asdict(), "read_bytes": -1}):
        assert Use.of(said) == Use()
    assert Use.of(Use(1, 2, 3)._asdict()) == Use(1, 2, 3)


def test_nothing_of_a_forgotten_container_is_left(known: Path) -> None:
    use.begin(VM, Use(1))
    (known / f"{VM}.use.77").write_text("half")
    acts.forget(VM)
    assert list(known.iterdir()) == []
