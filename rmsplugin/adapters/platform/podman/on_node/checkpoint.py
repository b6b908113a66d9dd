"""Checkpoint: the state of a container in a file, while it stands still.

CRIU lets the container be, which stays frozen: so it has not gone on when its file is whole, and a file that never
becomes whole costs nothing but time. CRIU itself is not ended: the processes that it is reading might not survive that.
Who gives up waits until CRIU has read them, and ends podman, which then only writes files.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmsplugin.adapters.platform.node_base import Call
from rmsplugin.adapters.platform.podman.on_node import acts, container, criu, state_file, use
from rmsplugin.adapters.platform.podman.on_node.groups import Group, has_version_2
from rmsplugin.adapters.platform.podman.on_node.program import Podman, run
from rmsplugin.errors import NotFoundError, OperationFailedError, TimedOutError

#: Processes that wait for storage keep a group from being frozen; CRIU needs all of them.
_FREEZE_S = 10.0
#: Who gives up lets a container go on after this time, for CRIU may wait for that; and ends CRIU when it does not end.
_READS_S, _ENDS_S = 15.0, 90.0
#: The function of the kernel in which a process waits that is stopped by a signal.
_STOPPED = "do_signal_stop"
_STEP_S = 0.02
_PULSE_S = 0.5
_TIMEOUT_S = 20


class Checkpoint:
    """One checkpoint of a VM."""

    def __init__(self, name: str, path: Path, bridge: str) -> None:
        """Nothing is done yet; ``bridge``: of the VM's network. Raises NotFoundError: the VM is not here."""
        self._name = name
        self._path = path
        self._bridge = bridge
        if not Group(name).processes():
            raise NotFoundError(f"{name} is not on this node")
        self._stood_still = Group(name).is_told_to_stand_still()
        self._attached = container.attached(name)
        self._file = -1  # open from before podman writes until all is done: later ones are told of no earlier failure

    @contextmanager
    def made(self, call: Call) -> Iterator[None]:
        """Make it; within the context it is whole, and the VM stands still. Whether it is on disk is to be asked.

        Raises:
            NoSpaceError, OperationFailedError, TimedOutError: there is none, and the VM is as it was; so it is if an
                error is raised within the context.
        """
        try:
            image = _image_of(self._name)
            if not container.freeze(self._name, min(_FREEZE_S, max(0.1, call.deadline - time.monotonic()))):
                raise OperationFailedError(f"the processes of {self._name} did not stand still: some wait for storage")
            self._require_none_stopped()
            criu.write_settings(self._name)
            self._file = os.open(
                self._path, os.O_RDONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with criu.explained(self._name):
                self._export(call)
            state_file.add(self._path, self._name, image, use.of(self._name, Group(self._name)))
            yield
        except BaseException:
            with suppress(OSError):  # whoever drops the state removes it
                self._path.unlink()
            self.go_on()
            raise
        finally:
            self._close()

    def require_on_disk(self) -> None:
        """Have the whole file on disk; within the context of ``made``.

        Podman's writes succeed in memory. A server of files that is full, or a disk that fails, says so later, once,
        and to a file that is open then: podman does not ask.

        Raises:
            OSError: the file is not on disk, and never will be.
            OperationFailedError: podman has made another file.
        """
        if not os.path.samestat(os.fstat(self._file), self._path.stat()):
            raise OperationFailedError(f"podman has put another file in the place of {self._path}")
        os.fsync(self._file)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def go_on(self) -> None:
        """Have the VM do what it did before."""
        if not self._stood_still:
            container.thaw(self._name, self._bridge)
        else:
            container.stay(self._name, self._attached, self._bridge, _FREEZE_S)

    def _require_none_stopped(self) -> None:
        """Refuse what CRIU would wait for without end: a process that is stopped by a signal, and frozen beside that.

        With control groups of version 2 it need not wait.
        """
        if has_version_2():
            return
        for pid in Group(self._name).processes():
            if _waits_in(pid).startswith(_STOPPED):
                raise OperationFailedError(
                    f"a process of {self._name} is stopped (SIGSTOP): it can be saved when that process goes on"
                )

    def _export(self, call: Call) -> None:
        words = ["container", "checkpoint", "--leave-running", "--tcp-established", "--file-locks", "--ignore-rootfs"]
        podman = Podman(*words, "--compress", "zstd", "--export", str(self._path), self._name)
        told_at = 0.0

        def children() -> list[int]:
            podman.listen()
            return podman.children

        def over() -> bool:
            nonlocal told_at
            if time.monotonic() - told_at >= _PULSE_S:
                told_at = time.monotonic()
                call.report({"bytes_done": self._written(), "bytes_total": 0})
            return acts.asked_to_stop(self._name)

        try:
            podman.wait(call.deadline, over=over)
        except BaseException as error:
            await_end(children, Group(self._name).thaw)
            podman.kill()
            if isinstance(error, TimedOutError) and acts.asked_to_stop(self._name):
                raise OperationFailedError(
                    f"the state of {self._name} is not written: somebody has aborted it"
                ) from None
            raise

    def _written(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def await_end(
    children: Callable[[], list[int]], thaw: Callable[[], None], reads_s: float = _READS_S, ends_s: float = _ENDS_S
) -> None:
    """Wait for the end of CRIU, which podman has started.

    Args:
        children: the processes that podman has now.
        thaw: lets the container go on.
        reads_s: after this time it is called, in seconds.
        ends_s: after this time the processes are ended.
    """
    begun = time.monotonic()
    while found := children():
        waited_s = time.monotonic() - begun
        if waited_s > reads_s:
            thaw()
        for pid in found if waited_s > ends_s else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP_S)


def _waits_in(pid: int) -> str:
    """The function of the kernel in which a process waits; "" if it has ended. Its state is that of all frozen ones."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""


def _image_of(name: str) -> str:
    """The id of the image from which the container was made. Raises OperationFailedError."""
    return run("inspect", "--type", "container", "--format", "{{.Image}}", name, timeout_s=_TIMEOUT_S).strip()
