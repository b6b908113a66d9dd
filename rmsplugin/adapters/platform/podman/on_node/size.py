"""Size: the CPUs and the memory that its control groups let a container use, changed while it runs.

Podman goes on knowing the size with which the container was made. A state is restored with that one, and the agent sets
the other one before the container goes on.
"""

from __future__ import annotations

import errno
from pathlib import Path

from rmsplugin.adapters.platform.podman.on_node.groups import Group
from rmsplugin.errors import OperationFailedError

_PERIOD_US = 100_000
_USES_MORE = "it uses more memory than that"


def cpus(group: Group) -> int | None:
    """The CPUs that the container may use, a part of one counted as one; None: all, or nobody knows."""
    quota, period = _quota(group)
    return -(-int(quota) // int(period)) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _quota(group: Group) -> tuple[str, str]:
    """Microseconds of CPU time in each period, and the period; as the kernel writes them."""
    if group.version_2:
        words = [*group.text("cpu", "cpu.max").split(), "", ""]
        return words[0], words[1]
    return group.text("cpu", "cpu.cfs_quota_us").strip(), group.text("cpu", "cpu.cfs_period_us").strip()


def set_cpus(group: Group, wanted: int) -> None:
    """Let the container use so many CPUs.

    Raises:
        OperationFailedError: its groups cannot bound that.
    """
    directory = _directory(group, "cpu")
    quota = str(wanted * _PERIOD_US)
    if group.version_2:
        _write(directory / "cpu.max", f"{quota} {_PERIOD_US}")
        return
    _write(directory / "cpu.cfs_period_us", str(_PERIOD_US))
    _write(directory / "cpu.cfs_quota_us", quota)


def set_memory(group: Group, wanted_mib: int) -> None:
    """Let the container use so much memory, and no swap besides.

    The kernel takes back files' pages that can be dropped, and nothing else: if the container uses more than
    ``wanted_mib`` all the same, its size is as before.

    Raises:
        OperationFailedError: it uses more, or its groups cannot bound that.
    """
    directory, size = _directory(group, "memory"), str(wanted_mib << 20)
    (_set_version_2 if group.version_2 else _set_version_1)(directory, size)


def _set_version_1(directory: Path, size: str) -> None:
    """The kernel refuses less than is used. The bound with swap is never less than the one without."""
    memory, with_swap = directory / "memory.limit_in_bytes", directory / "memory.memsw.limit_in_bytes"
    before, counts_swap = _read(memory), with_swap.exists()
    if counts_swap and int(size) > int(before):
        _write(with_swap, size)
    _write(memory, size)
    if counts_swap and int(size) < int(before):
        try:
            _write(with_swap, size)
        except OperationFailedError:
            _write(memory, before)
            raise


def _set_version_2(directory: Path, size: str) -> None:
    """The kernel would end processes for less than is used. ``memory.high`` takes back what it can, and ends none."""
    high = directory / "memory.high"
    before = _read(high)
    _write(high, size)
    try:
        if int(_read(directory / "memory.current")) > int(size):
            raise OperationFailedError(_USES_MORE)
        _write(directory / "memory.max", size)
    finally:
        _write(high, before)


def _directory(group: Group, controller: str) -> Path:
    found = group.directory(controller)
    if found is None:
        raise OperationFailedError(f"the container has no control group of {controller}")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise OperationFailedError(f"{path.name} of the container: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        busy = error.errno == errno.EBUSY
        raise OperationFailedError(_USES_MORE if busy else f"{path.name} of the container: {error.strerror}") from None
