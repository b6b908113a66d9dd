"""Peers that talk without end, or ask for all, cost the engine what is bounded: tried at ten times each bound."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from security.from_host import serve_over_munge
from unit.munged import Munged
from unit.served import ME, PATIENCE_S, Served

from rmsplugin.adapters.guests import ssh as guests
from rmsplugin.adapters.nodes import answers as agents
from rmsplugin.adapters.nodes.ssh_link import Patience
from rmsplugin.api.binding import Engine
from rmsplugin.engine.serve import requests, views
from rmsplugin.engine.serve.rare_log import PERIOD_S, RareLog
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def ends(served: Served) -> int:
    return sum(event.kind == "script-ended" for event in served.ledger.events(limit=10_000))


# --- a user ---


def test_an_end_that_is_said_again_and_again_is_written_once(served: Served) -> None:
    served.add_vjob(12, ME, VJobState.RUNNING)
    for _ in range(50):
        assert served.ask("POST", "/v1/jobs/12/finished", {"exit_code": 3})[0] == 200
    assert (ends(served), served.ledger.vjob(12).exit_code) == (1, 3)


def test_an_end_that_is_said_differently_each_time_is_written_a_few_times(served: Served) -> None:
    served.add_vjob(12, ME, VJobState.RUNNING)
    statuses = [
        served.ask("POST", "/v1/jobs/12/finished", {"exit_code": code})[0] for code in range(10 * requests._CHANGES_MAX)
    ]
    assert statuses[: requests._CHANGES_MAX + 1] == [200] * (requests._CHANGES_MAX + 1)
    assert set(statuses[requests._CHANGES_MAX + 1 :]) == {409}
    assert ends(served) == requests._CHANGES_MAX + 1


def test_the_end_of_a_vjob_that_has_ended_is_not_written(served: Served) -> None:
    served.add_vjob(12, ME, VJobState.TERMINATED)
    assert served.ask("POST", "/v1/jobs/12/finished", {"exit_code": 3})[0] == 200
    assert ends(served) == 0


def test_ended_vjobs_are_told_by_the_newest_and_only_these_are_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add_vjob(5, ME, submitted=5.0)
    most = 100
    monkeypatch.setattr(views, "MOST_AT_ONCE", most)
    with served.ledger.transaction():
        for job_id in range(10, 10 + 10 * most):
            served.add_vjob(job_id, ME, VJobState.TERMINATED, submitted=float(job_id))
    read: list[int] = []
    rows = served.ledger._rows

    def counted(sql: str, parameters: Any = ()) -> list[dict[str, Any]]:
        found = rows(sql, parameters)
        read.append(len(found))
        return found

    monkeypatch.setattr(served.ledger, "_rows", counted)
    status, answer = served.ask("GET", "/v1/vjobs?ended=1")
    last = 10 + 10 * most
    assert (status, answer["more"]) == (200, True)
    assert [row["job_id"] for row in answer["vjobs"]] == [5, *range(last - most, last)]
    assert sum(read) < 3 * most
    answer = served.ask("GET", "/v1/vjobs?ended=1&limit=2")[1]
    assert [row["job_id"] for row in answer["vjobs"]] == [5, last - 2, last - 1]
    living = {"vjobs": answer["vjobs"][:1], "ended": 0, "older": None, "more": False, "next": None}
    assert served.ask("GET", "/v1/vjobs") == (200, living)
    answer = served.ask("GET", "/v1/vjobs?ended=1&vjob=10")[1]
    assert ([row["job_id"] for row in answer["vjobs"]], answer["more"]) == ([10], False)
    assert served.ask("GET", "/v1/vjobs?ended=1&limit=10001")[0] == 400
    for older in ("", "and (submitted, job_id) < (select submitted, job_id from vjobs where job_id = 12)"):
        sql = f"select * from vjobs where state = 'terminated' {older} order by submitted desc, job_id desc limit 9"
        plan = served.ledger._db.execute(f"explain query plan {sql}").fetchone()[3]
        assert "using index vjobs_state_submitted" in plan.lower()


def test_ended_vjobs_are_told_page_by_page_however_many_are_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 50
    monkeypatch.setattr(views, "MOST_AT_ONCE", most)
    with served.ledger.transaction():
        served.add_vjob(5, ME, submitted=5.0)
        for number in range(10 * most):  # two of them each were submitted at the same time
            served.add_vjob(10 + number, ME, VJobState.TERMINATED, submitted=float(number // 2))
    asked = []

    class Asker:
        def request(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
            asked.append(path)
            status, answer = served.ask(method, path)
            assert status == 200 and len(answer["vjobs"]) <= most + 1
            return answer

    def told(limit: int) -> tuple[list[int], bool]:
        rows, more = Engine([Asker()]).vjobs_and_more(ended=limit)  # type: ignore[list-item]
        return sorted(row["job_id"] for row in rows), more

    last = 10 + 10 * most
    assert told(10_000) == ([5, *range(10, last)], False)
    assert len(asked) == 10
    for limit in (0, 1, most, most + 1, 2 * most, 10 * most - 1):
        assert told(limit) == ([5, *range(last - limit, last)], True)
    assert served.ask("GET", "/v1/vjobs?ended=1&before=9")[1]["vjobs"] == [], "that one is not known any more"


def test_elements_of_an_array_are_told_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50
    monkeypatch.setattr(views, "MOST_AT_ONCE", most)
    with served.ledger.transaction():
        for number in range(10 * most):
            served.add_vjob(100 + number, ME, VJobState.TERMINATED, display_id=f"100_{number}")
    told = pages(served, "/v1/vjobs?ended=1&vjob=100&", "vjobs")
    assert [len(page) for page in told] == [most] * 10
    assert [row["job_id"] for page in told for row in page] == [*range(100, 100 + 10 * most)]


def test_states_that_were_put_aside_are_told_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50
    monkeypatch.setattr(views, "MOST_AT_ONCE", most)
    with served.ledger.transaction():
        for number in range(10 * most):
            served.add_vjob(10 + number, ME, VJobState.TERMINATED)
            served.ledger.set_aside.open(served.ledger.vjob(10 + number), [], "lost")
    told = pages(served, "/v1/states?", "states")
    assert [len(page) for page in told] == [most] * 10
    assert [row["vjob"] for page in told for row in page] == [str(10 + number) for number in range(10 * most)]


def pages(served: Served, path: str, key: str) -> list[list[dict[str, Any]]]:
    """The pages of a list."""
    found, after = [], ""
    while after != "None":
        status, answer = served.ask("GET", f"{path}{after and f'after={after}'}")
        assert status == 200
        found.append(answer[key])
        after = str(answer["next"])
    return found


def test_vjobs_that_have_not_ended_are_told_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50
    monkeypatch.setattr(views, "MOST_AT_ONCE", most)
    with served.ledger.transaction():
        served.add_vjob(5, ME, VJobState.TERMINATED)
        for number in range(10 * most):
            served.add_vjob(10 + number, ME, submitted=float(-number))
    read: list[int] = []
    views_of = views._views
    monkeypatch.setattr(views, "_views", lambda *parts: read.append(len(parts[2])) or views_of(*parts))
    told = pages(served, "/v1/vjobs?ended=1&", "vjobs")
    assert read == [most, 1, *[most] * 9]
    assert [row["job_id"] for row in told[0]] == [*range(9 + most, 9, -1), 5]
    assert sorted(row["job_id"] for page in told for row in page) == [5, *range(10, 10 + 10 * most)]
    assert [len(page) for page in pages(served, "/v1/vjobs?", "vjobs")] == [most] * 10


def test_vms_are_told_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50
    monkeypatch.setattr(views, "MOST_AT_ONCE", most)
    with served.ledger.transaction():
        for job_id in range(1, 5 * most + 1):
            served.add_vjob(job_id, ME, VJobState.RUNNING)
    vms = [vm.name for job_id in range(1, 5 * most + 1) for vm in served.ledger.vms(job_id)]
    told = pages(served, "/v1/vms?", "vms")
    assert [vm["name"] for page in told for vm in page] == vms
    assert max(len(page) for page in told) <= most + len(vms) // (5 * most)


# --- anybody on the network ---


def test_what_anybody_can_cause_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    rare = RareLog(logging.getLogger("rare"), lambda: now[0])
    for number in range(1000):
        rare.warning("refused %s", number)
        rare.warning("not checked: %s", number)
    now[0] += PERIOD_S
    rare.warning("refused %s", "again")
    assert [record.getMessage() for record in caplog.records] == [
        "refused 0",
        "not checked: 0",
        "refused again (and 999 more like this in the last 60 s)",
    ]


@pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")
def test_requests_without_a_credential_do_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        munged = Munged(Path(name))
        stack.callback(munged.stop)
        serve_over_munge(munged, monkeypatch)
        served = Served(Path(name), tcp=True)
        stack.callback(served.close)
        for _ in range(50):
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
            connection.request("GET", "/v1/status")
            assert connection.getresponse().status == 401
            connection.close()
    assert sum("refused a request" in record.getMessage() for record in caplog.records) == 1


# --- guests and nodes ---


class EndlessChannel:
    """Says one thing as often as it is asked, as long as the test lets it."""

    def __init__(self, chunk: bytes, times: int) -> None:
        self._chunk, self._left = chunk, times

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def recv(self, size: int) -> bytes:
        assert self._left > 0, "it would be read for ever"
        self._left -= 1
        time.sleep(0)
        return self._chunk[:size]

    def send(self, data: bytes) -> int:
        assert self._left > 0, "it would be sent to for ever"
        self._left -= 1
        time.sleep(0.01)
        return 1


def test_a_guest_that_never_stops_talking_is_given_up_at_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        guests._read(EndlessChannel(b"x", 10**9), time.monotonic() + 0.2, lambda: None)  # type: ignore[arg-type]


def test_a_guest_that_takes_a_byte_at_a_time_is_given_up_at_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        guests._send(EndlessChannel(b"", 10**9), b"x" * 10**6, time.monotonic() + 0.2)  # type: ignore[arg-type]


LINES = (b'{"a": "' + b"x" * 2000 + b'"}\n') * 30


@pytest.mark.parametrize(("chunk", "bound"), [(b"x" * 65536, "_LINE_MAX"), (LINES, "_ANSWER_MAX")])
def test_an_agent_that_never_stops_talking_has_failed(chunk: bytes, bound: str) -> None:
    endless = EndlessChannel(chunk, 10 * getattr(agents, bound) // len(chunk))
    with pytest.raises(OperationFailedError, match="says more than any answer has"):
        agents.read_answer(endless, Patience(PATIENCE_S), "list on n1", None)  # type: ignore[arg-type]


class Pieces(EndlessChannel):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def recv(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_what_an_agent_says_is_read_the_same_in_pieces_of_any_size(size: int) -> None:
    text = b'{"bytes_done": 1}\n\n{"bytes_done": 2}\n' + json.dumps({"states": ["vjob1-0"] * 20}).encode()
    for end in (b"", b"\n"):
        whole = text + end
        told: list[Any] = []
        channel = Pieces([whole[start : start + size] for start in range(0, len(whole), size)])
        answer = agents.read_answer(channel, Patience(PATIENCE_S), "list", told.append)  # type: ignore[arg-type]
        assert (answer, told) == ({"states": ["vjob1-0"] * 20}, [{"bytes_done": 1}, {"bytes_done": 2}])
