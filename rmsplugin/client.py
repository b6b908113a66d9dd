"""Engine client: how wrapper, hooks and command line talk to the engine, and make sure that it is the engine.

Standard library only: the hooks and the wrapper import it on every vjob's way through Slurm. The protocol is in
docs/protocols.md, section 2; the engine's half of it is ``rmsplugin/engine/serve/sealing.py``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping

from rmsplugin.errors import (
    ForbiddenError,
    NotFoundError,
    OperationFailedError,
    RefusedError,
    RmspluginError,
    SilentError,
    UnavailableError,
    UnreachableError,
)

# A front has a thousand wrappers: typing, and modules that only the way over TCP needs, are imported where needed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEME = "Munge"
SEALED_TYPE = "application/x-munge"

_CHUNK_BYTES = 1 << 16
_MAX_HEAD_BYTES = 16 << 10
_MAX_ANSWER_BYTES = 4 << 20  # a credential holds 1 MiB; a plain list of a large cluster's vjobs a few
#: No answer has more, with its head.
MAX_MESSAGE_BYTES = _MAX_HEAD_BYTES + _MAX_ANSWER_BYTES
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |$)")
# The characters that an HTTP request line can carry as they are. Both sides compare the path as it travels, so nobody
# may re-encode it.
_PATH = re.compile(r"/[!-~]*")

# A wrapper sends nothing else for hours, and does without hashlib for it.
_SHA256_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

_ERRORS: dict[int, type[RmspluginError]] = {
    400: RefusedError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: RefusedError,
}

#: States of a vjob whose VMs will come up for the run that Slurm is preparing: its prolog goes on waiting.
COMING = frozenset({"starting", "pausing", "paused", "unpausing", "suspending", "sleeping", "resuming"})

#: A request that an engine answers at once, whatever else it does, without munge.
LOOK_PATH = "/v1/alive"
LOOK = f"GET {LOOK_PATH} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n".encode()
#: The beginning of the answer of an engine that takes no request now, for it cannot check who sends it.
_CANNOT_HEAR = b"HTTP/1.1 503"
#: Where there are several addresses, an engine that has not answered a look within so many seconds is passed over.
LOOK_S = 1.0

# Where there are several addresses, a host of which nothing is heard for so long, not even that it has got the request,
# is given up: seconds after which the kernel begins to ask, between two questions, and, in milliseconds, until it ends.
_ASKED_AFTER_S, _ASKED_EVERY_S, _UNHEARD_MS = 5, 2, 8_000

#: The number of words that ``EngineClient.words`` makes.
WORDS = 5


class EngineClient:
    """Sends one request at a time to the engine; keeps no connection, so it survives the engine's restarts.

    Of several addresses it asks the one that answered last, and the next one where that does not answer a look: the
    kernel of a stopped engine takes connections on. Nothing was asked of it then, so nothing is asked twice.
    """

    def __init__(self, addresses: list[tuple[str, int]], *, unix_path: str, engine_uid: int, munge_socket: str) -> None:
        """For ``unix`` and ``tcp``; see there."""
        self._addresses = addresses  # each host and port; the first one is asked first
        self._unix_path = unix_path
        self._engine_uid = engine_uid
        self._munge_socket = munge_socket

    @classmethod
    def unix(cls, path: str) -> EngineClient:
        """Return a client of the engine on this host; the kernel tells the engine who we are."""
        return cls([("localhost", 0)], unix_path=path, engine_uid=-1, munge_socket="")

    @classmethod
    def tcp(cls, url: str, engine_uid: int, *, munge_socket: str = "") -> EngineClient:
        """Return a client of an engine on another host; munge tells each side who the other is.

        Args:
            url: ``http://HOST:PORT`` of the engine; of several, with blanks between, the one that answers is asked.
            engine_uid: user id of ``engine.user``; answers of all other users but root are refused.
            munge_socket: munged's socket, if it is not the default one.

        Raises:
            RefusedError: the URL is not of that form.
        """
        addresses = [_address(each) for each in url.split() or [url]]
        return cls(addresses, unix_path="", engine_uid=engine_uid, munge_socket=munge_socket)

    @classmethod
    def from_words(cls, words: list[str]) -> EngineClient:
        """Return the client that another process described by ``words``."""
        unix_path, hosts, ports, engine_uid, munge_socket = words
        addresses = [(host, int(port)) for host, port in zip(hosts.split(","), ports.split(","), strict=True)]
        return cls(addresses, unix_path=unix_path, engine_uid=int(engine_uid), munge_socket=munge_socket)

    def words(self) -> list[str]:
        """The input of ``from_words``: ``WORDS`` words, none a secret."""
        hosts, ports = (",".join(str(address[part]) for address in self._addresses) for part in (0, 1))
        return [self._unix_path, hosts, ports, str(self._engine_uid), self._munge_socket]

    @property
    def addresses(self) -> int:
        """How many addresses there are to ask."""
        return len(self._addresses)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are asked first."""
        return self._addresses[0]

    def __str__(self) -> str:
        return self._unix_path or "{}:{}".format(*self._addresses[0])

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = 30.0,
        looks: bool | None = None,
    ) -> dict[str, Any]:
        """Send one request and return the body of the answer.

        Args:
            method: ``GET`` or ``POST``.
            path: path and query, percent-encoded.
            body: sent as JSON.
            timeout_s: the longest silence of the engine that is put up with; longer than the ``wait`` of the query.
            looks: whether an engine has to answer a look first; None: where there are several addresses.

        Raises:
            SilentError: it took a connection, and did not answer the look.
            UnreachableError: no connection came about, to none of the addresses.
            UnavailableError: the engine cannot be reached, broke off, or says that it cannot answer now.
            ForbiddenError: 401, 403, or an answer that does not come from the engine.
            NotFoundError: 404.
            RefusedError: 400, 409.
        """
        data = b"" if body is None else json.dumps(body).encode()
        if len(self._addresses) == 1:
            return self._ask(method, path, data, timeout_s, bool(looks))
        silent: list[tuple[str, int]] = []
        for _ in self._addresses:
            try:
                return self._ask(method, path, data, timeout_s, True)
            except UnavailableError as error:
                if isinstance(error, SilentError):
                    silent.append(self._addresses[0])
                # An engine that answers nothing, or no more, may have been followed by another one: that one is asked
                # next time. It is asked at once only where the request was not sent. Other threads see a whole list.
                self._addresses = [*self._addresses[1:], self._addresses[0]]
                if not isinstance(error, UnreachableError):
                    raise
                last = error
        if not silent:
            raise last
        # Nobody answers. Those that took a connection may be slow: they are given the caller's own patience.
        self._addresses = [*silent, *(each for each in self._addresses if each not in silent)]
        return self._ask(method, path, data, timeout_s, False)

    def _ask(self, method: str, path: str, data: bytes, timeout_s: float, looks: bool) -> dict[str, Any]:
        """The answer of the engine at the first address; errors as of ``request``."""
        if looks:
            self._await_first_byte(min(LOOK_S, timeout_s))
        message, nonce = self.prepare(method, path, data)
        return self.read(self._exchange(message, timeout_s), nonce)

    def prepare(
        self, method: str, path: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, str]:
        """A request as it goes over the wire, for those who send it themselves; and the nonce of its answer.

        Raises:
            RefusedError: no request can have this path.
            UnavailableError: munged does not answer.
        """
        if not _PATH.fullmatch(path):
            raise RefusedError(f"not a path of the engine's API: {path!r}")
        own = {"Content-Type": "application/json"} if data else {}
        nonce = ""
        if not self._unix_path:
            nonce = os.urandom(16).hex()
            own["Authorization"] = f"{SCHEME} {self._credential(method, path, data, nonce)}"
        # Without http.client: it takes more memory than all other imports of a wrapper.
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._addresses[0][0]}",
            "Connection: close",
            f"Content-Length: {len(data)}",
        ]
        lines += [f"{name}: {value}" for name, value in {**own, **(headers or {})}.items()]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + data, nonce

    def read(self, received: bytes, nonce: str) -> dict[str, Any]:
        """The body of an answer: all that came until the connection was closed. Errors as of ``request``."""
        found = _parse_answer(received)
        if found is None:
            raise UnavailableError(f"the engine at {self} cannot be reached: it broke off, or does not speak HTTP")
        status, content_type, answer = found
        if len(answer) > _MAX_ANSWER_BYTES:
            raise OperationFailedError(f"the answer of the engine at {self} is larger than {_MAX_ANSWER_BYTES} bytes")
        if self._unix_path:
            return self._checked(status, _json_object(answer, str(self)))
        if content_type != SEALED_TYPE:
            # Anybody can send such an answer: nothing of it is believed but that the request failed.
            if status == 401:
                error = ForbiddenError(f"the engine at {self} does not accept this host's MUNGE credentials")
                error.status = status
                raise error
            if status == 503:
                raise UnavailableError(
                    f"the engine at {self} cannot answer now, and says so without MUNGE's proof (HTTP status 503): "
                    "munge may not run on its host; `rmsplugin status` there tells more"
                )
            raise UnavailableError(f"{self} answered, but not as the engine does (HTTP status {status})")
        return self._checked(*self._unsealed(answer, nonce))

    def _credential(self, method: str, path: str, data: bytes, nonce: str) -> str:
        from rmsplugin.adapters import munge

        claim = {"method": method, "path": path, "sha256": _sha256(data), "nonce": nonce}
        return munge.encode(json.dumps(claim).encode(), socket=self._munge_socket)

    def _await_first_byte(self, bound_s: float) -> None:
        """Raises UnreachableError, SilentError: the engine does not answer in time, and nothing was asked of it."""
        until = time.monotonic() + bound_s
        connection = self._connected(bound_s)
        try:
            with connection:
                connection.settimeout(max(0.001, until - time.monotonic()))
                connection.sendall(LOOK)
                cannot_hear = connection.recv(len(_CANNOT_HEAR)) == _CANNOT_HEAR
        except TimeoutError:
            raise SilentError(f"the engine at {self} took a connection, and says nothing") from None
        except OSError as error:
            raise UnreachableError(self._silent(error, bound_s)) from None
        if cannot_hear:
            raise SilentError(f"the engine at {self} cannot hear now: munge does not answer on its host")

    def _exchange(self, message: bytes, timeout_s: float) -> bytes:
        """All that comes until the connection is closed, or is too much."""
        connection = self._connected(timeout_s)
        try:
            with connection:
                connection.settimeout(timeout_s)
                connection.sendall(message)
                received = bytearray()
                while len(received) <= MAX_MESSAGE_BYTES:
                    part = connection.recv(_CHUNK_BYTES)
                    if not part:
                        break
                    received += part
        except OSError as error:
            raise UnavailableError(self._silent(error, timeout_s)) from None
        return bytes(received)

    def _connected(self, timeout_s: float) -> socket.socket:
        """A connection to the engine. Raises UnreachableError."""
        connection = None
        try:
            if not self._unix_path:
                connection = socket.create_connection(self._addresses[0], timeout=timeout_s)
                if len(self._addresses) > 1:
                    _give_up_soon(connection)
                return connection
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(timeout_s)
            connection.connect(self._unix_path)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, OSError):
                raise UnreachableError(self._silent(error, timeout_s)) from None
            raise
        return connection

    def _silent(self, error: OSError, timeout_s: float) -> str:
        if isinstance(error, TimeoutError) and not error.errno:  # the kernel's own has a number
            return f"the engine at {self} did not answer within {timeout_s:.0f} s"
        return f"the engine at {self} cannot be reached: {error or type(error).__name__}"

    def _unsealed(self, answer: bytes, nonce: str) -> tuple[int, dict[str, Any]]:
        from rmsplugin.adapters import munge

        credential = munge.decode(answer.decode("ascii", "replace"), socket=self._munge_socket)
        if credential.uid not in (self._engine_uid, 0):
            raise ForbiddenError(
                f"{self} answered as uid {credential.uid}, not as the engine (engine.user is uid {self._engine_uid})"
            )
        sealed = _json_object(credential.payload, str(self))
        status, body = sealed.get("status"), sealed.get("body")
        if sealed.get("nonce") != nonce:
            raise ForbiddenError(f"{self} gave the answer to another request")
        if not isinstance(status, int) or not isinstance(body, dict):
            raise UnavailableError(f"{self} answered, but not as the engine does")
        return status, body

    def _checked(self, status: int, body: dict[str, Any]) -> dict[str, Any]:
        if status == 200:
            return body
        error = _ERRORS.get(status, UnavailableError)(
            str(body.get("error") or f"HTTP status {status} without a reason")
        )
        error.status = status
        raise error


