"""Served calls: many calls of one node's agent on one channel, to a process that forks for each of them.

A call on a channel of its own has sshd and the agent start processes, which take longer than most verbs. A served one
gets the same lines of answer. The agent's side is ``node_agent/serving.py``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from rmsplugin.adapters.nodes.ssh_link import Patience
from rmsplugin.errors import OperationFailedError, TimedOutError, UnavailableError

#: The verbs that take moments, and no file: the others have channels of their own.
SERVED = frozenset(
    """put-config drop-config drop-state stat space list make-overlay use-checkpoint put-aside take-back drop-aside
    adopt lend end-room bound-memory use-template await-guest keep-disk settle-template refuse-template
    vm-host vm-list vm-has vm-statistics vm-used vm-boot vm-stop vm-pause vm-unpause vm-memory vm-cpus
    vm-abort""".split()  # noqa: SIM905
)
#: More content than this goes by a channel of its own, whose window it fills alone.
CONTENT_MAX = 1 << 16
#: The seconds without a call after which the agent is let go.
_IDLE_S = 30.0
#: More than a line of an agent's can have: all saved states of a node.
_LINE_MAX = 4 << 20


class NotServedError(Exception):
    """The agent does not take the call here, and has not begun it: it goes by a channel of its own."""


class Channel(Protocol):
    """Bytes to a serving agent and back."""

    def settimeout(self, timeout: float) -> None:
        """Bound the wait of each of the other methods; past it they raise TimeoutError."""
        ...

    def sendall(self, data: bytes) -> None:
        """Send all the bytes."""
        ...

    def recv(self, most: int) -> bytes:
        """Some bytes; none after the end."""
        ...

    def close(self) -> None:
        """End it: the other side reads the end."""
        ...


def _header(call: int, words: Sequence[str], size: int) -> bytes:
    return json.dumps({"call": call, "words": words, "bytes": size}).encode() + b"\n"


class Served:
    """The calls on one channel. Several threads may call."""

    def __init__(self, channel: Channel, name: str) -> None:
        """Take a channel on which the agent has just been told to serve; ``name``: of the thread that reads."""
        self._channel = channel
        self._lock = threading.Lock()  # of what follows; never held while anybody waits
        self._waiting: dict[int, SimpleQueue[Mapping[str, Any]]] = {}
        self._number = 0
        self._over = False
        self._sending = threading.Lock()
        self._said = bytearray()
        self.greeting = self._line()
        if self.serves:
            threading.Thread(target=self._read, name=name, daemon=True).start()

    @property
    def serves(self) -> bool:
        """Whether the agent answered that it serves; one of an older release knows no such verb."""
        return "serving" in self.greeting

    @property
    def is_open(self) -> bool:
        """Whether it takes calls."""
        return self.serves and not self._over

    def call(self, words: list[str], content: bytes, patience: Patience, what: str) -> dict[str, Any]:
        """Do one call, and return its answer.

        Raises:
            NotServedError: it was not begun.
            TimedOutError: it did not end in time; no more calls are given to this agent, which may have stopped.
            UnavailableError: the channel broke, and the call may have been done.
            OperationFailedError: the process of the call ended without an answer.
        """
        number, frames = self._register()
        try:
            self._send(_header(number, words, len(content)) + content)
            answer: Any = None
            while True:
                frame = frames.get(timeout=patience.remaining_s)
                if frame.get("again"):
                    self._retire()
                    raise NotServedError
                if "broke" in frame:
                    raise UnavailableError(f"{what}: the connection broke: {frame['broke']}")
                if frame.get("end"):
                    break
                answer = frame.get("line")
            if not isinstance(answer, dict):
                raise OperationFailedError(f"{what}: the agent ended without an answer: {frame.get('status')}")
            return answer
        except (TimeoutError, Empty):
            self._retire()
            self._send(_header(number, [], 0))  # what has not begun does not begin any more
            raise TimedOutError(f"{what} did not end in time") from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def close(self) -> None:
        """End the channel. The agent ends when the calls that are under way have ended."""
        self._retire()
        self._channel.close()

    def _register(self) -> tuple[int, SimpleQueue[Mapping[str, Any]]]:
        frames: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        with self._lock:
            if not self.is_open:
                raise NotServedError
            self._number += 1
            self._waiting[self._number] = frames
            return self._number, frames

    def _send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._channel.sendall(data)
        except OSError as error:  # a part of a request makes the channel useless for all
            self._break(str(error) or "a request could not be sent")

    def _retire(self) -> None:
        with self._lock:
            self._over = True

    def _line(self) -> Mapping[str, Any]:
        """The next line. Raises OSError: there is none, or it is none of an agent's."""
        while (end := self._said.find(b"\n")) < 0:
            data = self._channel.recv(1 << 16)
            self._said += data
            if not data or len(self._said) > _LINE_MAX:
                raise OSError("the agent ended, or says more than any answer has")
        line = bytes(self._said[:end])
        del self._said[: end + 1]
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise OSError(f"unexpected answer {line[:200]!r}") from None
        if not isinstance(found, dict):
            raise OSError(f"unexpected answer {line[:200]!r}")
        return found

    def _read(self) -> None:
        self._channel.settimeout(_IDLE_S)
        while True:
            try:
                frame = self._line()
            except TimeoutError:
                if self._is_idle():
                    self._channel.close()
                    return
                continue
            except (OSError, EOFError) as error:
                self._break(str(error))
                return
            number = frame.get("call")
            with self._lock:
                frames = self._waiting.get(number) if isinstance(number, int) else None
            if frames is not None:
                frames.put(frame)

    def _is_idle(self) -> bool:
        """Whether nobody waits; nobody begins to wait from then on."""
        with self._lock:
            self._over = self._over or not self._waiting
            return not self._waiting

    def _break(self, why: str) -> None:
        with self._lock:
            self._over = True
            waiting = list(self._waiting.values())
        for frames in waiting:
            frames.put({"broke": why})
        self._channel.close()
