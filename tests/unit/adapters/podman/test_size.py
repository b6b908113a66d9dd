"""The size of a container that runs, by control groups of both versions, as files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.podman.on_node import size
from rmsplugin.adapters.platform.podman.on_node.groups import Group
from rmsplugin.errors import OperationFailedError

VM = "vjob7-0"
CONTAINER = f"rmsplugin/{VM}/libpod-0123"
MIB = 1 << 20
#: The files of a container of two CPUs and 64 MiB that uses 40.
FILES = {
    1: {
        "cpu/cpu.cfs_quota_us": "200000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": f"{64 * MIB}\n",
        "memory/memory.memsw.limit_in_bytes": f"{64 * MIB}\n",
    },
    2: {
        "cpu.max": "200000 100000\n",
        "memory.max": f"{64 * MIB}\n",
        "memory.high": "max\n",
        "memory.current": f"{40 * MIB}\n",
    },
}


class Kernel:
    """The files of control groups, and the order in which they are written."""

    def __init__(self, root: Path, version: int) -> None:
        self.root = root
        self.version = version
        self.written: list[tuple[str, str]] = []
        self.refused: dict[str, int] = {}  # by name of a file, the number of the error with which it is not written
        if version == 2:
            (root / "cgroup.controllers").write_text("cpu memory\n")
        for name, text in FILES[version].items():
            self._path(name).parent.mkdir(parents=True, exist_ok=True)
            self._path(name).write_text(text)

    def _path(self, name: str) -> Path:
        controller, _, file = name.rpartition("/")
        return self.root / controller / CONTAINER / file

    def write(self, path: Path, text: str) -> None:
        if path.name in self.refused:
            raise OSError(self.refused[path.name], "refused")
        self.written.append((path.name, text))
        with path.open("w") as file:
            file.write(text)

    def text(self, name: str) -> str:
        return self._path(name).read_text()

    def drop(self, name: str) -> None:
        self._path(name).unlink()

    @property
    def group(self) -> Group:
        return Group(VM, self.root)


@pytest.fixture(params=[1, 2])
def kernel(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path, request.param)
    monkeypatch.setattr(Path, "write_text", lambda path, text: kernel.write(path, text))
    return kernel


def test_cpus_are_bounded_and_seen(kernel: Kernel) -> None:
    assert size.cpus(kernel.group) == 2
    size.set_cpus(kernel.group, 1)
    assert size.cpus(kernel.group) == 1
    size.set_cpus(kernel.group, 2)
    assert size.cpus(kernel.group) == 2


def test_cpus_that_nobody_bounds_are_not_told(kernel: Kernel) -> None:
    name, text = ("cpu/cpu.cfs_quota_us", "-1\n") if kernel.version == 1 else ("cpu.max", "max 100000\n")
    kernel.write(kernel._path(name), text)
    assert size.cpus(kernel.group) is None
    assert size.cpus(Group("vjob8-0", kernel.root)) is None
    with pytest.raises(OperationFailedError, match="no control group of cpu"):
        size.set_cpus(Group("vjob8-0", kernel.root), 1)


def test_a_bound_with_swap_is_never_less_than_the_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, 1)
    monkeypatch.setattr(Path, "write_text", lambda path, text: kernel.write(path, text))
    size.set_memory(kernel.group, 48)
    size.set_memory(kernel.group, 64)
    order = [(name.split(".")[1], int(text) // MIB) for name, text in kernel.written]
    assert order == [("limit_in_bytes", 48), ("memsw", 48), ("memsw", 64), ("limit_in_bytes", 64)]
    kernel.refused["memory.memsw.limit_in_bytes"] = errno.EBUSY
    with pytest.raises(OperationFailedError, match="uses more memory"):
        size.set_memory(kernel.group, 48)
    assert int(kernel.text("memory/memory.limit_in_bytes")) == 64 * MIB
    kernel.drop("memory/memory.memsw.limit_in_bytes")  # a kernel that does not count swap
    size.set_memory(kernel.group, 48)
    assert int(kernel.text("memory/memory.limit_in_bytes")) == 48 * MIB


def test_memory_is_taken_back_before_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2: to write less than is used to ``memory.max`` would end a process."""
    kernel = Kernel(tmp_path, 2)
    monkeypatch.setattr(Path, "write_text", lambda path, text: kernel.write(path, text))
    size.set_memory(kernel.group, 48)
    high, most = f"{48 * MIB}", "max"
    assert kernel.written == [("memory.high", high), ("memory.max", high), ("memory.high", most)]


def test_less_memory_than_is_used_is_refused_and_all_is_as_before(kernel: Kernel) -> None:
    before = {name: kernel.text(name).strip() for name in FILES[kernel.version]}
    if kernel.version == 1:
        kernel.refused["memory.limit_in_bytes"] = errno.EBUSY
    with pytest.raises(OperationFailedError, match="uses more memory"):
        size.set_memory(kernel.group, 32)
    assert {name: kernel.text(name).strip() for name in FILES[kernel.version]} == before
    assert "memory.max" not in [name for name, _ in kernel.written]


def test_another_fault_is_told_as_it_is(kernel: Kernel) -> None:
    name = "memory.limit_in_bytes" if kernel.version == 1 else "memory.high"
    kernel.refused[name] = errno.EPERM
    with pytest.raises(OperationFailedError, match=f"{name} of the container: refused"):
        size.set_memory(kernel.group, 48)
