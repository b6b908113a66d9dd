"""Memory controllers: a control group's limit and its memory, in the files of version 1 and of version 2."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rmsplugin.node_agent.errors import AgentError

MIB = 1 << 20

#: Version 1 reports nearly this limit for a group without a limit.
_NO_LIMIT_BYTES = 1 << 62

#: The part of its program that a hypervisor process needs in memory to get on, roughly.
_PROGRAMS = 4 * MIB


class Controller(Protocol):
    """The memory of one control group. Sizes are bytes; files that cannot be written raise OSError."""

    #: The directory in which platform and systemd look for groups of this version.
    top: Path
    group: Path

    def make(self) -> None:
        """Make the group if it does not exist; it must not use the host's swap."""
        ...

    def set_limit(self, limit: int) -> None:
        """Limit the group's memory to so much; memory beyond is reclaimed, or else AgentError is raised."""
        ...

    def set_share(self, member: Path, share: int) -> None:
        """Limit a subgroup of this group to so much of the group's limit."""
        ...

    def share(self, member: Path) -> int | None:
        """The share of a subgroup; None if it has none, or is gone."""
        ...

    def limit(self) -> int | None:
        """The limit of the group; None for no limit, or no group."""
        ...

    def used(self, group: Path) -> int:
        """The memory of this group, or of a subgroup."""
        ...

    def waits(self, group: Path) -> bool:
        """Whether a process in this group, or a subgroup, waits for memory."""
        ...

    def properties(self, limit: int) -> list[str]:
        """The same limit as a property for systemd, which otherwise sets its own limit now and then."""
        ...


class Version1:
    """A group whose processes wait at its limit for the pages that they touch; nobody is killed.

    But the kernel's own needs for their system calls are refused there, and a hypervisor process may not survive that.
    """

    def __init__(self, top: Path, name: str, others: Sequence[Path] = ()) -> None:
        """``others``: the hierarchies of other controllers, in which the platform wants the group, too."""
        self.top, self.group, self._others = top, top / name, others

    def make(self) -> None:
        """See ``Controller``. Subgroups inherit these values when they are made."""
        for other in self._others:
            (other / self.group.name).mkdir(mode=0o755, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # no process runs in a group without them
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

    def share(self, member: Path) -> int | None:
        """See ``Controller``."""
        limit = _number(member / "memory.limit_in_bytes")
        return None if limit is None or limit >= _NO_LIMIT_BYTES else limit

    def limit(self) -> int | None:
        """See ``Controller``."""
        return self.share(self.group)

    def used(self, group: Path) -> int:
        """See ``Controller``."""
        return _number(group / "memory.usage_in_bytes") or 0

    def waits(self, group: Path) -> bool:
        """See ``Controller``."""
        if _fields(group / "memory.oom_control").get("under_oom", 0):
            return True
        # Long before that, its programs are read again and again, each page in place of another.
        limit, counted = _number(group / "memory.limit_in_bytes"), _fields(group / "memory.stat")
        files = counted.get("total_active_file", 0) + counted.get("total_inactive_file", 0)
        return limit is not None and self.used(group) - files >= limit - _PROGRAMS

    def properties(self, limit: int) -> list[str]:
        """See ``Controller``."""
        return [f"MemoryLimit={limit}"]

    def _write(self, name: str, value: str) -> None:
        (self.group / name).write_text(value)


class Version2:
    """A group whose processes are slowed more and more from a little below its limit on; at the limit some are killed.

    Version 2 cannot make them wait at the limit itself.
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
        if used > limit:  # more than could be reclaimed; processes above memory.max are killed
            self._write("memory.high", before)
            raise _too_much(used, limit)
        self._write("memory.max", str(limit))

    def set_share(self, member: Path, share: int) -> None:
        """See ``Controller``."""
        (member / "memory.high").write_text(str(share))

    def share(self, member: Path) -> int | None:
        """See ``Controller``."""
        return _number(member / "memory.high")

    def limit(self) -> int | None:
        """See ``Controller``."""
        return _number(self.group / "memory.max")

    def used(self, group: Path) -> int:
        """See ``Controller``."""
        return _number(group / "memory.current") or 0

    def waits(self, group: Path) -> bool:
        """See ``Controller``."""
        high = _number(group / "memory.high")
        return high is not None and self.used(group) >= high - MIB  # reclaim may have brought the use just below

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
    """The numbers in a file whose lines are a word and a number each."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value}