def _give_up_soon(connection: socket.socket) -> None:
    """Have a connection end soon after its host is gone from the network: an answer may be waited for much longer."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNHEARD_MS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _ASKED_AFTER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASKED_EVERY_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _address(url: str) -> tuple[str, int]:
    """Host and port. Raises RefusedError."""
    import urllib.parse

    parts = urllib.parse.urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or not port or parts.path not in ("", "/"):
        raise RefusedError(f"engine.url is {url!r}; it has to be of the form http://HOST:PORT")
    return parts.hostname, port


def _parse_answer(received: bytes) -> tuple[int, str, bytes] | None:
    """Status, type and body of an HTTP answer after which the connection was closed; None if it is incomplete."""
    head, end, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    match = _STATUS_LINE.match(first)
    if not end or match is None or len(head) > _MAX_HEAD_BYTES:
        return None
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in headers:
        return None
    if int(length) <= _MAX_ANSWER_BYTES and len(body) != int(length):
        return None
    return int(match[1]), headers.get("content-type", "").partition(";")[0].strip().lower(), body


def _sha256(data: bytes) -> str:
    if not data:
        return _SHA256_OF_NOTHING
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _json_object(data: bytes, sender: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UnavailableError(f"{sender} answered, but not as the engine does")
    return value
