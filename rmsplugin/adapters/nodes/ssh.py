"""Node agents over ssh: one verified connection a node, each verb a forced command (docs/protocols.md section 4)."""

from __future__ import annotations

import json
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import paramiko

from rmsplugin.adapters.hypervisor.base import Progress
from rmsplugin.adapters.nodes.base import Digest, NodeCheck, NodeFiles, PartialFile, Reach, StateFiles
from rmsplugin.errors import (
    CorruptStateError,
    NoSpaceError,
    NoStoreError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)

_ERROR_KINDS: Mapping[str, type[RmspluginError]] = {
    "not_found": NotFoundError,
    "no_store": NoStoreError,
    "no_space": NoSpaceError,
    "corrupt": CorruptStateError,
    "failed": OperationFailedError,
}

#: sshd's MaxSessions is 10 unless the site changes it; more channels at once on one connection are refused.
_CALLS_AT_ONCE = 8


class _Link:
    """The connection to one node, made when needed and made anew when broken."""

    def __init__(self, node: str, agents: NodeAgents) -> None:
        self._node = node
        self._agents = agents
        self._client: paramiko.SSHClient | None = None
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_CALLS_AT_ONCE)

    @contextmanager
    def channel(self, deadline: float) -> Iterator[paramiko.Channel]:
        """A fresh channel to the node. Raises UnavailableError, TimedOutError."""
        if not self._slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimedOutError(f"too many calls to the node agent of {self._node} are under way")
        try:
            channel = self._open(deadline)
            try:
                yield channel
            finally:
                channel.close()
        finally:
            self._slots.release()

    def _open(self, deadline: float) -> paramiko.Channel:
        # A connection that broke unnoticed (the node restarted) shows only here: it is worth a second try.
        for attempt in (1, 2):
            remaining_s = min(self._agents.connect_timeout_s, max(0.1, deadline - time.monotonic()))
            with self._lock:
                transport = self._transport(remaining_s)
            try:
                return transport.open_session(timeout=remaining_s)
            except (paramiko.SSHException, EOFError, OSError) as error:
                self.drop(transport)
                if attempt == 2:
                    raise UnavailableError(f"the node agent of {self._node} cannot be reached: {error}") from None
        raise AssertionError("unreachable")

    def _transport(self, timeout_s: float) -> paramiko.Transport:
        transport = self._client.get_transport() if self._client else None
        if transport is not None and transport.is_active():
            return transport
        client = paramiko.SSHClient()
        try:
            client.load_host_keys(self._agents.known_hosts_path)
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                self._node,
                username=self._agents.user,
                key_filename=self._agents.key_path,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
                allow_agent=False,
                look_for_keys=False,
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            client.close()
            raise UnavailableError(f"the node agent of {self._node} cannot be reached: {error}") from None
        transport = client.get_transport()
        if transport is None:
            raise UnavailableError(f"the node agent of {self._node} hung up")
        transport.set_keepalive(15)
        self._client = client
        return transport

    def drop(self, transport: paramiko.Transport | None = None) -> None:
        """Close the connection; with ``transport``: only if it is still that one."""
        with self._lock:
            if self._client is not None and transport in (None, self._client.get_transport()):
                self._client.close()
                self._client = None


