"""Node agents: what the engine asks of the files on a node (``rmsplugin-node``, docs/protocols.md section 4).

Contract of ``Nodes``, for every implementation:

* Calls block and are bounded in time; they may be made from several threads.
* Every verb is idempotent, except that ``send`` and ``verify`` read the whole file again.
* A node that cannot be reached raises UnavailableError; past ``timeout_s`` TimedOutError is raised, and the outcome has
  to be observed (``stat``, ``list_files``).
* What is not there raises NotFoundError, a full file system NoSpaceError, a file that is not what it should be
  CorruptStateError, anything else OperationFailedError.
"""

from __future__ import annotations

import json
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import paramiko

from rmsplugin.adapters.hypervisor.base import Progress
from rmsplugin.adapters.hypervisor.simulated import SimulatedFiles, SimulatedState
from rmsplugin.errors import (
    CorruptStateError,
    NoSpaceError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A state file under its temporary name."""

    size_bytes: int
    complete: bool  # the hypervisor (or a copy) has finished writing it


@dataclass(frozen=True, slots=True)
class StateFiles:
    """What a node has of one VM's state."""

    final_bytes: int | None
    partial: PartialFile | None
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Digest:
    """Size and BLAKE2b of a state file: what ``seal``, ``send`` and ``verify`` are told to expect."""

    size_bytes: int
    blake2b: str


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The VMs that a node has files of."""

    states: frozenset[str]
    partials: frozenset[str]
    configs: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What ``rmsplugin check`` wants to know of a node."""

    version: str
    directories: Mapping[str, Mapping[str, Any]]  # by setting, e.g. "store": path, exists, owner, mode, free_bytes
    images: Mapping[str, bool]  # path -> readable there
    time: float  # the node's clock, seconds since the epoch
    bridge: bool  # whether the guests' bridge is there


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether one node can reach another, as copies and migrations need it: what is wrong, or nothing."""

    agent: str
    libvirt: str


class Nodes(Protocol):
    """The node agents of all nodes of the cluster."""

    def put_config(self, node: str, vm: str, content: bytes) -> None:
        """Write the VM's configuration file."""
        ...

    def put_seed(self, node: str, vm: str, content: bytes) -> None:
        """Write the VM's cloud-init seed (an ISO image)."""
        ...

    def make_overlay(self, node: str, vm: str, base: str) -> None:
        """Make the VM's qcow2 overlay on a base image that the settings name; one that exists is kept."""
        ...

    def drop_config(self, node: str, vm: str) -> None:
        """Remove the VM's configuration, seed, overlay and console log."""
        ...

    def stat(self, node: str, vm: str, *, shared: bool = False) -> StateFiles:
        """What there is of the VM's state."""
        ...

    def digest(self, node: str, vm: str, *, timeout_s: float, shared: bool = False) -> Digest:
        """Sync and digest the partial file. An incomplete one raises CorruptStateError."""
        ...

    def seal(self, node: str, vm: str, digest: Digest, *, shared: bool = False) -> None:
        """Give the partial file its final name; nothing happens if that was done already."""
        ...

    def verify(self, node: str, vm: str, digest: Digest, *, timeout_s: float, shared: bool = False) -> None:
        """Read the final file. One that differs raises CorruptStateError."""
        ...

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
        """Copy the final file from one node's store to another's, verified where it arrives."""
        ...

    def drop_state(self, node: str, vm: str, *, shared: bool = False) -> None:
        """Remove final and partial file."""
        ...

    def list_files(self, node: str, *, shared: bool = False) -> NodeFiles:
        """All VMs that the node has files of."""
        ...

    def free_bytes(self, node: str, *, shared: bool = False) -> int:
        """Room in the store."""
        ...

    def check(self, node: str) -> NodeCheck:
        """Version, directories and images of the node."""
        ...

    def reach(self, node: str, other: str) -> Reach:
        """Try the other node's agent and libvirt from ``node``."""
        ...

    def close(self) -> None:
        """Drop all connections."""
        ...


_ERROR_KINDS: Mapping[str, type[RmspluginError]] = {
    "not_found": NotFoundError,
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


class SimulatedNodes:
    """``Nodes`` in memory, on the state files of a SimulatedHypervisor."""

    def __init__(
        self,
        files: SimulatedFiles,
        *,
        store: str = "/store",
        shared_store: str = "/shared",
    ) -> None:
        """Use ``files``; ``store`` and ``shared_store`` are the directories of the settings."""
        self._files = files
        self._stores = {False: store, True: shared_store}
        self._configs: dict[tuple[str, str], bytes] = {}
        self._unreachable: set[str] = set()
        self._failures: list[tuple[str, RmspluginError]] = []
        self.calls: list[tuple[str, ...]] = []

    def set_reachable(self, node: str, reachable: bool) -> None:
        """Cut the node's agent off from us, or back on."""
        (self._unreachable.discard if reachable else self._unreachable.add)(node)

    def fail_next(self, method: str, error: RmspluginError) -> None:
        """Let the next call of ``method`` raise ``error`` without having done anything."""
        self._failures.append((method, error))

    def config(self, node: str, vm: str) -> bytes | None:
        """What put_config wrote; None if there is none."""
        return self._configs.get((node, vm))

    def put_config(self, node: str, vm: str, content: bytes) -> None:
        """See ``Nodes``."""
        self._enter("put_config", node, vm)
        self._configs[node, vm] = content

    def put_seed(self, node: str, vm: str, content: bytes) -> None:
        """See ``Nodes``."""
        self._enter("put_seed", node, vm)
        self._configs[node, vm] = content

    def make_overlay(self, node: str, vm: str, base: str) -> None:
        """See ``Nodes``."""
        self._enter("make_overlay", node, vm)
        self._configs.setdefault((node, vm), base.encode())

    def drop_config(self, node: str, vm: str) -> None:
        """See ``Nodes``."""
        self._enter("drop_config", node, vm)
        self._configs.pop((node, vm), None)

    def stat(self, node: str, vm: str, *, shared: bool = False) -> StateFiles:
        """See ``Nodes``."""
        self._enter("stat", node, vm)
        final, part = self._final(node, vm, shared), self._partial(node, vm, shared)
        return StateFiles(
            final.size_bytes if final else None,
            PartialFile(part.size_bytes, part.complete) if part else None,
            self._files.free_bytes(node, self._path(vm, shared)),
        )

    def digest(self, node: str, vm: str, *, timeout_s: float, shared: bool = False) -> Digest:
        """See ``Nodes``."""
        self._enter("digest", node, vm)
        part = self._partial(node, vm, shared)
        if part is None:
            raise NotFoundError(f"{node} has no partial state of {vm}")
        if not part.complete:
            raise CorruptStateError(f"the partial state of {vm} on {node} is incomplete")
        return Digest(part.size_bytes, part.blake2b)

    def seal(self, node: str, vm: str, digest: Digest, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._enter("seal", node, vm)
        part = self._partial(node, vm, shared)
        if part is None:
            if self._final(node, vm, shared) is None:
                raise NotFoundError(f"{node} has no state of {vm}")
            return
        if part.blake2b != digest.blake2b:
            raise CorruptStateError(f"the partial state of {vm} on {node} is not the one to seal")
        self._files.drop(node, self._path(vm, shared) + ".partial")
        self._files.put(node, self._path(vm, shared), part)

    def verify(self, node: str, vm: str, digest: Digest, *, timeout_s: float, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._enter("verify", node, vm)
        self._verified(node, vm, digest, shared)

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
        self._enter("send", source, vm, destination)
        state = self._verified(source, vm, digest, False)
        if destination in self._unreachable:
            raise OperationFailedError(f"{source} cannot reach {destination}")
        self._files.put(destination, self._path(vm, False), replace(state))
        if progress:
            progress(state.size_bytes, state.size_bytes)

    def drop_state(self, node: str, vm: str, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._enter("drop_state", node, vm)
        self._files.drop(node, self._path(vm, shared))
        self._files.drop(node, self._path(vm, shared) + ".partial")

    def list_files(self, node: str, *, shared: bool = False) -> NodeFiles:
        """See ``Nodes``."""
        self._enter("list_files", node)
        prefix = self._stores[shared] + "/"
        names = [path.removeprefix(prefix) for path in self._files.paths(node) if path.startswith(prefix)]
        return NodeFiles(
            frozenset(name.removesuffix(".state") for name in names if name.endswith(".state")),
            frozenset(name.removesuffix(".state.partial") for name in names if name.endswith(".state.partial")),
            frozenset(vm for owner, vm in self._configs if owner == node),
        )

    def free_bytes(self, node: str, *, shared: bool = False) -> int:
        """See ``Nodes``."""
        self._enter("free_bytes", node)
        return self._files.free_bytes(node, self._stores[shared] + "/")

    def check(self, node: str) -> NodeCheck:
        """See ``Nodes``."""
        self._enter("check", node)
        return NodeCheck("simulated", {}, {}, 0.0, True)

    def reach(self, node: str, other: str) -> Reach:
        """See ``Nodes``."""
        self._enter("reach", node, other)
        return Reach("", f"{other} is cut off" if other in self._unreachable else "")

    def close(self) -> None:
        """See ``Nodes``."""

    def _path(self, vm: str, shared: bool) -> str:
        return f"{self._stores[shared]}/{vm}.state"

    def _final(self, node: str, vm: str, shared: bool) -> SimulatedState | None:
        return self._files.get(node, self._path(vm, shared))

    def _partial(self, node: str, vm: str, shared: bool) -> SimulatedState | None:
        return self._files.get(node, self._path(vm, shared) + ".partial")

    def _verified(self, node: str, vm: str, digest: Digest, shared: bool) -> SimulatedState:
        final = self._final(node, vm, shared)
        if final is None:
            raise NotFoundError(f"{node} has no state of {vm}")
        if (final.size_bytes, final.blake2b) != (digest.size_bytes, digest.blake2b):
            raise CorruptStateError(f"the state of {vm} on {node} is not what was saved")
        return final

    def _enter(self, method: str, node: str, *words: str) -> None:
        self.calls.append((method, node, *words))
        if node in self._unreachable:
            raise UnavailableError(f"the node agent of {node} cannot be reached")
        for failure in self._failures:
            if failure[0] == method:
                self._failures.remove(failure)
                raise failure[1]
