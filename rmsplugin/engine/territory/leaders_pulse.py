"""Leader's pulse: the engine of a group is told by its manager when the queue has changed, as the leader sees it.

So one squeue stays for all groups. The manager answers as soon as there is something new, or after a moment.
"""

from __future__ import annotations

import threading

from rmsplugin.client import EngineClient
from rmsplugin.errors import RmspluginError

#: The request to a manager, and between managers.
PULSE = "/v1/slurm-pulse"
#: The first answer is waited for so long. A manager that is silent for so long is given up: it answers after 1.5 s at
#: most. It is asked again so much later. In seconds.
_FIRST_S, _SILENT_S, _AGAIN_S = 1.0, 2.5, 0.5
#: So many tries in a row fail before a value counts no more: to start a squeue costs more than a moment without one.
_TRIES = 2


class LeadersPulse:
    """The pulse as it was told last. Several threads may call."""

    def __init__(self, client: EngineClient) -> None:
        """Ask for nothing yet; ``client``: of the manager on this host."""
        self._client = client
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._told, self._closed = threading.Event(), threading.Event()
        self._epoch = 0  # the highest that was seen
        self._pulse: str | None = None

    def latest(self) -> str | None:
        """A value that changes with the queue; None: nobody tells it. It waits for a first answer only."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="leader's pulse", daemon=True)
                self._thread.start()
        self._told.wait(_FIRST_S)
        return self._pulse

    def close(self) -> None:
        """Listen no more."""
        self._closed.set()

    def _listen(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                told = self._ask(self._pulse or "")
            except RmspluginError:
                told = None
            failures = 0 if told is not None else failures + 1
            if told is not None or failures >= _TRIES:
                self._pulse = told
                self._told.set()
            if told is None:
                self._closed.wait(_AGAIN_S)

    def _ask(self, known: str) -> str | None:
        """What the leader tells next; None if it is one from before."""
        told = self._client.request("GET", f"{PULSE}?after={known}", timeout_s=_SILENT_S)
        if not isinstance(told.get("pulse"), str) or not isinstance(told.get("epoch"), int):
            return None
        if told["epoch"] < self._epoch:
            return None
        self._epoch = told["epoch"]
        return str(told["pulse"])
