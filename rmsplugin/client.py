"""Engine client: how wrapper, hooks and command line talk to the engine, and make sure that it is the engine.

Standard library only: the hooks and the wrapper import it on every vjob's way through Slurm. The protocol is in
docs/protocols.md, section 2; the engine's half of it is ``rmsplugin/engine/sealing.py``.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import secrets
import socket
import urllib.parse
from collections.abc import Mapping
from typing import Any

from rmsplugin.adapters import munge
from rmsplugin.errors import (
    ForbiddenError,
    NotFoundError,
    OperationFailedError,
    RefusedError,
    RmspluginError,
    UnavailableError,
)

SCHEME = "Munge"
SEALED_TYPE = "application/x-munge"

_MAX_ANSWER_BYTES = 4 << 20  # a credential holds 1 MiB; a plain list of a large cluster's vjobs a few
# What an HTTP request line can carry as it is; both sides compare the path as it travels, so nobody may re-encode it.
_PATH = re.compile(r"/[!-~]*")

_ERRORS: dict[int, type[RmspluginError]] = {
    400: RefusedError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: RefusedError,
}


class EngineClient:
    """Sends one request at a time to the engine; keeps no connection, so it survives the engine's restarts."""

    def __init__(self, host: str, port: int, *, unix_path: str, engine_uid: int, munge_socket: str) -> None:
        """For ``unix`` and ``tcp``, which see."""
        self._host = host
        self._port = port
        self._unix_path = unix_path
        self._engine_uid = engine_uid
        self._munge_socket = munge_socket

    @classmethod
    def unix(cls, path: str) -> EngineClient:
        """Return a client of the engine on this host; the kernel tells the engine who we are."""
        return cls("localhost", 0, unix_path=path, engine_uid=-1, munge_socket="")

    @classmethod
    def tcp(cls, url: str, engine_uid: int, *, munge_socket: str = "") -> EngineClient:
        """Return a client of an engine on another host; munge tells each side who the other is.

        Args:
            url: ``http://HOST:PORT`` of the engine.
            engine_uid: user id of ``engine.user``; answers of anybody else, root excepted, are refused.
            munge_socket: munged's socket, when it is not the default one.

        Raises:
            RefusedError: the URL is not of that form.
        """
        parts = urllib.parse.urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "http" or not parts.hostname or not port or parts.path not in ("", "/"):
            raise RefusedError(f"engine.url is {url!r}; it has to be of the form http://HOST:PORT")
        return cls(parts.hostname, port, unix_path="", engine_uid=engine_uid, munge_socket=munge_socket)

    def __str__(self) -> str:
        return self._unix_path or f"{self._host}:{self._port}"

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """Send one request and return the body of the answer.

        Args:
            method: ``GET`` or ``POST``.
            path: path and query, percent-encoded.
            body: sent as JSON.
            timeout_s: longest silence of the engine to put up with; longer than the ``wait`` of the query.

        Raises:
            UnavailableError: the engine cannot be reached, broke off, or says that it cannot answer now.
            ForbiddenError: 401, 403, or an answer that does not come from the engine.
            NotFoundError: 404.
            RefusedError: 400, 409.
        """
        if not _PATH.fullmatch(path):
            raise RefusedError(f"not a path of the engine's API: {path!r}")
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        nonce = ""
        if not self._unix_path:
            nonce = secrets.token_hex(16)
            headers["Authorization"] = f"{SCHEME} {self._credential(method, path, data, nonce)}"
        status, content_type, answer = self._exchange(method, path, data, headers, timeout_s)
        if self._unix_path:
            return self._checked(status, _json_object(answer, str(self)))
        if content_type != SEALED_TYPE:
            # Anybody can answer this much; no word of it is believed beyond that it did not work.
            if status == 401:
                raise ForbiddenError(f"the engine at {self} does not accept this host's MUNGE credentials")
            raise UnavailableError(f"{self} answered, but not as the engine does (HTTP status {status})")
        return self._checked(*self._unsealed(answer, nonce))

    def _credential(self, method: str, path: str, data: bytes, nonce: str) -> str:
        claim = {"method": method, "path": path, "sha256": hashlib.sha256(data).hexdigest(), "nonce": nonce}
        return munge.encode(json.dumps(claim).encode(), socket=self._munge_socket)

    def _exchange(
        self, method: str, path: str, data: bytes, headers: dict[str, str], timeout_s: float
    ) -> tuple[int, str, bytes]:
        connection: http.client.HTTPConnection
        if self._unix_path:
            connection = _UnixConnection(self._unix_path, timeout_s)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, body=data or None, headers=headers)
            response = connection.getresponse()
            answer = response.read(_MAX_ANSWER_BYTES + 1)
            content_type = response.headers.get_content_type()
        except TimeoutError:
            raise UnavailableError(f"the engine at {self} did not answer within {timeout_s:.0f} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"the engine at {self} cannot be reached: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if len(answer) > _MAX_ANSWER_BYTES:
            raise OperationFailedError(f"the answer of the engine at {self} is larger than {_MAX_ANSWER_BYTES} bytes")
        return response.status, content_type, answer

    def _unsealed(self, answer: bytes, nonce: str) -> tuple[int, dict[str, Any]]:
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
        message = str(body.get("error") or f"HTTP status {status} without a reason")
        raise _ERRORS.get(status, UnavailableError)(message)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _json_object(data: bytes, sender: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UnavailableError(f"{sender} answered, but not as the engine does")
    return value
