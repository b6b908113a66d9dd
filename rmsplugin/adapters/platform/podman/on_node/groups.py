"""Groups: the control groups of a container, by which its processes are found, counted, frozen and ended.

All that podman, runc and CRIU start for a VM is below ``/rmsplugin/NAME``: the container itself in a group
``libpod-ID``. So nobody has to be asked which VMs are here, and an answer waits for no lock of podman's. Control groups
have version 2, or version 1 with a hierarchy for each controller, in which the freezer is one of its own.

A container is frozen here, behind podman's back: podman makes no checkpoint of one that it has paused itself.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from rmsplugin.model.vm_names import parse_vm_name

#: The parent of all groups of ours.
PARENT = "rmsplugin"
ROOT = Path("/sys/fs/cgroup")
_CONTAINER = "libpod-"
#: The group beside the container's into which hooks/criu puts CRIU.
_MAKERS = "criu"
_STEP_S = 0.005


def has_version_2(root: Path = ROOT) -> bool:
    """Whether this node has control groups of version 2 alone."""
    return (root / "cgroup.controllers").exists()


def _hierarchy(controller: str, root: Path) -> Path:
    return root if has_version_2(root) else root / controller


def names(root: Path = ROOT) -> list[str]:
    """The VMs of ours of which processes are here, besides podman's own monitors."""
    try:
        found = sorted(path.name for path in (_hierarchy("freezer", root) / PARENT).iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    return [name for name in found if parse_vm_name(name) and Group(name, root).processes()]


class Group:
    """The groups of one VM; it need not exist."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self._name = name
        self._root = root
        self.version_2 = has_version_2(root)

    def directory(self, controller: str) -> Path | None:
        """The container's group in the hierarchy of a controller; None if there is none."""
        parent = _hierarchy(controller, self._root) / PARENT / self._name
        try:
            found = sorted(path for path in parent.iterdir() if path.is_dir() and path.name.startswith(_CONTAINER))
        except FileNotFoundError:
            return None
        return found[0] if found else None

    def processes(self) -> list[int]:
        """The processes of the container, and those that make it."""
        group = self.directory("freezer")
        return [] if group is None else [pid for each in _below(group) for pid in _pids(each)]

    def makers(self) -> list[int]:
        """CRIU's own processes, when they are about to let the restored ones go on."""
        return _pids(_hierarchy("freezer", self._root) / PARENT / self._name / _MAKERS)

    def is_frozen(self) -> bool:
        """Whether all processes of the container stand still."""
        group = self.directory("freezer")
        if group is None:
            return False
        if self.version_2:
            return "frozen 1" in _text(group / "cgroup.events").splitlines()
        return _text(group / "freezer.state").strip() == "FROZEN"

    def is_told_to_stand_still(self) -> bool:
        """Whether all of them are frozen, or will be once none of them waits for storage."""
        group = self.directory("freezer")
        if group is None:
            return False
        if self.version_2:
            return _text(group / "cgroup.freeze").strip() == "1"
        return _text(group / "freezer.state").strip() in ("FROZEN", "FREEZING")

    def freeze(self, timeout_s: float) -> bool:
        """Have all of them stand still; returns whether they do in time. Those that wait for storage may not."""
        self._set_frozen(True)
        deadline = time.monotonic() + timeout_s
        while not self.is_frozen():
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        return True

    def thaw(self) -> None:
        """Let them go on; without effect if there are none."""
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        group = self.directory("freezer")
        if group is None:
            return
        with suppress(FileNotFoundError):
            if self.version_2:
                (group / "cgroup.freeze").write_text(str(int(frozen)))
            else:
                (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")

    def kill(self, timeout_s: float) -> bool:
        """End them all; returns whether they have ended in time.

        Those that stand still get the signal first and are let go on then: none of them does anything any more.
        """
        deadline = time.monotonic() + timeout_s
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if set(self.processes()) <= set(pids):  # else one of them has started another meanwhile
                self.thaw()
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        return True

    def remove(self) -> None:
        """Remove the groups, if nothing runs in them."""
        tops = [self._root] if self.version_2 else list(self._root.iterdir())
        for top in tops:
            own = top / PARENT / self._name
            for each in sorted(_below(own), reverse=True):
                with suppress(OSError):
                    each.rmdir()

    def cpu_delay_ns(self) -> int | None:
        """How long one of its processes at least has waited for a CPU; None where control groups do not count it."""
        if not self.version_2:
            return None
        lines = self.text("cpu", "cpu.pressure").splitlines()
        words = [line.split() for line in lines if line.startswith("some ")]
        total = words[0][-1].removeprefix("total=") if words else ""
        return int(total) * 1000 if total.isdecimal() else None

    def cpu_time_ns(self) -> int | None:
        """The CPU time of the container since it was made here."""
        if self.version_2:
            used_us = self._counters("cpu", "cpu.stat").get("usage_usec")
            return None if used_us is None else used_us * 1000
        return self._number("cpuacct", "cpuacct.usage")

    def cpu_times_us(self) -> tuple[int, int, int]:
        """The CPU time since it was made here: all, the processes' own, and the kernel's for them; 0 if unknown."""
        if self.version_2:
            counters = self._counters("cpu", "cpu.stat")
            return counters.get("usage_usec", 0), counters.get("user_usec", 0), counters.get("system_usec", 0)
        files = ("cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys")
        all_us, user_us, system_us = ((self._number("cpuacct", file) or 0) // 1000 for file in files)
        return all_us, user_us, system_us

    def memory_bytes(self) -> int:
        """Its memory, without what it caches of files; files that lie in memory count. 0 if unknown."""
        used = self._number("memory", "memory.current" if self.version_2 else "memory.usage_in_bytes") or 0
        counters, total = self._counters("memory", "memory.stat"), "" if self.version_2 else "total_"
        return max(0, used - sum(counters.get(f"{total}{kind}_file", 0) for kind in ("active", "inactive")))

    def memory_peak_bytes(self) -> int:
        """The most memory that it had since it was made here, with caches; 0 if the kernel does not say."""
        return self._number("memory", "memory.peak" if self.version_2 else "memory.max_usage_in_bytes") or 0

    def memory_kib(self) -> tuple[int | None, int | None]:
        """Its memory, without files' pages that could be dropped at once; and the most that it may have."""
        used = self._number("memory", "memory.current" if self.version_2 else "memory.usage_in_bytes")
        if used is None:
            return None, None
        counters = self._counters("memory", "memory.stat")
        spare = counters.get("inactive_file" if self.version_2 else "total_inactive_file", 0)
        most = self._number("memory", "memory.max" if self.version_2 else "memory.limit_in_bytes")
        return max(0, used - spare) >> 10, None if most is None else most >> 10

    def text(self, controller: str, file: str) -> str:
        """The content of one of its files; "" if there is none."""
        group = self.directory(controller)
        return "" if group is None else _text(group / file)

    def _number(self, controller: str, file: str) -> int | None:
        text = self.text(controller, file).strip()
        return int(text) if text.isdecimal() else None

    def _counters(self, controller: str, file: str) -> dict[str, int]:
        lines = [line.split() for line in self.text(controller, file).splitlines()]
        return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdecimal()}


def _below(top: Path) -> list[Path]:
    """The group and all groups in it: a user's root may have made some."""
    return [Path(place) for place, _, _ in os.walk(top)]


def _pids(group: Path) -> list[int]:
    return [int(word) for word in _text(group / "cgroup.procs").split()]


def _text(path: Path) -> str:
    """The content of a group's file; "" if the group has gone."""
    try:
        return path.read_text()
    except OSError:
        return ""
