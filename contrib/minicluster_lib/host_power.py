"""Host power: what a host's BMC switches. Without power none of its processes is there, and nobody reaches its address.

The BMC itself is a daemon of the host that has power of its own. It orders by ``SOCKET``, and reads ``READING``.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from minicluster_lib.layout import SEARCH_PATH

SOCKET = "/run/bmc.sock"
READING = "/run/bmc.power"
_KEPT = (SOCKET, READING)

#: Daemons that do not end by themselves within this time are killed by the end of a shutdown.
_SHUTDOWN_S = 3.0
#: From the power to the first daemon. Slurm forgets a node that registers before it has noted that the node comes on,
#: which is a second after it was asked for it: no real machine is as fast.
_FIRMWARE_S = 2.0
#: A daemon whose file never comes is started all the same.
_PATIENCE_S = 10.0
#: The kernel ends what was killed sooner than this, or it is killed once more.
_END_MS = 5000


class Fault(enum.StrEnum):
    """What goes wrong when the host is switched."""

    NONE = ""
    HANGS = "hangs"  # it has power, and does not boot
    OLD_BOOT_TIME = "old-boot-time"  # it tells Slurm that it booted long ago
    STAYS_ON = "stays-on"  # orders to go off are taken, and nothing happens


class Daemons(Protocol):
    """The host's daemons, but for those with power of their own."""

    def bootable(self) -> list[str]:
        """Those that a boot starts, in this order."""
        ...

    def running(self) -> list[str]:
        """Those that run."""
        ...

    def awaits(self, name: str) -> str:
        """The file without which a daemon cannot do much; empty: none."""
        ...

    def boot(self, name: str, *, tells_boot: bool) -> None:
        """Start one. ``tells_boot``: its host has just booted, and it is to say so."""
        ...

    def terminate(self, name: str) -> None:
        """Send one SIGTERM."""
        ...

    def spared(self) -> Collection[int]:
        """Processes with power of their own."""
        ...


class HostPower:
    """The power of this host, which is on."""

    def __init__(self, daemons: Daemons, address: str, device: str) -> None:
        """``address``: what it has on the ``device`` while it is on, with the length of its prefix."""
        self._daemons = daemons
        self._address = ("address", "{}", address, "dev", device)
        self.fault = Fault.NONE
        self.on = True
        self._to_boot: list[str] = []
        self._since = 0.0
        self._ends_at = 0.0  # of a shutdown; 0: there is none
        self._tell()

    @property
    def busy(self) -> bool:
        """Whether ``step`` has something to do."""
        return bool(self._to_boot or self._ends_at)

    def switch_on(self) -> None:
        """Give it power, and begin to boot. Nothing if it has some."""
        if self.on:
            return
        self.on = True
        self._tell()
        self._ip("add")
        self._to_boot = [] if self.fault is Fault.HANGS else self._daemons.bootable()
        self._since = time.monotonic()

    def shut_down(self) -> None:
        """Have the daemons end; then it is off. Nothing happens without an operating system that hears it."""
        if not self.on or self._ends_at or self.fault in (Fault.STAYS_ON, Fault.HANGS):
            return
        self._to_boot = []
        for name in reversed(self._daemons.running()):
            self._daemons.terminate(name)
        self._ends_at = time.monotonic() + _SHUTDOWN_S

    def cut(self) -> None:
        """Take its power away: every process ends at once, and what was in memory is gone."""
        if not self.on or self.fault is Fault.STAYS_ON:
            return
        self.on, self._to_boot, self._ends_at = False, [], 0.0
        self._ip("del")
        while victims := _others(self._daemons.spared()):
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _await_ends(victims)
        _empty(Path("/run"))
        self._tell()

    def step(self) -> None:
        """Go on with a boot, or with a shutdown."""
        if self._ends_at and (not self._daemons.running() or time.monotonic() > self._ends_at):
            self.cut()
        while self._to_boot and time.monotonic() > self._since + _FIRMWARE_S:
            awaited = self._daemons.awaits(self._to_boot[0])
            if awaited and not os.path.exists(awaited) and time.monotonic() < self._since + _PATIENCE_S:
                return
            self._daemons.boot(self._to_boot.pop(0), tells_boot=self.fault is not Fault.OLD_BOOT_TIME)

    # -- inside --------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        new = Path(f"{READING}.new")
        new.write_text(f"{int(self.on)}\n")
        new.rename(READING)

    def _ip(self, what: str) -> None:
        words = ["ip", *(word.format(what) for word in self._address)]
        subprocess.run(words, check=True, env={"PATH": SEARCH_PATH}, stdin=subprocess.DEVNULL)


def listen() -> socket.socket:
    """Where the BMC asks and orders: root alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    listener.bind(SOCKET)
    os.umask(mask)
    listener.listen(16)
    return listener


def _others(spared: Collection[int]) -> list[int]:
    """All processes of this PID namespace but this one, those that are spared, and what they have started."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state, parent = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[:2]
                if state not in "ZX":
                    parents[int(name)] = int(parent)
    return [pid for pid in parents if pid != os.getpid() and not _is_below(pid, parents, spared)]


def _is_below(pid: int, parents: dict[int, int], tops: Collection[int]) -> bool:
    while pid in parents:
        if pid in tops:
            return True
        pid = parents[pid]
    return False


def _await_ends(pids: Collection[int]) -> None:
    """Wait until processes that were killed have ended."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        ended.poll(_END_MS)
        os.close(handle)


def _empty(directory: Path) -> None:
    """Remove the files of a file system in memory; its directories stay, as if a boot had made them."""
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            if path not in _KEPT:
                with contextlib.suppress(OSError):
                    os.unlink(path)
