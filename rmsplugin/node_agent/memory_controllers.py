"""Memory controllers: a control group's limit and what it holds, in the files of version 1 and of version 2."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rmsplugin.node_agent.errors import AgentError

MIB = 1 << 20

#: Version 1 says of a group without a limit that it has nearly this one.
_NO_LIMIT_BYTES = 1 << 62

#: What a hypervisor process needs of its program, more or less, to get on.
_PROGRAMS = 4 * MIB


class Controller(Protocol):
    """The memory of one control group. Sizes are bytes; files that cannot be written raise OSError."""

    #: Where libvirt and systemd look for groups of this version.
    top: Path
    group: Path

    def make(self) -> None:
        """Make the group if it is not there; the host's swap is not for it."""
        ...

    def set_limit(self, limit: int) -> None:
        """Let the group take at most so much; what it has beyond is reclaimed, and else AgentError is raised."""
        ...

    def set_share(self, member: Path, share: int) -> None:
        """Let a group of this group take at most so much of its limit."""
        ...

    def limit(self) -> int | None:
        """What the group may take at most; None for all, or no group."""
        ...

    def used(self, group: Path) -> int:
        """What this or a group of it takes."""
        ...

    def waits(self, group: Path) -> bool:
        """Whether somebody in this or a group of it waits for memory."""
        ...

    def properties(self, limit: int) -> list[str]:
        """The same limit as systemd calls it, which else sets its own now and then."""
        ...


class Version1:
    """A group whose processes wait at its limit for the pages that they touch; nobody is killed.

    But what the kernel needs for their system calls is refused there, and a hypervisor process may not survive that.
    """

    def __init__(self, top: Path, name: str, others: Sequence[Path] = ()) -> None:
        """``others``: the hierarchies of other controllers, in which libvirt wants the group, too."""
        self.top, self.group, self._others = top, top / name, others

    def make(self) -> None:
        """See ``Controller``. Groups below inherit what is set here when they are made."""
        for other in self._others:
            (other / self.group.name).mkdir(mode=0o755, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # nothing runs in one without
                if (other / name).exists():
                    (other / self.group.name / name).write_text((other / name).read_text())
        self.group.mkdir(mode=0o755, exist_ok=True)
        self._write("memory.swappiness", "0")
        self._write("memory.oom_control", "1")

    def set_limit(self, limit: int) -> None:
        """See ``Controller``."""
        try:
            self._write("memory.limit_in_bytes", str(limit))
        except OSError as error:  # EBUSY; the old limit stays
            raise _too_much(self.used(self.group), limit) from error

    def set_share(self, member: Path, share: int) -> None:
        """See ``Controller``."""
        (member / "memory.limit_in_bytes").write_text(str(share))

    def limit(self) -> int | None:
        """See ``Controller``."""
        limit = _number(self.group / "memory.limit_in_bytes")
        return None if limit is None or limit >= _NO_LIMIT_BYTES else limit

    def used(self, group: Path) -> int:
        """See ``Controller``."""
        return _number(group / "memory.usage_in_bytes") or 0

    def waits(self, group: Path) -> bool:
        """See ``Controller``."""
        if _fields(group / "memory.oom_control").get("under_oom", 0):
            return True
        # Long before that its programs are read again and again, a page for another.
        limit, counted = _number(group / "memory.limit_in_bytes"), _fields(group / "memory.stat")
        files = counted.get("total_active_file", 0) + counted.get("total_inactive_file", 0)
        return limit is not None and self.used(group) - files >= limit - _PROGRAMS

    def properties(self, limit: int) -> list[str]:
        """See ``Controller``."""
        return [f"MemoryLimit={limit}"]

    def _write(self, name: str, value: str) -> None:
        (self.group / name).write_text(value)


class Version2:
    """A group whose processes are held up more and more from a little below its limit on; at the limit some are killed.

    Version 2 cannot let them wait at the limit itself.
    """

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.group = top, top / name

    def make(self) -> None:
        """See ``Controller``."""
        if "memory" not in (self.top / "cgroup.subtree_control").read_text().split():
            (self.top / "cgroup.subtree_control").write_text("+memory")
        self.group.mkdir(mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            self._write("memory.swap.max", "0")

    def set_limit(self, limit: int) -> None:
        """See ``Controller``."""
        before = (self.group / "memory.high").read_text().strip()
        self._write("memory.high", str(self._held_up_from(limit)))
        used = self.used(self.group)
        if used > limit:  # after what could be reclaimed; whoever is above memory.max is killed
            self._write("memory.high", before)
            raise _too_much(used, limit)
        self._write("memory.max", str(limit))

    def set_share(self, member: Path, share: int) -> None:
        """See ``Controller``."""
        (member / "memory.high").write_text(str(share))

    def limit(self) -> int | None:
        """See ``Controller``."""
        return _number(self.group / "memory.max")

    def used(self, group: Path) -> int:
        """See ``Controller``."""
        return _number(group / "memory.current") or 0

    def waits(self, group: Path) -> bool:
        """See ``Controller``."""
        high = _number(group / "memory.high")
        return high is not None and self.used(group) >= high - MIB  # reclaim may have brought it just below

    def properties(self, limit: int) -> list[str]:
        """See ``Controller``."""
        return [f"MemoryHigh={self._held_up_from(limit)}", f"MemoryMax={limit}", "MemorySwapMax=0"]

    @staticmethod
    def _held_up_from(limit: int) -> int:
        return limit - min(max(limit // 32, 32 * MIB), limit // 4)

    def _write(self, name: str, value: str) -> None:
        (self.group / name).write_text(value)


def _too_much(used: int, limit: int) -> AgentError:
    return AgentError("failed", f"{used // MIB} MiB are used, which cannot be made {limit // MIB}")


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", or no file."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    return None if text == "max" else int(text)


def _fields(path: Path) -> dict[str, int]:
    """The numbers in a file of lines of a word and a number each."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value}