class NodeAgents:
    """``Nodes`` over ssh: one kept connection a node, host keys verified against ``known_hosts_path``."""

    def __init__(
        self,
        user: str,
        key_path: str,
        known_hosts_path: str,
        *,
        connect_timeout_s: float = 10.0,
        call_timeout_s: float = 30.0,
    ) -> None:
        """Connect to nothing yet.

        Args:
            user: account of the node agent.
            key_path: private key that the account authorises for the forced command.
            known_hosts_path: host keys of all nodes; an unknown or changed one is refused.
            connect_timeout_s: bound of each step of a connection.
            call_timeout_s: bound of the verbs that take no ``timeout_s``.
        """
        self.user = user
        self.key_path = key_path
        self.known_hosts_path = known_hosts_path
        self.connect_timeout_s = connect_timeout_s
        self._call_timeout_s = call_timeout_s
        self._links: dict[str, _Link] = {}
        self._lock = threading.Lock()

    def put_config(self, node: str, vm: str, content: bytes) -> None:
        """See ``Nodes``."""
        self._call(node, ["put-config", vm], content=content)

    def put_seed(self, node: str, vm: str, content: bytes) -> None:
        """See ``Nodes``."""
        self._call(node, ["put-seed", vm], content=content)

    def make_overlay(self, node: str, vm: str, base: str) -> None:
        """See ``Nodes``."""
        self._call(node, ["make-overlay", vm, base])

    def drop_config(self, node: str, vm: str) -> None:
        """See ``Nodes``."""
        self._call(node, ["drop-config", vm])

    def stat(self, node: str, vm: str, *, shared: bool = False) -> StateFiles:
        """See ``Nodes``."""
        answer = self._call(node, ["stat", vm], shared=shared)
        final, part = answer["final"], answer["partial"]
        return StateFiles(
            final["bytes"] if final else None,
            PartialFile(part["bytes"], part["complete"]) if part else None,
            answer["free_bytes"],
        )

    def digest(self, node: str, vm: str, *, timeout_s: float, shared: bool = False) -> Digest:
        """See ``Nodes``."""
        answer = self._call(node, ["digest", vm], shared=shared, timeout_s=timeout_s)
        return Digest(answer["bytes"], answer["blake2b"])

    def seal(self, node: str, vm: str, digest: Digest, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._call(node, ["seal", vm, digest.blake2b], shared=shared)

    def verify(self, node: str, vm: str, digest: Digest, *, timeout_s: float, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._call(node, ["verify", vm, str(digest.size_bytes), digest.blake2b], shared=shared, timeout_s=timeout_s)

    def send(
        self,
        source: str,
        destination: str,
        vm: str,
        digest: Digest,
        *,
        timeout_s: float,
        progress: Progress | None = None,
    ) -> None:
        """See ``Nodes``."""

        def advance(bytes_done: int) -> None:
            if progress:
                progress(bytes_done, digest.size_bytes)

        words = ["send", vm, destination, str(digest.size_bytes), digest.blake2b]
        self._call(source, words, timeout_s=timeout_s, advance=advance)

    def drop_state(self, node: str, vm: str, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._call(node, ["drop-state", vm], shared=shared)

    def put_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """See ``Nodes``."""
        return bool(self._call(node, ["put-aside", vm, str(number)], shared=shared)["state"])

    def take_back(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """See ``Nodes``."""
        return bool(self._call(node, ["take-back", vm, str(number)], shared=shared)["state"])

    def drop_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._call(node, ["drop-aside", vm, str(number)], shared=shared)

    def verify_aside(
        self, node: str, vm: str, number: int, digest: Digest, *, timeout_s: float, shared: bool = False
    ) -> None:
        """See ``Nodes``."""
        words = ["verify-aside", vm, str(number), str(digest.size_bytes), digest.blake2b]
        self._call(node, words, shared=shared, timeout_s=timeout_s)

    def init_store(self, node: str, marker: str, *, expected: str = "", shared: bool = False) -> str:
        """See ``Nodes``."""
        return str(self._call(node, ["init-store", marker, expected or "-"], shared=shared)["marker"])

    def marker(self, node: str, *, shared: bool = False) -> str | None:
        """See ``Nodes``."""
        found = self._call(node, ["space"], shared=shared)["marker"]
        return None if found is None else str(found)

    def list_files(self, node: str, *, shared: bool = False) -> NodeFiles:
        """See ``Nodes``."""
        answer = self._call(node, ["list"], shared=shared)
        return NodeFiles(
            frozenset(answer["states"]),
            frozenset(answer["partials"]),
            frozenset(answer["configs"]),
        )

    def free_bytes(self, node: str, *, shared: bool = False) -> int:
        """See ``Nodes``."""
        return int(self._call(node, ["space"], shared=shared)["free_bytes"])

    def check(self, node: str) -> NodeCheck:
        """See ``Nodes``."""
        answer = self._call(node, ["check"])
        directories = {name: value for name, value in answer.items() if isinstance(value, dict) and name != "images"}
        return NodeCheck(answer["version"], directories, answer["images"], answer["time"], answer["bridge"])

    def reach(self, node: str, other: str) -> Reach:
        """See ``Nodes``."""
        answer = self._call(node, ["reach", other])
        return Reach(answer["agent"], answer["libvirt"])

    def close(self) -> None:
        """See ``Nodes``."""
        with self._lock:
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.drop()

    def _call(
        self,
        node: str,
        words: list[str],
        *,
        shared: bool = False,
        content: bytes = b"",
        timeout_s: float | None = None,
        advance: Any = None,
    ) -> dict[str, Any]:
        """Run one verb and return the object it prints."""
        deadline = time.monotonic() + (self._call_timeout_s if timeout_s is None else timeout_s)
        command = shlex.join([*words, *(["--shared"] if shared else [])])
        with self._lock:
            link = self._links.setdefault(node, _Link(node, self))
        what = f"{words[0]} on {node}"
        with link.channel(deadline) as channel:
            try:
                _set_deadline(channel, deadline)
                channel.exec_command(command)
                if content:
                    channel.sendall(content)
                channel.shutdown_write()
                answer = self._read(channel, deadline, what, advance)
            except TimeoutError:
                raise TimedOutError(f"{what} did not end in time") from None
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise UnavailableError(f"{what}: the connection broke: {error}") from None
        if "error" in answer:
            raise _ERROR_KINDS.get(str(answer.get("kind")), OperationFailedError)(f"{node}: {answer['error']}")
        return answer

    @staticmethod
    def _read(channel: paramiko.Channel, deadline: float, what: str, advance: Any) -> dict[str, Any]:
        pending, answer = b"", None
        while True:
            _set_deadline(channel, deadline)
            chunk = channel.recv(65536)
            *lines, pending = (pending + chunk).split(b"\n")
            if not chunk:
                lines.append(pending)
            for line in filter(None, lines):
                try:
                    answer = json.loads(line)
                except ValueError:
                    raise OperationFailedError(f"{what}: unexpected answer {line[:200]!r}") from None
                if set(answer) == {"bytes_done"} and advance:
                    advance(answer["bytes_done"])
            if not chunk:
                break
        if not isinstance(answer, dict) or set(answer) == {"bytes_done"}:
            errors = b""
            with suppress(TimeoutError, socket.timeout):
                errors = channel.recv_stderr(2000)
            text = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise OperationFailedError(f"{what}: the agent ended without an answer: {text or 'no message'}")
        return answer


def _set_deadline(channel: paramiko.Channel, deadline: float) -> None:
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    channel.settimeout(remaining_s)
