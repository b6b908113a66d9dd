"""The control groups of containers in a hierarchy of version 2 of this kernel: found, frozen, counted, ended, removed.

Version 2 can be mounted beside version 1. Its memory controller is not there then: its files are in the unit tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.podman.on_node import groups
from rmsplugin.adapters.platform.podman.on_node.groups import Group

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount control groups")

VM = "vjob7-0"
#: Counts in a file as fast as it can.
_COUNTS = "import itertools, os, sys\nfor i in itertools.count():\n os.pwrite(1, b'%20d' % i, 0)"
#: Starts others for as long as it lives.
_FORKS = "import os, time\nwhile True:\n os.fork() or time.sleep(600)\n time.sleep(.001)"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A group of version 2 that is the root of a node's."""
    mounted = tmp_path / "cgroup"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", mounted], check=True)
    root = mounted / f"rmsplugin-test-{os.getpid()}"
    try:
        root.mkdir()
        yield root
    finally:
        (root / "cgroup.kill").write_text("1")
        while "populated 1" in (root / "cgroup.events").read_text():
            time.sleep(0.01)
        for each in sorted((Path(place) for place, _, _ in os.walk(root)), reverse=True):
            each.rmdir()
        subprocess.run(["umount", mounted], check=True)


def run_in(root: Path, group: str, program: str, output: Path) -> subprocess.Popen[bytes]:
    """A program in a group, as runc starts one there."""
    directory = root / groups.PARENT / VM / group
    directory.mkdir(parents=True, exist_ok=True)

    def enter() -> None:
        (directory / "cgroup.procs").write_text(str(os.getpid()))

    with output.open("wb") as file:
        return subprocess.Popen([sys.executable, "-c", program], stdout=file, preexec_fn=enter)


@pytest.fixture
def counter(root: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = run_in(root, "libpod-0123", _COUNTS, tmp_path / "count")
    yield process
    assert Group(VM, root).kill(PATIENCE_S)
    process.wait(PATIENCE_S)


def count(tmp_path: Path) -> int:
    return int((tmp_path / "count").read_text() or 0)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_vm_is_found_by_its_group(root: Path, counter: subprocess.Popen[bytes]) -> None:
    assert Group(VM, root).version_2
    assert groups.names(root) == [VM]
    assert Group(VM, root).processes() == [counter.pid]


def test_a_vm_that_is_frozen_stands_still_until_it_is_let_go_on(
    root: Path, tmp_path: Path, counter: subprocess.Popen[bytes]
) -> None:
    group = Group(VM, root)
    eventually(lambda: count(tmp_path) > 0)
    assert group.freeze(PATIENCE_S) and group.is_frozen()
    stood = count(tmp_path)
    time.sleep(0.2)
    assert count(tmp_path) == stood
    group.thaw()
    assert not group.is_frozen()
    eventually(lambda: count(tmp_path) > stood)


def test_the_time_of_cpus_is_counted(root: Path, tmp_path: Path, counter: subprocess.Popen[bytes]) -> None:
    group = Group(VM, root)
    eventually(lambda: all(group.cpu_times_us()))  # the kernel tells user and system apart by its ticks
    assert group.freeze(PATIENCE_S)
    used_us, user_us, system_us = group.cpu_times_us()
    assert used_us == (group.cpu_time_ns() or 0) // 1000
    assert user_us > 0 and system_us > 0 and abs(used_us - user_us - system_us) <= 2
    assert group.cpu_delay_ns() is not None
    assert group.memory_kib() == (None, None), "its controller is one of version 1 here"


def test_a_frozen_vm_is_ended_with_all_that_it_starts_and_its_groups_go(root: Path, tmp_path: Path) -> None:
    process = run_in(root, "libpod-0123", _FORKS, tmp_path / "forks")
    group = Group(VM, root)
    eventually(lambda: len(group.processes()) > 5)
    assert group.freeze(PATIENCE_S)
    assert group.kill(PATIENCE_S)
    process.wait(PATIENCE_S)
    eventually(lambda: group.processes() == [])
    assert groups.names(root) == []
    group.remove()
    assert not (root / groups.PARENT / VM).exists()
