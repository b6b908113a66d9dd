"""Served link: a link to a node on which short calls share one channel, as long as its agent serves."""

from __future__ import annotations

import threading
from typing import Any

from rmsplugin.adapters.nodes.served import NotServedError, Served
from rmsplugin.adapters.nodes.ssh_link import Link, Patience, Target
from rmsplugin.adapters.ssh_library import paramiko


class ServedLink(Link):
    """A link with at most one serving agent. Several threads may call."""

    def __init__(self, node: str, target: Target) -> None:
        """Connect to nothing yet."""
        super().__init__(node, target)
        self._served: Served | None = None
        self._never_on: paramiko.Transport | None = None  # the connection on which an older agent knew no such verb
        self._lock_of_serving = threading.Lock()  # held by the one who has an agent begin to serve

    def serve(self, words: list[str], content: bytes, patience: Patience, what: str) -> dict[str, Any]:
        """Do one call by the agent that serves, and return its answer.

        Raises:
            NotServedError: none serves now. The call was not begun.
            TimedOutError, UnavailableError, OperationFailedError: see ``Served.call``.
        """
        served = self._served
        if served is None or not served.is_open:
            served = self._begin(patience)
        return served.call(words, content, patience, what)

    def close(self) -> None:
        """Close everything for good."""
        super().close()
        if self._served is not None:
            self._served.close()

    def _begin(self, patience: Patience) -> Served:
        """Have an agent begin to serve; whoever comes meanwhile does not wait for it."""
        if not self._lock_of_serving.acquire(blocking=False):
            raise NotServedError
        try:
            before = self._served
            if before is not None and before.is_open:
                return before
            channel = self.open_channel(patience.remaining_s)
            if channel.get_transport() is self._never_on:
                channel.close()
                raise NotServedError
            try:
                channel.settimeout(patience.remaining_s)
                channel.exec_command("serve")
                self._served = Served(channel, f"agent: {self.node}")
            except (paramiko.SSHException, EOFError, OSError):
                channel.close()
                raise NotServedError from None
            if not self._served.serves:
                self._never_on = channel.get_transport()
                channel.close()
                raise NotServedError
            return self._served
        finally:
            self._lock_of_serving.release()
