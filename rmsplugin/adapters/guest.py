"""Guests: what the engine does inside a VM after it has booted or was restored, over ssh as root.

Contract of ``Guests``, for every implementation:

* Calls block, and are bounded in time by ``timeout_s``. They may be called from several threads.
* Every call is idempotent. A guest is addressed by its address and proves itself by its host key; nothing is sent to a
  guest that cannot.
* A guest that does not answer (yet) raises UnavailableError, one that shows another host key or does not take the
  engine's key raises ForbiddenError, and one where a command fails raises OperationFailedError.
"""

from __future__ import annotations

import io
import logging
import re
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Protocol

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rmsplugin.errors import ForbiddenError, OperationFailedError, RefusedError, TimedOutError, UnavailableError

SSH_PORT = 22

# A cut connection is an exception here. What paramiko's threads say of it as well must not get into the output of a job
# or a command, where Python writes what no handler takes; the engine's log does take it.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_RETRY_S = 0.3
#: How long a command in a guest goes on after it has become pointless.
_CHECK_S = 1.0
_OUTPUT_LIMIT = 4096
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")
_PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2}")

# /run may be mounted noexec (initramfs-tools does so). The tools replace their former selves by rename or unlink, as
# every tar does, so that those that run keep reading the file they were started from.
_UNPACK = (
    "set -e; umask 022; mkdir -p /run/rmsplugin; "
    "if awk '$2 == \"/run\" && $4 ~ /(^|,)noexec(,|$)/ { found = 1 } END { exit !found }' /proc/mounts && "
    "! awk '$2 == \"/run/rmsplugin\" { found = 1 } END { exit !found }' /proc/mounts; "
    "then mount -t tmpfs -o mode=0755,nosuid,nodev rmsplugin /run/rmsplugin; fi; "
    "tar -x -f - -C /run/rmsplugin; exec /run/rmsplugin/bin/configure"
)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An ed25519 key of ours: of a vjob, or of a VM's ssh server."""

    private_openssh: str = field(repr=False)
    public: str


