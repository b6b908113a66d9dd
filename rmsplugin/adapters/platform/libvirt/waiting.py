"""Waiting for a long call: with progress, until its time is over; and handling its remains when it failed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from rmsplugin.adapters.platform.base import Progress, VMPower
from rmsplugin.adapters.platform.libvirt.link import Call
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.values import JobProgress, job_progress
from rmsplugin.adapters.platform.libvirt.vms import LibvirtVMs
from rmsplugin.errors import NotFoundError, RmspluginError, TimedOutError

T = TypeVar("T")

_POLL_S = 0.25

#: The time that an aborted save, checkpoint or migration may take to come to its end.
_ABORT_GRACE_S = 20.0

#: A call is given up after libvirt has said for so long that its VM does not exist. A call that ends the VM itself,
#: a save or a migration, ends in a moment then.
_GONE_S = 10.0


def wait(call: Call[T], timeout_s: float) -> T:
    """Wait for a call without progress, which nothing aborts.

    Raises:
        TimedOutError: the call goes on.
        RmspluginError: the call failed.
    """
    if not call.wait(timeout_s):
        raise TimedOutError(f"{call.what} did not end within {timeout_s:g} s")
    return call.result()


class Waiting:
    """Waits for operations on a VM."""

    def __init__(self, nodes: LibvirtNodes, vms: LibvirtVMs) -> None:
        """Take the ways to the nodes and to their VMs."""
        self._nodes, self._vms = nodes, vms

    def watch(
        self,
        call: Call[T],
        node: str,
        name: str,
        timeout_s: float,
        progress: Progress | None,
        on_progress: Callable[[JobProgress], None] | None = None,
    ) -> T:
        """Wait for a save, checkpoint or migration, reporting its progress; abort it when its time is over.

        It is given up when its VM is gone, if a caller wants its progress.

        Args:
            call: the call under way.
            node: the node where libvirt works on it.
            name: the name of the VM.
            timeout_s: from now on.
            progress: called with the number of bytes done.
            on_progress: called with all of libvirt's progress.

        Raises:
            TimedOutError: the call was aborted, or goes on.
            RmspluginError: the call failed.
        """
        deadline = time.monotonic() + timeout_s
        gone_since = math.inf
        while not call.wait(min(_POLL_S, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return self._abort(call, node, name, timeout_s)
            if progress is None and on_progress is None:
                continue
            try:
                seen = self._nodes.query(node, f"asking how far {name} is", lambda conn: job_progress(conn, name))
                gone_since = math.inf
                if on_progress:
                    on_progress(seen)
            except NotFoundError:
                gone_since = min(gone_since, time.monotonic())
                if time.monotonic() - gone_since >= _GONE_S:
                    raise TimedOutError(f"{call.what} goes on, although {name} is not on {node} any more") from None
                continue
            except RmspluginError:
                continue  # It has just ended, or the node does not answer: the call itself will tell.
            if progress and seen.total_bytes:
                progress(seen.done_bytes, seen.total_bytes)
        return call.result()

    def _abort(self, call: Call[T], node: str, name: str, timeout_s: float) -> T:
        deadline = time.monotonic() + _ABORT_GRACE_S
        self._vms.abort_job(node, name)
        while not call.wait(_POLL_S):
            if time.monotonic() >= deadline:
                raise TimedOutError(f"{call.what} did not end within {timeout_s:g} s, nor when it was aborted")
            self._vms.abort_job(node, name)  # once more: it may not have begun when it was aborted first
        if call.failed:
            raise TimedOutError(f"{call.what} did not end within {timeout_s:g} s and was aborted")
        return call.result()  # It was done before the abort.

    def keep_running(self, node: str, name: str, before: VMPower) -> None:
        """After a failure: let a VM that ran before run on. libvirt does that itself, nearly always."""
        try:
            now = self._nodes.find(node, name)
            if before is VMPower.RUNNING and now is VMPower.PAUSED:
                self._vms.unpause(node, name, self._nodes.call_timeout_s)
        except RmspluginError:
            return  # The caller has to know the failure itself; the engine looks at the VM in any case.

    def leave_none(self, call: Call[T], node: str, name: str) -> None:
        """After a failed start: end the VM that it has made, or will make, if it was given up and still goes on."""
        deadline = time.monotonic() + _ABORT_GRACE_S
        try:
            while True:
                ended = call.wait(0)
                if self._nodes.find(node, name) is not None:
                    self._vms.stop(node, name, self._nodes.call_timeout_s)
                if ended or time.monotonic() > deadline:
                    return
                call.wait(_POLL_S)
        except RmspluginError:
            return  # The node does not answer. The engine looks for the VM in any case.
