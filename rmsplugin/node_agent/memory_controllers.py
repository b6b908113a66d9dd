"""Memory controllers: a control group's limit and what it holds, in the files of version 1 and of version 2."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Protocol

from rmsplugin.node_agent.errors import AgentError

MIB = 1 << 20

#: Version 1 says of a group without a limit that it has nearly this one.
_NO_LIMIT_BYTES = 1 << 62

#: So long version 2 is watched for somebody being held up.
_WATCH_S = 0.05


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

    def lift(self) -> None:
        """Let the group take all."""
        ...

    def limit(self) -> int | None:
        """What the group may take at most; None for all, or no group."""
        ...

    def used(self) -> int:
        """What the group takes."""
        ...

    def waits(self) -> bool:
        """Whether somebody in the group waits for memory."""
        ...

    def properties(self, limit: int) -> list[str]:
        """The same limit as systemd calls it, which else sets its own now and then."""
        ...


class Version1:
    """A group whose processes wait at its limit: nobody is killed."""

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.group = top, top / name

    def make(self) -> None:
        """See ``Controller``. Groups below inherit what is set here when they are made."""
        self.group.mkdir(mode=0o755, exist_ok=True)
        self._write("memory.swappiness", "0")
        self._write("memory.oom_control", "1")

    def set_limit(self, limit: int) -> None:
        """See ``Controller``."""
        try:
            self._write("memory.limit_in_bytes", str(limit))
        except OSError as error:  # EBUSY; the old limit stays
            raise _too_much(self.used(), limit) from error

    def lift(self) -> None:
        """See ``Controller``."""
        self._write("memory.limit_in_bytes", "-1")

    def limit(self) -> int | None:
        """See ``Controller``."""
        limit = _number(self.group / "memory.limit_in_bytes")
        return None if limit is None or limit >= _NO_LIMIT_BYTES else limit

    def used(self) -> int:
        """See ``Controller``."""
        return _number(self.group / "memory.usage_in_bytes") or 0

    def waits(self) -> bool:
        """See ``Controller``."""
        return _fields(self.group / "memory.oom_control").get("under_oom", 0) > 0

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
        if self.used() > limit:  # after what could be reclaimed; whoever is above memory.max is killed
            used = self.used()
            self._write("memory.high", before)
            raise _too_much(used, limit)
        self._write("memory.max", str(limit))

    def lift(self) -> None:
        """See ``Controller``."""
        self._write("memory.max", "max")
        self._write("memory.high", "max")

    def limit(self) -> int | None:
        """See ``Controller``."""
        return _number(self.group / "memory.max")

    def used(self) -> int:
        """See ``Controller``."""
        return _number(self.group / "memory.current") or 0

    def waits(self) -> bool:
        """See ``Controller``."""
        high = _number(self.group / "memory.high")
        if high is None or self.used() >= high:
            return high is not None
        before = self._held_up()
        time.sleep(_WATCH_S)
        return self._held_up() > before

    def properties(self, limit: int) -> list[str]:
        """See ``Controller``."""
        return [f"MemoryHigh={self._held_up_from(limit)}", f"MemoryMax={limit}", "MemorySwapMax=0"]

    @staticmethod
    def _held_up_from(limit: int) -> int:
        return limit - min(max(limit // 32, 32 * MIB), limit // 4)

    def _held_up(self) -> int:
        return _fields(self.group / "memory.events").get("high", 0)

    def _write(self, name: str, value: str) -> None:
        (self.group / name).write_text(value)


def uses_kvm(group: Path, proc: Path) -> bool:
    """Whether a process of the group, or of one below it, is a VM of KVM."""
    for members in group.rglob("cgroup.procs"):
        for pid in members.read_text().split():
            with contextlib.suppress(OSError):  # it has ended
                if any(os.readlink(file) == "anon_inode:kvm-vm" for file in (proc / pid / "fd").iterdir()):
                    return True
    return False


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
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
