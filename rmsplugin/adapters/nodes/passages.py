"""Passages: connections to the platforms of nodes through their agents, which let no engine pass whose turn is over.

A passage is a channel of ssh to the agent's verb ``platform`` on one side, and a connection on a socket of this host on
the other; two threads pass the bytes on. Its ssh connections are not those of the agent's other calls: sshd bounds the
sessions of each connection, and a passage is kept for long.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rmsplugin.adapters.nodes.answers import UnownedError, error_of, with_epoch
from rmsplugin.adapters.nodes.ssh_link import Link, Target
from rmsplugin.adapters.ssh_library import paramiko
from rmsplugin.errors import UnavailableError
from rmsplugin.settings import Settings

#: sshd's MaxSessions is 10 unless the site changes it.
_ON_ONE_CONNECTION = 8
_CHUNK = 1 << 16
_GREETING_MAX = 4096


def passages_of(settings: Settings, epoch: int | None, claim: Callable[[str], None] | None = None) -> Passages | None:
    """The passages that the settings want; None: the platform has its own way. Arguments: see ``Passages``."""
    if not settings.through_agents:
        return None
    nodes, timeout_s = settings.nodes, settings.hypervisor.connect_timeout_s
    return Passages(Target(nodes.agent_user, str(nodes.agent_key), str(nodes.known_hosts), timeout_s), epoch, claim)


class Passages:
    """``WaysThroughAgents`` to all nodes, for one engine. Several threads may call."""

    def __init__(self, target: Target, epoch: int | None, claim: Callable[[str], None] | None = None) -> None:
        """Connect to nothing yet.

        Args:
            target: how nodes are reached.
            epoch: of the asking engine; None: it only looks.
            claim: shows a node that has come up anew that the engine leads, as ``Turns.obey``; None: nothing does.
        """
        self._target, self._claim = target, claim
        self.only_looks = epoch is None
        self._words = " ".join(["platform", *with_epoch(epoch)] if epoch is not None else ["look-at-platform"])
        self._links: dict[str, list[tuple[Link, set[Passage]]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def path(self, node: str) -> Iterator[str]:
        """See ``WaysThroughAgents``."""
        passage = self._open(node)
        try:
            with tempfile.TemporaryDirectory(prefix="rmsplugin-") as directory:  # nobody else may enter it
                path = os.path.join(directory, "platform")
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
                    listening.bind(path)
                    listening.listen(1)
                    listening.settimeout(self._target.connect_timeout_s)
                    passage.begin(listening)
                    yield path
        except BaseException:
            passage.close()
            raise

    def close(self) -> None:
        """See ``WaysThroughAgents``."""
        with self._lock:
            links, self._links = self._links, {}
        for each in links.values():
            for link, _ in each:
                link.close()

    def _open(self, node: str) -> Passage:
        try:
            return self._open_once(node)
        except UnownedError:
            if self._claim is None:
                raise
        self._claim(node)
        return self._open_once(node)

    def _open_once(self, node: str) -> Passage:
        until = time.monotonic() + self._target.connect_timeout_s
        with self._lock:
            of_node = self._links.setdefault(node, [])
            free = next((each for each in of_node if len(each[1]) < _ON_ONE_CONNECTION), None)
            if free is None:
                of_node.append(free := (Link(node, self._target), set()))
            link, passages = free
            passage = Passage(passages)
            passages.add(passage)
        try:
            passage.open(link, self._words, until)
        except BaseException:
            passage.close()
            raise
        return passage


class Passage:
    """One connection."""

    def __init__(self, on_connection: set[Passage]) -> None:
        self._on_connection = on_connection
        self._channel: paramiko.Channel | None = None
        self._early = b""  # what the platform has said behind the greeting
        self._near: socket.socket | None = None

    def open(self, link: Link, words: str, until: float) -> None:
        """Have the agent let us through. Raises as ``Passages.path``."""
        self._channel = channel = link.open_channel(until - time.monotonic())
        try:
            channel.settimeout(max(0.1, until - time.monotonic()))
            channel.exec_command(words)
            said = b""
            while b"\n" not in said:
                data = channel.recv(_CHUNK)
                said += data
                if not data or len(said) > _GREETING_MAX:
                    raise OSError("the agent ended without an answer")
            line, _, self._early = said.partition(b"\n")
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise OSError("the agent gives an answer that is none")
        except (paramiko.SSHException, EOFError, OSError, ValueError, RecursionError) as error:
            raise UnavailableError(f"the platform of {link.node} cannot be reached: {error or 'no answer'}") from None
        if "error" in answer:
            raise error_of(link.node, answer)
        channel.settimeout(None)

    def begin(self, listening: socket.socket) -> None:
        """Pass on what the first one that connects says, and what the platform answers, in threads of their own."""
        threading.Thread(target=self._take, args=(listening.dup(),), name="passage", daemon=True).start()

    def close(self) -> None:
        """End it; what waits on either side sees the end."""
        self._on_connection.discard(self)
        if self._near is not None:
            with suppress(OSError):
                self._near.shutdown(socket.SHUT_RDWR)
        if self._channel is not None:
            self._channel.close()

    def _take(self, listening: socket.socket) -> None:
        with listening:
            try:
                self._near, _ = listening.accept()
            except OSError:
                self.close()
                return
        threading.Thread(target=self._to_node, name="passage: there", daemon=True).start()
        self._from_node()

    def _to_node(self) -> None:
        assert self._near is not None and self._channel is not None
        with suppress(OSError, EOFError, paramiko.SSHException):
            while data := self._near.recv(_CHUNK):
                self._channel.sendall(data)
        self.close()

    def _from_node(self) -> None:
        assert self._near is not None and self._channel is not None
        with self._near:
            with suppress(OSError, EOFError):
                self._near.sendall(self._early)
                while data := self._channel.recv(_CHUNK):
                    self._near.sendall(data)
            self.close()
