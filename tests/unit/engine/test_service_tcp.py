"""The engine's service over TCP, where munge says who asks."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import resource
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.munged import Munged
from unit.served import ME, PATIENCE_S, Served, until

from rmsplugin.adapters import munge
from rmsplugin.client import EngineClient
from rmsplugin.engine.serve import front, sealing
from rmsplugin.engine.serve.sealing import CallerIdentity
from rmsplugin.errors import LedgerUnavailableError, NotFoundError, RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState

pytestmark = pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with tempfile.TemporaryDirectory() as name:
        daemon = Munged(Path(name))
        yield daemon
        daemon.stop()


@pytest.fixture
def served(tmp_path: Path, munged: Munged, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for name in ("verify_request", "seal_response"):
        ours = functools.partial(getattr(sealing, name), munge_socket=munged.socket)
        monkeypatch.setattr(front, name, ours)
    served = Served(tmp_path, tcp=True)
    yield served
    served.close()


def client(served: Served, munged: Munged) -> EngineClient:
    return EngineClient.tcp(f"http://127.0.0.1:{served.port}", ME, munge_socket=munged.socket)


def plain(served: Served, method: str, path: str, headers: dict[str, str]) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def test_a_request_is_answered_to_who_made_it(served: Served, munged: Munged) -> None:
    served.add_vjob(12, ME, VJobState.RUNNING)
    assert client(served, munged).request("GET", "/v1/jobs/12/access?wrapper=1&wait=5")["private_key"] == "SECRET"
    assert client(served, munged).request("POST", "/v1/jobs/12/attached") == {"state": "running", "returns": 0}
    assert served.context.signs.last(12) == served.world.time


def test_an_answer_that_is_sealed_when_the_lease_has_ended_is_not_given(
    served: Served, munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper that is told to go on runs its script, and the next engine may have begun it anew."""
    served.add_vjob(12, ME, VJobState.RUNNING)
    seal = front.seal_response

    def stopped_meanwhile(identity: CallerIdentity, status: int, body: Any) -> str:
        served.leads = lambda: False
        return seal(identity, status, body)

    monkeypatch.setattr(front, "seal_response", stopped_meanwhile)
    with pytest.raises(UnavailableError, match="does not lead now"):
        client(served, munged).request("POST", "/v1/jobs/12/attached")


