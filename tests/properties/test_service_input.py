"""Whatever a caller sends, the service answers with no error of its own, and goes on to answer others."""

from __future__ import annotations

import http.client
import json
import os
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import few
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st
from unit.served import Served, until

from rmsplugin.engine.serve import connections, front
from rmsplugin.model.vjob import VJobState


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        # What never comes is not waited for as long as usual.
        patch.setattr(front, "_ARRIVAL_S", 0.1)
        patch.setattr(connections, "_SILENT_S", 0.2)
        served = Served(Path(name))
        for job_id, state in enumerate(VJobState, start=1):
            served.add_vjob(job_id, os.getuid(), state)
        served.world.cycle.run()
        yield served
        served.close()


# What fails is shown as it is: to shrink a request that is never answered takes hours.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

METHODS = st.sampled_from([*["GET", "POST"] * 5, "PUT", "HEAD", "OPTIONS", "PATCH", "DELETE", "TRACE", "BREW"])

# Mostly as a library would send it, so that it gets past the HTTP of it.
TEXT = st.text(max_size=8).map(lambda text: urllib.parse.quote(text, errors="replace")) | st.text(max_size=8)

IDS = st.one_of(
    *[st.integers(1, 8).map(str)] * 6,
    st.integers(10**18, 10**24).map(str),
    st.integers(-(2**80), 2**80).map(str),
    st.text("0123456789_%.-+ ", max_size=12),
    TEXT,
    st.sampled_from(["1_2", "1__2", "_", "0", "1_", "٣", "9" * 30, "%00", "..", "1%00", "1e3", "0x1"]),
)
VERBS = st.sampled_from(
    ["access", "started", "attached", "finished", "prolog", "epilog", "suspend", "resume", "migrate", "", "x"]
)
PATHS = st.one_of(
    st.builds("/v1/jobs/{}/{}".format, IDS, VERBS),
    st.builds("/v1/jobs/{}/{}".format, IDS, VERBS),
    st.builds("/v1/operations/{}".format, IDS),
    st.sampled_from(["/v1/vjobs", "/v1/vms", "/v1/nodes", "/v1/events", "/v1/status", "/", "//", "*", "/v1/../v1/vms"]),
    TEXT.map(lambda text: f"/{text}"),
)
KEYS = st.one_of(
    st.sampled_from(["wait", "host", "wrapper", "since", "limit", "vjob", "ended", "exit_code", "signal", "to", "vm"]),
    TEXT,
)
# No long waits: "0." and three digits are some of a second at most.
VALUES = st.one_of(
    st.sampled_from(
        ["0", "1", "nan", "inf", "-inf", "1e999", "-1", "0.001", "", "%", "%zz", "%ff", "%00", "1_0", "+1"]
    ),
    st.integers(-(2**80), 0).map(str),
    st.integers(10**15, 2**80).map(str),
    st.text(max_size=8),
)
QUERIES = st.lists(st.builds("{}={}".format, KEYS, VALUES), max_size=2).map(
    lambda pairs: "?" * bool(pairs) + "&".join(pairs)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.one_of(
    *[st.just(b"")] * 6,
    st.binary(max_size=64),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(KEYS, JSON, max_size=3).map(lambda value: json.dumps(value).encode()),
    st.builds(lambda key, value: json.dumps({key: value}).encode(), KEYS, st.integers(-1, 300) | st.text(max_size=6)),
)
HEADERS = st.just([]) | st.lists(
    st.sampled_from(
        [
            "Content-Type: application/json",
            "Content-Type: multipart/form-data; boundary=x",
            "Content-Encoding: deflate",
            "Content-Encoding: gzip",
            "Transfer-Encoding: chunked",
            "Content-Length: 5",
            "Content-Length: -5",
            "Expect: 100-continue",
            "Expect: nonsense",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Connection: close",
            "Range: bytes=0-",
            "Cookie: \x00",
            "Host: a b",
            "If-Modified-Since: yesterday",
        ]
    ),
    max_size=3,
)


def wire(text: str) -> bytes:
    # Not percent-encoded, but without what would end the request line.
    return text.replace("\r", "").replace("\n", "").replace(" ", "").encode("utf-8", "surrogatepass")


def still_lives(served: Served) -> None:
    """The engine answers; on a loaded machine a request may come later than a silent connection ends here."""

    def answers() -> bool:
        try:
            return served.ask("GET", "/v1/status")[0] == 200
        except ConnectionError:
            return False

    until(answers, "an answer of the engine")


@settings(max_examples=few(400), phases=PHASES)
@given(METHODS, PATHS, QUERIES, HEADERS, BODIES)
@example("GET", "/v1/jobs/1/access", "?wait=nan", [], b"")
@example("GET", "/v1/jobs/1/access", "?wait=1e999", [], b"")
@example("GET", "/v1/events", "?limit=-1&since=" + "9" * 30, [], b"")
@example("POST", "/v1/jobs/1_2/prolog", "", [], b"")
@example("GET", f"/v1/operations/{'9' * 30}", "", [], b"")
@example("POST", "/v1/jobs/585/started", "", [], b"")
@example("POST", "/v1/jobs/3/resume", "", [], b'{"to": "\\ud800"}')
@example("POST", "/v1/jobs/3/migrate", "", [], b'{"vm": "vjob3-0", "to": "n9"}')
@example("POST", "/v1/jobs/3/finished", "", ["Content-Encoding: deflate"], b"junk")
@example("POST", "/v1/jobs/3/finished", "", ["Transfer-Encoding: chunked"], b"zz\r\n")
def test_no_request_is_answered_with_an_error_of_the_engine(
    served: Served, method: str, path: str, query: str, headers: list[str], body: bytes
) -> None:
    lines = [f"{method} ".encode() + wire(path + query) + b" HTTP/1.1", b"Host: engine"]
    if not any(header.startswith(("Content-Length", "Transfer-Encoding")) for header in headers):
        lines.append(b"Content-Length: %d" % len(body))
    lines += [header.encode() for header in headers]
    status = status_of(served, b"\r\n".join(lines) + b"\r\n\r\n" + body, method)
    event(f"status {status}")
    # A job that the engine has not met yet may be met in the next cycle: its wrapper is told to ask again.
    comes_again = status == 503 and path.startswith("/v1/jobs/")
    assert status is None or 200 <= status < 500 or comes_again
    still_lives(served)


@settings(max_examples=few(200), phases=PHASES)
@given(st.binary(max_size=300))
@example(b"GET / HTTP/9.9\r\n\r\n")
@example(b"CONNECT a:1 HTTP/1.1\r\n\r\n")
@example(b"GET http://[::1/v1/status HTTP/1.1\r\n\r\n")
@example(b"GET http://x:99999999/v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
def test_no_bytes_end_the_service(served: Served, data: bytes) -> None:
    status = status_of(served, data)
    event(f"status {status}")
    assert status is None or 200 <= status < 500
    still_lives(served)


def status_of(served: Served, data: bytes, method: str = "GET") -> int | None:
    """Of the answer to these bytes; None if the connection was closed without one."""
    with served.connect() as connection:
        response = http.client.HTTPResponse(connection, method=method)
        try:
            connection.sendall(data)
            response.begin()
            response.read()
        except (http.client.HTTPException, ConnectionError):
            return None
    return response.status