def generate_keypair() -> KeyPair:
    """Make an ed25519 key pair; ``public`` is ``ssh-ed25519 AAAA...`` without a comment."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())


@dataclass(frozen=True, slots=True)
class GuestVM:
    """One VM of a vjob, as the other VMs have to know it."""

    name: str
    address: str
    host_key: str


@dataclass(frozen=True, slots=True)
class GuestMount:
    """A file system that the guest mounts."""

    source: str
    target: str
    type: str
    options: str


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """All that makes a booted image a VM of its vjob. ``vms`` are all VMs of the vjob, ``index`` is this one."""

    job_id: int
    index: int
    vms: tuple[GuestVM, ...]
    cpus: int
    memory_mib: int
    ntasks: int
    cpus_per_task: int
    user: str
    uid: int
    gid: int
    home: str
    shell: str
    key: KeyPair
    mounts: tuple[GuestMount, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would not survive the files below, or must not be.

        Raises:
            RefusedError: names the value.
        """
        if not 0 <= self.index < len(self.vms):
            raise RefusedError(f"VM number {self.index} of {len(self.vms)}")
        if not _USER.fullmatch(self.user):
            raise RefusedError(f"user name {self.user!r} cannot be given to a guest")
        if self.uid < 1 or self.gid < 0:
            # The guest's root is the engine's; a script that runs as root would be, too.
            raise RefusedError("root cannot run vjobs")
        for what in (self.home, self.shell):
            if not what.startswith("/") or not what.isprintable() or ":" in what or '"' in what:
                raise RefusedError(f"home or shell {what!r} of {self.user} cannot be given to a guest")
        for vm in self.vms:
            if not (
                _HOST_NAME.fullmatch(vm.name)
                and _ADDRESS.fullmatch(vm.address)
                and _PUBLIC_KEY.fullmatch(vm.host_key.strip())
            ):
                raise RefusedError(f"VM {vm.name!r} at {vm.address!r} cannot be told to a guest")
        for mount in self.mounts:
            words = (mount.source, mount.target, mount.type, mount.options)
            if any(not word or word.split() != [word] or not word.isprintable() for word in words):
                raise RefusedError(f"mount {mount.target!r} has an empty word, or a space in one")

    def files(self) -> dict[str, str]:
        """Content of the files in /run/rmsplugin/etc, by name (docs/protocols.md, section 3)."""
        facts = {
            "job_id": self.job_id,
            "index": self.index,
            "vms": len(self.vms),
            "cpus": self.cpus,
            "memory_mib": self.memory_mib,
            "ntasks": self.ntasks,
            "cpus_per_task": self.cpus_per_task,
            "user": self.user,
            "uid": self.uid,
            "gid": self.gid,
            "home": self.home,
            "shell": self.shell,
        }
        # One name a line: dropbear's client does not read lists of names.
        known_hosts = [f"{name} {vm.host_key.strip()}" for vm in self.vms for name in (vm.name, vm.address)]
        return {
            "vjob": _lines(f"{key}={value}" for key, value in facts.items()),
            "hosts": _lines(f"{vm.address} {vm.name}" for vm in self.vms),
            "hostfile": _lines(vm.name for vm in self.vms),
            "known_hosts": _lines(known_hosts),
            "id_ed25519": self.key.private_openssh.strip() + "\n",
            "id_ed25519.pub": self.key.public.strip() + "\n",
            "mounts": _lines(f"{m.source} {m.target} {m.type} {m.options}" for m in self.mounts),
        }

    def archive(self) -> bytes:
        """Return the tar archive that is unpacked in /run/rmsplugin: tools in ``bin``, files in ``etc``."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for tool in sorted(resources.files("rmsplugin").joinpath("guest_tools").iterdir(), key=lambda p: p.name):
                if tool.is_file():
                    _add(archive, f"bin/{tool.name}", tool.read_bytes(), mode=0o755)
            for name, content in self.files().items():
                secret = name == "id_ed25519"
                owner = (self.uid, self.gid) if secret else (0, 0)
                _add(archive, f"etc/{name}", content.encode(), mode=0o600 if secret else 0o644, owner=owner)
        return buffer.getvalue()


class Guests(Protocol):
    """The insides of all VMs; see the module's contract."""

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """Return when the guest lets the engine in as root.

        ``check`` is called before each attempt; what it raises ends the wait. Raises UnavailableError when time is up,
        ForbiddenError.
        """
        ...

    def configure(
        self,
        address: str,
        host_key: str,
        config: GuestConfig,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the guest a VM of its vjob: tools, names, account, keys, mounts.

        ``check`` is called now and then; what it raises ends the wait for the guest. Raises OperationFailedError (with
        the guest's words), TimedOutError, UnavailableError, ForbiddenError.
        """
        ...

    def set_clock(self, address: str, host_key: str, *, timeout_s: float) -> None:
        """Set the guest's clock to this host's. Raises as ``configure``."""
        ...


class SshGuests:
    """Guests reached by ssh. Makes one connection a call: calls are rare, and VMs move between them."""

    def __init__(
        self,
        engine_private_key: str,
        *,
        port: int = SSH_PORT,
        connect_timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the engine's private key, the text of an OpenSSH key file.

        Raises:
            RefusedError: it is not an ed25519 key, or has a passphrase.
        """
        try:
            self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(engine_private_key))
        except (paramiko.SSHException, ValueError, IndexError):
            raise RefusedError(
                "the engine's key is not an ed25519 key in OpenSSH's form without a passphrase"
            ) from None
        self._port = port
        self._connect_timeout_s = connect_timeout_s
        self._clock = clock

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """See Guests."""
        deadline = time.monotonic() + timeout_s
        while True:
            check()
            left = max(deadline - time.monotonic(), 0.1)
            try:
                self._run(address, host_key, "true", b"", timeout_s=min(left, self._connect_timeout_s))
                return
            except (UnavailableError, TimedOutError) as error:
                if time.monotonic() + _RETRY_S >= deadline:
                    raise UnavailableError(f"guest {address} is not up after {timeout_s:.0f} s: {error}") from None
            time.sleep(_RETRY_S)

    def configure(
        self,
        address: str,
        host_key: str,
        config: GuestConfig,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """See Guests."""
        self._run(address, host_key, _UNPACK, config.archive(), timeout_s=timeout_s, check=check)

    def set_clock(self, address: str, host_key: str, *, timeout_s: float) -> None:
        """See Guests.

        GNU date takes the fraction; busybox does not and gets whole seconds, at the instant when one begins.
        """
        with self._connection(address, host_key, timeout_s=timeout_s) as transport:
            now = self._clock()
            # The answer to the first try tells the time that the way there takes, the connection being set up.
            status, _ = self._exec(transport, f"date -u -s @{now:.6f} >/dev/null 2>&1", b"", timeout_s)
            if status == 0:
                return
            now = self._clock()
            time.sleep(1 - now % 1)
            self._check(address, *self._exec(transport, f"date -u -s @{int(now) + 1} >/dev/null", b"", timeout_s))

    def _run(
        self,
        address: str,
        host_key: str,
        command: str,
        data: bytes,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        with self._connection(address, host_key, timeout_s=timeout_s) as transport:
            self._check(address, *self._exec(transport, command, data, timeout_s, check))

    def _check(self, address: str, status: int, output: str) -> None:
        if status != 0:
            words = " ".join(output.split()) or "no reason given"
            raise OperationFailedError(f"guest {address}: {words} (exit code {status})")

    @contextmanager
    def _connection(self, address: str, host_key: str, *, timeout_s: float) -> Iterator[paramiko.Transport]:
        timeout_s = min(timeout_s, self._connect_timeout_s)
        transport = open_transport(address, self._port, host_key, timeout_s=timeout_s)
        try:
            login(transport, "root", self._key, timeout_s=timeout_s)
            yield transport
        finally:
            transport.close()

    def _exec(
        self,
        transport: paramiko.Transport,
        command: str,
        data: bytes,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[int, str]:
        """Run one command and return its exit status and what it said (both streams, the beginning)."""
        deadline = time.monotonic() + timeout_s
        try:
            channel = transport.open_session(timeout=timeout_s)
            # From here on paramiko's own waits, for the answer to the request among them, are bounded by this.
            channel.settimeout(timeout_s)
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            channel.sendall(data)
            channel.shutdown_write()
            output = _read(channel, deadline, check)
            if not channel.status_event.wait(max(deadline - time.monotonic(), 0.1)):
                raise TimedOutError(f"the guest did not finish within {timeout_s:.0f} s")
        except TimeoutError:
            raise TimedOutError(f"the guest did not finish within {timeout_s:.0f} s") from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise UnavailableError(f"the guest broke off the connection: {error}") from None
        if channel.exit_status < 0:
            raise UnavailableError("the guest broke off the connection")
        return channel.exit_status, output.decode("utf-8", "replace")


def _read(channel: paramiko.Channel, deadline: float, check: Callable[[], None]) -> bytes:
    """Read all that a command says, and return the beginning. Raises TimeoutError, and what ``check`` raises."""
    output = b""
    while True:
        check()
        channel.settimeout(min(_CHECK_S, max(deadline - time.monotonic(), 0.1)))
        try:
            chunk = channel.recv(_OUTPUT_LIMIT)
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise
            continue
        if not chunk:
            return output
        output = (output + chunk)[:_OUTPUT_LIMIT]


def open_transport(address: str, port: int, host_key: str, *, timeout_s: float) -> paramiko.Transport:
    """Connect to an ssh server that has ``host_key``, and to none that has another.

    Raises:
        UnavailableError: nothing answers there, or not in time.
        ForbiddenError: it has another key.
    """
    wanted_type, _, wanted = host_key.strip().partition(" ")
    try:
        connection = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        raise UnavailableError(f"guest {address} cannot be reached: {error}") from None
    # Small questions and answers: each would wait for the acknowledgement of the one before.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = paramiko.Transport(connection)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = timeout_s
    transport.daemon = True
    try:
        transport.get_security_options().key_types = (wanted_type,)
        transport.start_client(timeout=timeout_s)
        shown = transport.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
        transport.close()
        raise UnavailableError(f"guest {address} does not answer as an ssh server: {error}") from None
    if shown.get_name() != wanted_type or shown.get_base64() != wanted.partition(" ")[0]:
        transport.close()
        raise ForbiddenError(f"guest {address} shows another host key than its own; nothing was sent to it")
    return transport


def login(transport: paramiko.Transport, user: str, key: paramiko.PKey, *, timeout_s: float) -> None:
    """Log in by public key.

    Raises:
        ForbiddenError: the server does not take the key.
        UnavailableError: the connection broke, or it took too long.
    """
    transport.auth_timeout = timeout_s
    try:
        transport.auth_publickey(user, key)
    except paramiko.AuthenticationException as error:
        if "timeout" in str(error).lower() or not transport.is_active():
            raise UnavailableError(f"the guest broke off the login of {user}: {error}") from None
        raise ForbiddenError(f"the guest does not take the key of {user}") from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise UnavailableError(f"the guest broke off the login of {user}: {error}") from None


@dataclass
class SimulatedGuest:
    """One guest that a test, or the simulator, has put at an address."""

    host_key: str
    config: GuestConfig | None = None
    clock_set: int = 0


class SimulatedGuests:
    """Guests that keep state, take the time they are told to, and fail on command."""

    def __init__(self, sleep: Callable[[float], None] = lambda _seconds: None) -> None:
        """Take what passes (virtual) time."""
        self._sleep = sleep
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, str], list[Exception]] = {}
        self.guests: dict[str, SimulatedGuest] = {}
        self.ready_s = 0.0
        self.configure_s = 0.0

    def add(self, address: str, host_key: str) -> None:
        """A guest answers at the address from now on."""
        with self._lock:
            self.guests[address] = SimulatedGuest(host_key)

    def remove(self, address: str) -> None:
        """Nothing answers there any more."""
        with self._lock:
            self.guests.pop(address, None)

    def fail(self, verb: str, address: str, error: Exception, *, times: int = 1) -> None:
        """Have the next calls of ``verb`` (a method's name) for the address raise."""
        with self._lock:
            self._failures.setdefault((verb, address), []).extend([error] * times)

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """See Guests."""
        check()
        self._sleep(min(self.ready_s, timeout_s))
        self._guest("wait_ready", address, host_key)
        if self.ready_s > timeout_s:
            raise UnavailableError(f"guest {address} is not up after {timeout_s:.0f} s")

    def configure(
        self,
        address: str,
        host_key: str,
        config: GuestConfig,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """See Guests."""
        check()
        self._sleep(min(self.configure_s, timeout_s))
        guest = self._guest("configure", address, host_key)
        if self.configure_s > timeout_s:
            raise TimedOutError(f"the guest did not finish within {timeout_s:.0f} s")
        guest.config = config

    def set_clock(self, address: str, host_key: str, *, timeout_s: float) -> None:
        """See Guests."""
        del timeout_s
        self._guest("set_clock", address, host_key).clock_set += 1

    def _guest(self, verb: str, address: str, host_key: str) -> SimulatedGuest:
        with self._lock:
            failures = self._failures.get((verb, address))
            if failures:
                raise failures.pop(0)
            guest = self.guests.get(address)
        if guest is None:
            raise UnavailableError(f"guest {address} cannot be reached")
        if guest.host_key != host_key:
            raise ForbiddenError(f"guest {address} shows another host key than its own; nothing was sent to it")
        return guest


def _lines(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int, owner: tuple[int, int] = (0, 0)) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    member.uid, member.gid = owner
    archive.addfile(member, io.BytesIO(content))