def test_a_request_that_munge_cannot_check_makes_the_engine_deaf_just_then(
    served: Served, munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add_vjob(12, ME, VJobState.RUNNING)
    hearing, now = served.context.hearing, served.context.clock.now()
    plain(served, "POST", "/v1/jobs/12/attached", {"Authorization": "MUNGE of-a-stranger"})
    assert hearing.deaf_until(now) == 0.0, "whoever sends what proves nothing makes nobody deaf"

    def silent(*_: Any, **__: Any) -> None:
        raise UnavailableError("munged does not answer")

    monkeypatch.setattr(front, "verify_request", silent)
    with pytest.raises(UnavailableError):
        client(served, munged).request("POST", "/v1/jobs/12/attached")
    assert hearing.deaf_until(now + 1) == now


def test_a_sign_of_life_that_the_ledger_keeps_from_being_heard_makes_the_engine_deaf_just_then(
    served: Served, munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any, **__: Any) -> None:
        raise LedgerUnavailableError("the ledger is locked")

    monkeypatch.setattr(type(served.service._answers._requests.vjob_cache), "look_up", locked)
    with pytest.raises(UnavailableError):
        client(served, munged).request("POST", "/v1/jobs/12/attached")
    now = served.context.clock.now()
    assert served.context.hearing.deaf_until(now + 1) == now


def test_errors_arrive_as_what_they_are(served: Served, munged: Munged) -> None:
    with pytest.raises(NotFoundError, match="no vjob 99"):
        client(served, munged).request("GET", "/v1/jobs/99/access")
    with pytest.raises(NotFoundError, match="no such request"):
        client(served, munged).request("GET", "/v2")
    with pytest.raises(RefusedError, match="wait is 'nan'"):
        client(served, munged).request("GET", "/v1/jobs/99/access?wait=nan")


@pytest.mark.parametrize("header", ["", "Munge", "Munge ", "Munge x", "Basic eDp5", "Munge MUNGE:AwQFAACi:"])
def test_a_request_without_a_credential_is_401(served: Served, header: str) -> None:
    headers = {"Authorization": header} if header else {}
    assert plain(served, "GET", "/v1/status", headers) == (401, {"error": "no valid munge credential"})


def test_a_credential_whose_content_is_nested_without_end_is_401(served: Served, munged: Munged) -> None:
    credential = munged.encode_as(ME, b"[" * 3000)
    answer = plain(served, "GET", "/v1/status", {"Authorization": f"Munge {credential}"})
    assert answer == (401, {"error": "no valid munge credential"})


def test_a_munge_that_is_down_is_503(served: Served, munged: Munged, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = functools.partial(sealing.verify_request, munge_socket="/nowhere")
    monkeypatch.setattr(front, "verify_request", gone)
    credential = munged.encode_as(ME, b"x")
    status, answer = plain(served, "GET", "/v1/status", {"Authorization": f"Munge {credential}"})
    assert (status, answer) == (503, {"error": "munge does not answer on the controller"})
    with pytest.raises(UnavailableError):
        client(served, munged).request("GET", "/v1/status")
    assert served.ask("GET", "/v1/status")[0] == 200


def test_an_answer_larger_than_a_credential_is_told(served: Served, munged: Munged) -> None:
    with served.ledger.transaction():
        for _ in range(3):
            served.ledger.event("note", "x" * 300_000)
    with pytest.raises(RefusedError, match=r"the answer has 90\d{4} bytes.*ask for less"):
        client(served, munged).request("GET", "/v1/events")
    assert len(client(served, munged).request("GET", "/v1/events?limit=2")["events"]) == 2
    assert len(served.ask("GET", "/v1/events")[1]["events"]) == 3


def test_the_largest_answer_fits(munged: Munged) -> None:
    identity = sealing.CallerIdentity(ME, 0, "0" * 32)
    body = {"text": "x" * (sealing._ANSWER_MAX - 100)}
    text = sealing.seal_response(identity, 200, body, munge_socket=munged.socket)
    assert json.loads(munge.decode(text, socket=munged.socket).payload)["body"] == body


def test_a_replayed_request_is_refused(served: Served, munged: Munged) -> None:
    claim = {"method": "GET", "path": "/v1/status", "sha256": hashlib.sha256(b"").hexdigest(), "nonce": "0" * 32}
    headers = {"Authorization": f"Munge {munged.encode_as(ME, json.dumps(claim).encode())}"}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    connection.request("GET", "/v1/status", headers=headers)
    assert connection.getresponse().headers.get_content_type() == "application/x-munge"
    connection.close()
    assert plain(served, "GET", "/v1/status", headers)[0] == 401


def test_a_poll_over_tcp_ends_with_its_connection(served: Served, munged: Munged) -> None:
    served.add_vjob(12, ME)
    path = "/v1/jobs/12/access?wait=60"
    claim = {"method": "GET", "path": path, "sha256": hashlib.sha256(b"").hexdigest(), "nonce": "0" * 32}
    headers = {"Authorization": f"Munge {munged.encode_as(ME, json.dumps(claim).encode())}"}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    until(lambda: served.waiting == 1, "the request waits")
    connection.close()
    until(lambda: (served.waiting, served.connections) == (0, 0), "nothing is left of it")


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may have 64 files open, half of which are for connections; before the service is made."""
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (64, 64))


def test_silent_callers_from_the_network_shut_out_nobody(
    few_descriptors: None, served: Served, munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        served.service._front._connections, "_unlimited", frozenset()
    )  # nor a user who is not the engine's
    with contextlib.ExitStack() as silent:
        for host in range(1, 9):
            for _ in range(8):
                address, source = ("127.0.0.1", served.port), (f"127.0.0.{host}", 0)
                silent.enter_context(socket.create_connection(address, PATIENCE_S, source))
        assert served.ask("GET", "/v1/status")[0] == 200
        assert client(served, munged).request("GET", "/v1/nodes") == served.ask("GET", "/v1/nodes")[1]
        until(lambda: served.connections <= 8, "the last ones are left")
