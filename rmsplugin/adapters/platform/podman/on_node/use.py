"""Use: what the processes of a container have used since it was first started, for `rmsplugin usage`.

Control groups begin anew where a container is restored. So its state says what it had used before (``state_file``), as
the memory of a VM does; a return to an older state is a return of these numbers, too.

Times are exact. Of memory without caches the kernel does not keep the most: the most is what was seen, at each question
for statistics. Bytes that were read and written are those of the users' processes that are there, and of the children
that these have waited for.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rmsplugin.adapters.platform.podman.on_node import acts
from rmsplugin.adapters.platform.podman.on_node.groups import Group

_PROC = Path("/proc")


class Use(NamedTuple):
    """Microseconds of CPU time, and bytes; names are those of ``adapters.guests.used``."""

    cpu_us: int = 0
    user_us: int = 0
    system_us: int = 0
    memory_bytes: int = 0  # the most, without caches of files
    peak_bytes: int = 0  # the most, with them
    read_bytes: int = 0
    written_bytes: int = 0

    @classmethod
    def of(cls, said: Any) -> Use:
        """Read one from JSON; none at all if it is of another form."""
        try:
            values = {name: int(said[name]) for name in cls._fields}
        except (KeyError, TypeError, ValueError):
            return cls()
        return cls(**values) if min(values.values()) >= 0 else cls()

    def and_then(self, later: Use) -> Use:
        """Both, one after the other."""
        return Use(
            self.cpu_us + later.cpu_us,
            self.user_us + later.user_us,
            self.system_us + later.system_us,
            max(self.memory_bytes, later.memory_bytes),
            max(self.peak_bytes, later.peak_bytes),
            self.read_bytes + later.read_bytes,
            self.written_bytes + later.written_bytes,
        )


#: Of a container that has just been made, or whose state does not say.
NO_USE = Use()


def begin(name: str, before: Use) -> None:
    """Note what a container that comes had used before."""
    _write(name, before)


def see(name: str, group: Group) -> None:
    """Note the memory that a container uses now, if it is the most."""
    before, memory_bytes = _read(name), group.memory_bytes()
    if memory_bytes > before.memory_bytes:
        _write(name, before._replace(memory_bytes=memory_bytes))


def of(name: str, group: Group, proc: Path = _PROC) -> Use:
    """What the container has used up to now."""
    cpu_us, user_us, system_us = group.cpu_times_us()
    read_bytes = written_bytes = 0
    for pid in group.processes():
        read, written = _io_of(proc / str(pid))
        read_bytes, written_bytes = read_bytes + read, written_bytes + written
    memory_bytes, peak_bytes = group.memory_bytes(), group.memory_peak_bytes()
    now = Use(cpu_us, user_us, system_us, memory_bytes, max(memory_bytes, peak_bytes), read_bytes, written_bytes)
    return _read(name).and_then(now)


def _io_of(process: Path) -> tuple[int, int]:
    """Bytes that a user's process has read and written; nothing of root's, which is the container's ssh server."""
    with suppress(OSError, ValueError, KeyError):
        if os.stat(process).st_uid:
            lines = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
            return int(lines["rchar"]), int(lines["wchar"])
    return 0, 0


def _file(name: str) -> Path:
    return acts.DIRECTORY / f"{name}.use"


def _read(name: str) -> Use:
    try:
        return Use.of(json.loads(_file(name).read_text()))
    except (OSError, ValueError):
        return Use()


def _write(name: str, use: Use) -> None:
    """Replace the file: it is read while others write it."""
    new = acts.make_directory() / f"{name}.use.{os.getpid()}"
    new.write_text(json.dumps(use._asdict()))
    new.replace(_file(name))
