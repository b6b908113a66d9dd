"""The engine's protocol, both halves of it, over a real munged and real sockets."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from others import open_directory
from patience import PATIENCE_S
from unit.munged import Munged

from rmsplugin import client as client_module
from rmsplugin.adapters import munge
from rmsplugin.client import SEALED_TYPE, EngineClient
from rmsplugin.engine.serve.sealing import CallerIdentity, seal_response, verify_request
from rmsplugin.errors import (
    ForbiddenError,
    NotFoundError,
    OperationFailedError,
    RefusedError,
    UnavailableError,
    UnreachableError,
)

NOBODY = 65534

pytestmark = pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with open_directory() as place:  # other users have to reach the socket
        daemon = Munged(place)
        yield daemon
        daemon.stop()


@pytest.fixture(scope="module")
def other_munged() -> Iterator[Munged]:
    with tempfile.TemporaryDirectory() as name:
        daemon = Munged(Path(name))
        yield daemon
        daemon.stop()


# --- credentials ---


def test_credential_says_who_made_it(munged: Munged) -> None:
    payload = b"UID: 7\n\nnot metadata\n\n\x00\xff"
    credential = munge.decode(munge.encode(payload, socket=munged.socket), socket=munged.socket)
    assert (credential.uid, credential.gid, credential.payload) == (os.getuid(), os.getgid(), payload)


@as_root
def test_credential_of_another_user(munged: Munged) -> None:
    assert munge.decode(munged.encode_as(NOBODY, b"x"), socket=munged.socket).uid == NOBODY


def test_credential_counts_once(munged: Munged) -> None:
    text = munge.encode(b"x", socket=munged.socket)
    munge.decode(text, socket=munged.socket)
    with pytest.raises(ForbiddenError, match="used before"):
        munge.decode(text, socket=munged.socket)


def test_credential_expires(munged: Munged) -> None:
    text = munged.encode_as(os.getuid(), b"x", "--ttl=1")
    time.sleep(2)  # munge counts in whole seconds
    with pytest.raises(ForbiddenError, match="expired"):
        munge.decode(text, socket=munged.socket)


def test_credential_for_somebody_else(munged: Munged) -> None:
    text = munge.encode(b"x", restrict_uid=os.getuid() + 1, socket=munged.socket)
    with pytest.raises(ForbiddenError, match="for another user"):
        munge.decode(text, socket=munged.socket)


def test_credential_of_another_key(munged: Munged, other_munged: Munged) -> None:
    with pytest.raises(ForbiddenError, match="this cluster's MUNGE key"):
        munge.decode(munge.encode(b"x", socket=other_munged.socket), socket=munged.socket)


@pytest.mark.parametrize("text", ["", "junk", "MUNGE:AwQFAACi:", "--help", "é"])
def test_no_credential(munged: Munged, text: str) -> None:
    with pytest.raises(ForbiddenError):
        munge.decode(text, socket=munged.socket)


def test_munged_down(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="munged"):
        munge.encode(b"x", socket=str(tmp_path / "none"))
    with pytest.raises(UnavailableError, match="munged"):
        munge.decode("MUNGE:x:", socket=str(tmp_path / "none"))


def test_munged_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen(0)  # one connection waits, a second one is turned away: libmunge gives up after 2 s
        with pytest.raises(UnavailableError, match="munged does not answer"):
            munge.encode(b"x", socket=str(tmp_path / "sock"))


def test_munge_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(munge, "_LIBRARY", "libmunge-of-nowhere.so.2")
    munge._library.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="libmunge2"):
            munge.encode(b"x")
    finally:
        munge._library.cache_clear()


def test_credentials_from_many_threads(munged: Munged) -> None:
    def round_trip(number: int) -> bytes:
        payload = b"%d\0" % number * (number + 1)
        text = munge.encode(payload, restrict_uid=os.getuid(), socket=munged.socket)
        return munge.decode(text, socket=munged.socket).payload

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(round_trip, range(200)))
    assert answers == [b"%d\0" % number * (number + 1) for number in range(200)]


def test_credential_without_payload(munged: Munged) -> None:
    assert munge.decode(munge.encode(b"", socket=munged.socket), socket=munged.socket).payload == b""


def test_nothing_is_added_behind_a_credential(munged: Munged) -> None:
    text = munge.encode(b"x", socket=munged.socket)
    with pytest.raises(ForbiddenError):
        munge.decode(text + "\0more", socket=munged.socket)


def test_payload_too_large(munged: Munged) -> None:
    with pytest.raises(OperationFailedError):
        munge.encode(b"x" * (2 << 20), socket=munged.socket)


# --- requests and answers ---


@dataclass
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    status: int
    body: str
    content_type: str = "application/json"


@dataclass
class FakeEngine:
    """A real server; ``answer`` decides what it says."""

    answer: Callable[[Request], Answer]
    seen: list[Request] = field(default_factory=list)


def _handler(engine: FakeEngine) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def address_string(self) -> str:
            return "test"

        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, self.headers, body)
            if request.path == client_module.LOOK_PATH:
                answer = Answer(200, "{}")
            else:
                engine.seen.append(request)
                answer = engine.answer(request)
            data = answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

    return Handler


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def unix_engine(tmp_path: Path) -> Iterator[tuple[FakeEngine, str]]:
    engine = FakeEngine(lambda request: Answer(200, '{"state": "running"}'))
    path = str(tmp_path / "engine.sock")
    with UnixServer(path, _handler(engine)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield engine, path
        server.shutdown()


@pytest.fixture
def tcp_engine() -> Iterator[tuple[FakeEngine, str]]:
    engine = FakeEngine(lambda request: Answer(500, ""))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(engine)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield engine, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def honest(munged: Munged, status: int = 200, body: Mapping[str, Any] | None = None) -> Callable[[Request], Answer]:
    """What the engine does with a request."""

    def answer(request: Request) -> Answer:
        try:
            identity = verify_request(
                request.headers, request.method, request.path, request.body, munge_socket=munged.socket
            )
        except ForbiddenError as error:
            return Answer(401, json.dumps({"error": str(error)}))
        content = {"uid": identity.uid} if body is None else body
        return Answer(status, seal_response(identity, status, content, munge_socket=munged.socket), SEALED_TYPE)

    return answer


def test_unix_request(unix_engine: tuple[FakeEngine, str]) -> None:
    engine, path = unix_engine
    client = EngineClient.unix(path)
    assert client.request("POST", "/v1/jobs/12_3/finished", {"exit_code": 3}) == {"state": "running"}
    (request,) = engine.seen
    assert (request.method, request.path, request.body) == ("POST", "/v1/jobs/12_3/finished", b'{"exit_code": 3}')
    assert "Authorization" not in request.headers


ERRORS = [
    (400, RefusedError),
    (401, ForbiddenError),
    (403, ForbiddenError),
    (404, NotFoundError),
    (409, RefusedError),
    (500, UnavailableError),
    (503, UnavailableError),
]


@pytest.mark.parametrize(("status", "error"), ERRORS)
def test_unix_errors(unix_engine: tuple[FakeEngine, str], status: int, error: type[Exception]) -> None:
    engine, path = unix_engine
    engine.answer = lambda request: Answer(status, '{"error": "the reason"}')
    with pytest.raises(error, match=r"^the reason$") as caught:
        EngineClient.unix(path).request("GET", "/v1/status")
    assert type(caught.value) is error


@pytest.mark.parametrize("text", ["", "<html>", "[1]", "null"])
def test_unix_answer_of_something_else(unix_engine: tuple[FakeEngine, str], text: str) -> None:
    engine, path = unix_engine
    engine.answer = lambda request: Answer(200, text)
    with pytest.raises(UnavailableError, match="not as the engine does"):
        EngineClient.unix(path).request("GET", "/v1/status")


def test_engine_down(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be reached"):
        EngineClient.unix(str(tmp_path / "none")).request("GET", "/v1/status")


def test_engine_dies_while_answering(tmp_path: Path) -> None:
    path = str(tmp_path / "sock")

    def die() -> None:
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"sta')
        connection.close()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=die, daemon=True).start()
        with pytest.raises(UnavailableError):
            EngineClient.unix(path).request("GET", "/v1/status")


def test_engine_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()
        with pytest.raises(UnavailableError, match="did not answer within"):
            EngineClient.unix(str(tmp_path / "sock")).request("GET", "/v1/status", timeout_s=0.2)


@pytest.mark.parametrize("path", ["", "v1", "/v1/a b", "/v1\r\nX: y", "/é"])
def test_path_that_could_break_the_request_line(path: str) -> None:
    with pytest.raises(RefusedError):
        EngineClient.unix("/nowhere").request("GET", path)


@pytest.mark.parametrize(
    "url", ["", "head:4321", "https://head:4321", "http://head", "http://head:x", "http://h:1/v1", "http://h:1 h:2"]
)
def test_url(url: str) -> None:
    with pytest.raises(RefusedError, match=r"engine\.url"):
        EngineClient.tcp(url, 0)


def tcp_client(url: str, munged: Munged, engine_uid: int | None = None) -> EngineClient:
    return EngineClient.tcp(url, os.getuid() if engine_uid is None else engine_uid, munge_socket=munged.socket)


def test_tcp_request(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine
    engine.answer = honest(munged)
    answer = tcp_client(url, munged).request("POST", "/v1/jobs/12/access?wait=5&host=n1", {"a": 1})
    assert answer == {"uid": os.getuid()}


@pytest.mark.parametrize(("status", "error"), [entry for entry in ERRORS if entry[0] != 401])
def test_tcp_errors(tcp_engine: tuple[FakeEngine, str], munged: Munged, status: int, error: type[Exception]) -> None:
    engine, url = tcp_engine
    engine.answer = honest(munged, status, {"error": "the reason"})
    with pytest.raises(error, match=r"^the reason$"):
        tcp_client(url, munged).request("GET", "/v1/status")


def test_tcp_status_that_was_changed_on_the_way(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine

    def answer(request: Request) -> Answer:
        sealed = honest(munged, 404, {"error": "no such vjob"})(request)
        return Answer(200, sealed.body, sealed.content_type)

    engine.answer = answer
    with pytest.raises(NotFoundError):
        tcp_client(url, munged).request("GET", "/v1/status")


def test_tcp_engine_whose_munge_does_not_answer(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine
    engine.answer = lambda request: Answer(503, '{"error": "munge does not answer on the controller"}')
    with pytest.raises(UnavailableError, match="munge may not run on its host") as caught:
        tcp_client(url, munged).request("GET", "/v1/status")
    assert "on the controller" not in str(caught.value), "nobody has proved who said so"


def test_tcp_unsealed_answer_is_not_believed(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine
    engine.answer = lambda request: Answer(200, '{"state": "running"}')
    with pytest.raises(UnavailableError, match="not as the engine does"):
        tcp_client(url, munged).request("GET", "/v1/status")
    engine.answer = lambda request: Answer(404, '{"error": "no such vjob"}')
    with pytest.raises(UnavailableError):
        tcp_client(url, munged).request("GET", "/v1/status")


def test_tcp_credential_refused(tcp_engine: tuple[FakeEngine, str], munged: Munged, other_munged: Munged) -> None:
    engine, url = tcp_engine
    engine.answer = honest(other_munged)
    with pytest.raises(ForbiddenError, match="does not accept"):
        tcp_client(url, munged).request("GET", "/v1/status")


@as_root
def test_tcp_answer_of_another_user(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine

    def answer(request: Request) -> Answer:
        identity = verify_request(request.headers, request.method, request.path, b"", munge_socket=munged.socket)
        payload = json.dumps({"nonce": identity.nonce, "status": 200, "body": {}}).encode()
        return Answer(200, munged.encode_as(NOBODY, payload, f"--restrict-uid={identity.uid}"), SEALED_TYPE)

    engine.answer = answer
    with pytest.raises(ForbiddenError, match=f"answered as uid {NOBODY}"):
        tcp_client(url, munged, engine_uid=1).request("GET", "/v1/status")
    assert tcp_client(url, munged, engine_uid=NOBODY).request("GET", "/v1/status") == {}


def test_tcp_answer_to_another_request(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine

    def answer(request: Request) -> Answer:
        stale = CallerIdentity(os.getuid(), os.getgid(), "0" * 32)
        return Answer(200, seal_response(stale, 200, {}, munge_socket=munged.socket), SEALED_TYPE)

    engine.answer = answer
    with pytest.raises(ForbiddenError, match="another request"):
        tcp_client(url, munged).request("GET", "/v1/status")


def test_tcp_answer_for_another_user(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> None:
    engine, url = tcp_engine

    def answer(request: Request) -> Answer:
        stranger = CallerIdentity(os.getuid() + 1, 0, "0" * 32)
        return Answer(200, seal_response(stranger, 200, {"private_key": "x"}, munge_socket=munged.socket), SEALED_TYPE)

    engine.answer = answer
    with pytest.raises(ForbiddenError, match="for another user"):
        tcp_client(url, munged).request("GET", "/v1/status")


def test_tcp_engine_down(munged: Munged) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="cannot be reached"):
            tcp_client(url, munged).request("GET", "/v1/status")


# --- engines on several hosts ---


def a_dead_address() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_of_several_engines_the_one_that_answers_is_asked_and_asked_first_next_time(
    tcp_engine: tuple[FakeEngine, str], munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, url = tcp_engine
    engine.answer = honest(munged)
    client = tcp_client(f"{a_dead_address()} {url}", munged)
    tried: list[tuple[tuple[str, int], float]] = []
    connect = socket.create_connection

    def connects(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append((address, timeout))
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", connects)
    for _ in range(2):
        assert client.request("POST", "/v1/jobs/12/started") == {"uid": os.getuid()}
    live = ("127.0.0.1", int(url.rpartition(":")[2]))
    dead = [timeout for address, timeout in tried if address != live]
    assert dead == [1.0], "a dead one costs a second, at the first request"
    assert str(client) == url.removeprefix("http://")
    assert EngineClient.from_words(client.words()).words() == client.words()
    assert client.request("GET", "/v1/status", timeout_s=0.7) and tried[-1][1] == 0.7


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """An engine that was stopped: the kernel still takes connections for it."""
    monkeypatch.setattr(client_module, "LOOK_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def what_it_got(stopped: socket.socket) -> list[bytes]:
    """What waits for an engine that is stopped."""
    stopped.setblocking(False)
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            with stopped.accept()[0] as connection:
                found.append(connection.recv(1 << 16))
    return found


def test_an_engine_that_stands_still_is_asked_nothing_and_the_next_one_is_asked_at_once(
    tcp_engine: tuple[FakeEngine, str], munged: Munged, stopped: socket.socket
) -> None:
    engine, url = tcp_engine
    engine.answer = honest(munged)
    client = tcp_client(f"http://127.0.0.1:{stopped.getsockname()[1]} {url}", munged)
    for _ in range(2):
        assert client.request("POST", "/v1/jobs/12/suspend") == {"uid": os.getuid()}
    assert what_it_got(stopped) == [client_module.LOOK], "it would carry the order out when it goes on"
    assert len(engine.seen) == 2


def test_an_engine_that_cannot_hear_is_asked_nothing_where_there_is_another_one(
    tcp_engine: tuple[FakeEngine, str], munged: Munged
) -> None:
    engine, url = tcp_engine
    engine.answer = honest(munged)
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as deaf:

        def answer_looks() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with deaf.accept()[0] as connection:
                        asked.append(connection.recv(1 << 16))
                        connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer_looks)
        thread.start()
        deaf_url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        assert tcp_client(f"{deaf_url} {url}", munged).request("POST", "/v1/jobs/12/started") == {"uid": os.getuid()}
        assert asked == [client_module.LOOK]
        # Where no other one answers it is asked all the same, with the caller's patience.
        with pytest.raises(UnavailableError, match="HTTP status 503"):
            tcp_client(f"{deaf_url} {a_dead_address()}", munged).request("GET", "/v1/status")
        deaf.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)


def test_where_nobody_answers_a_look_one_that_took_the_connection_is_given_all_the_time_that_the_caller_has(
    munged: Munged, stopped: socket.socket
) -> None:
    url = f"http://127.0.0.1:{stopped.getsockname()[1]}"
    client = tcp_client(f"{url} {a_dead_address()}", munged)
    with pytest.raises(UnavailableError, match=f"{url.removeprefix('http://')} did not answer within"):
        client.request("GET", "/v1/status", timeout_s=0.2)
    assert len(what_it_got(stopped)) == 2


def test_a_request_that_an_engine_may_have_taken_goes_to_another_one_next_time(
    tcp_engine: tuple[FakeEngine, str], munged: Munged
) -> None:
    """An engine that is stopped after it was looked at."""
    engine, url = tcp_engine
    engine.answer = honest(munged)
    with socket.create_server(("127.0.0.1", 0)) as stops:
        client = tcp_client(f"http://127.0.0.1:{stops.getsockname()[1]} {url}", munged)

        def answer_the_look() -> None:
            with stops.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        thread = threading.Thread(target=answer_the_look)
        thread.start()
        with pytest.raises(UnavailableError, match="did not answer within"):
            client.request("POST", "/v1/jobs/12/started", timeout_s=0.2)
        thread.join(PATIENCE_S)
        assert engine.seen == []
        assert client.request("POST", "/v1/jobs/12/started") == {"uid": os.getuid()}


def test_where_no_engine_is_there_all_are_tried_and_the_first_one_is_first_again(munged: Munged) -> None:
    addresses = [a_dead_address(), a_dead_address()]
    client = tcp_client(" ".join(addresses), munged)
    with pytest.raises(UnreachableError, match=addresses[1].removeprefix("http://")):
        client.request("GET", "/v1/status")
    assert str(client) == addresses[0].removeprefix("http://")


@pytest.fixture
def captured(tcp_engine: tuple[FakeEngine, str], munged: Munged) -> Request:
    """A request as the client sends it, seen on the way; nobody has decoded its credential yet."""
    engine, url = tcp_engine
    with pytest.raises(UnavailableError):
        tcp_client(url, munged).request("POST", "/v1/jobs/12/suspend?x=1", {"to": "n2"})
    return engine.seen[-1]


def verify(request: Request, munged: Munged, **changes: Any) -> CallerIdentity:
    values = {"headers": request.headers, "method": request.method, "path": request.path, "body": request.body}
    return verify_request(**{**values, **changes}, munge_socket=munged.socket)


def test_verify(captured: Request, munged: Munged) -> None:
    identity = verify(captured, munged)
    assert (identity.uid, identity.gid) == (os.getuid(), os.getgid())


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b'{"to": "n3"}'},
        {"body": b""},
        {"path": "/v1/jobs/13/suspend?x=1"},
        {"path": "/v1/jobs/12/suspend"},
        {"method": "GET"},
    ],
)
def test_verify_tampered(captured: Request, munged: Munged, changes: dict[str, Any]) -> None:
    with pytest.raises(ForbiddenError, match="for another request"):
        verify(captured, munged, **changes)


def test_verify_replayed(captured: Request, munged: Munged) -> None:
    verify(captured, munged)
    with pytest.raises(ForbiddenError, match="used before"):
        verify(captured, munged)


@pytest.mark.parametrize("header", [None, "", "Munge", "Munge ", "Basic cm9vdDo=", "Munge junk"])
def test_verify_without_credential(captured: Request, munged: Munged, header: str | None) -> None:
    with pytest.raises(ForbiddenError):
        verify(captured, munged, headers={} if header is None else {"Authorization": header})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"method": "GET"}',
        b'{"method": "GET", "path": "/v1/status", "sha256": '
        b'"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "nonce": 7}',
        b'{"method": "GET", "path": "/v1/status", "sha256": '
        b'"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "nonce": "x"}',
    ],
)
def test_verify_credential_of_something_else(munged: Munged, payload: bytes) -> None:
    headers = {"Authorization": f"Munge {munge.encode(payload, socket=munged.socket)}"}
    with pytest.raises(ForbiddenError):
        verify_request(headers, "GET", "/v1/status", b"", munge_socket=munged.socket)
