"""Checkpoint: the state of a container in a file, while it stands still.

CRIU lets the container be, which stays frozen: so it has not gone on when its file is whole, and a file that never
becomes whole costs nothing but time. CRIU itself is never ended: the processes that it is reading might not survive
that. Who gives up waits until CRIU has read them, and ends podman, which then only writes files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmsplugin.adapters.platform.node_base import Call
from rmsplugin.adapters.platform.podman.on_node import acts, container, state_file
from rmsplugin.adapters.platform.podman.on_node.groups import Group
from rmsplugin.adapters.platform.podman.on_node.program import Podman, run
from rmsplugin.errors import NotFoundError, OperationFailedError, TimedOutError

#: Processes that wait for storage keep a group from being frozen; CRIU needs all of them.
_FREEZE_S = 10.0
_STEP_S = 0.02
_PULSE_S = 0.5
_TIMEOUT_S = 20


class Checkpoint:
    """One checkpoint of a VM."""

    def __init__(self, name: str, path: Path) -> None:
        """Nothing is done yet. Raises NotFoundError: the VM is not here."""
        self._name = name
        self._path = path
        self._group = Group(name)
        if not self._group.processes():
            raise NotFoundError(f"{name} is not on this node")
        self._stood_still = self._group.is_frozen()

    @contextmanager
    def made(self, call: Call) -> Iterator[None]:
        """Make it; within the context it is whole, and the VM stands still.

        Raises:
            NoSpaceError, OperationFailedError, TimedOutError: there is none, and the VM is as it was; so it is if an
                error is raised within the context.
        """
        try:
            image = _image_of(self._name)
            if not self._group.freeze(min(_FREEZE_S, max(0.1, call.deadline - time.monotonic()))):
                raise OperationFailedError(f"the processes of {self._name} did not stand still: some wait for storage")
            container.write_criu_conf()
            self._export(call)
            state_file.add(self._path, self._name, image)
            yield
        except BaseException:
            with suppress(FileNotFoundError):
                self._path.unlink()
            self.go_on()
            raise

    def go_on(self) -> None:
        """Have the VM do what it did before."""
        if not self._stood_still:
            self._group.thaw()

    def _export(self, call: Call) -> None:
        words = ["container", "checkpoint", "--leave-running", "--tcp-established", "--file-locks", "--ignore-rootfs"]
        podman = Podman(*words, "--compress", "zstd", "--export", str(self._path), self._name)
        told_at = 0.0

        def over() -> bool:
            nonlocal told_at
            if time.monotonic() - told_at >= _PULSE_S:
                told_at = time.monotonic()
                call.report({"bytes_done": self._written(), "bytes_total": 0})
            return acts.asked_to_stop(self._name)

        try:
            podman.wait(call.deadline, over=over)
        except BaseException as error:
            while podman.children:  # CRIU
                time.sleep(_STEP_S)
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


def _image_of(name: str) -> str:
    """The id of the image from which the container was made. Raises OperationFailedError."""
    return run("inspect", "--type", "container", "--format", "{{.Image}}", name, timeout_s=_TIMEOUT_S).strip()
