"""A manager hands requests on to the one that has the group. Munge proves the manager; the caller stays who he is."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from contract.zookeeper_ensemble import free_ports
from others import open_directory, python_as
from patience import PATIENCE_S
from unit.manager.managed import Managed, engine, given
from unit.munged import Munged
from unit.served import ME, Served

from rmsplugin.adapters import munge
from rmsplugin.client import LOOK, EngineClient
from rmsplugin.engine.serve import front, sealing
from rmsplugin.engine.serve.parsing import BadRequestError
from rmsplugin.engine.territory import leaders_pulse, leaders_readings
from rmsplugin.engine.territory.leaders_pulse import PULSE, LeadersPulse
from rmsplugin.engine.territory.leaders_readings import READING, LeadersReadings
from rmsplugin.errors import NotFoundError, RmspluginError, UnavailableError
from rmsplugin.manager import handing_down, liveness, pulse
from rmsplugin.manager.handing import HAND_ON

pytestmark = pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")

GROUPS = {"a": ("n1",), "b": ("m1",)}


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with open_directory() as place:  # other users make credentials, too
        daemon = Munged(place)
        yield daemon
        daemon.stop()


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as directory:  # other users have to reach the managers' sockets
        yield directory


@pytest.fixture
def two(place: Path, munged: Munged, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Managed, Managed, Served]]:
    """Managers A and B, and the engine of group b, which B has."""
    for name in ("verify_request", "seal_response"):
        monkeypatch.setattr(front, name, functools.partial(getattr(sealing, name), munge_socket=munged.socket))
    engines = {name: engine(place / name) for name in GROUPS}
    engines["b"].add_vjob(13, ME)
    ports = dict(zip("AB", free_ports(2), strict=True))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    made = [
        Managed(
            place,
            name,
            {group: engines[group].socket},
            {"a": "A", "b": "B"},
            urls,
            given(GROUPS, j13="b"),
            munge_socket=munged.socket,
            port=ports[name],
            trusted=("127.0.0.3",),
            base=engines["a"],
        )
        for name, group in (("A", "a"), ("B", "b"))
    ]
    yield made[0], made[1], engines["b"]
    for manager in made:
        manager.close()
    for each in engines.values():
        each.close()


def post(munged: Munged, manager: Managed, uid: int, body: dict[str, object], source: str) -> tuple[int, object]:
    """The answer to what a caller on some host says is a request that is handed on."""
    return ask(munged, manager, uid, "POST", HAND_ON, json.dumps(body).encode(), source)


def ask(
    munged: Munged, manager: Managed, uid: int, method: str, path: str, data: bytes, source: str
) -> tuple[int, object]:
    """The answer to a request of a user on some host."""
    port = int(manager.front._settings.listen.rpartition(":")[2])
    digest = hashlib.sha256(data).hexdigest()
    claim = {"method": method, "path": path, "sha256": digest, "nonce": "0" * 32}
    credential = munged.encode_as(uid, json.dumps(claim).encode())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S, source_address=(source, 0))
    connection.request(method, path, data, {"Authorization": f"Munge {credential}"})
    answer = connection.getresponse().read().decode()
    connection.close()
    opened = munged.decode_as(uid, answer) if uid else munge.decode(answer, socket=munged.socket).payload
    sealed = json.loads(opened)
    return sealed["status"], sealed["body"]


def handed(**changes: object) -> dict[str, object]:
    body = {"group": "b", "method": "POST", "target": "/v1/jobs/13/suspend", "data": "", "uid": 4711, "origin": ""}
    return {**body, **changes}


def test_any_manager_answers_about_a_vjob_of_another_one(two: tuple[Managed, Managed, Served]) -> None:
    first, second, _ = two
    for manager in two[:2]:
        assert manager.ask("GET", "/v1/jobs/13")[1]["vjob"]["job_id"] == 13
        assert manager.ask("GET", "/v1/jobs/13/access?wrapper=1")[1]["state"] == "waiting"
    assert [each["job_id"] for each in first.ask("GET", "/v1/vjobs")[1]["vjobs"]] == [13]
    assert first.ask("POST", "/v1/jobs/13/suspend") == second.ask("POST", "/v1/jobs/13/suspend")


def test_a_manager_that_is_dead_costs_no_more_than_a_refused_connection(two: tuple[Managed, Managed, Served]) -> None:
    first, second, _ = two
    second.site.assignments["b"] = first.site.assignments["a"]  # B does not answer for itself
    first.site.members["B"] = type(first.site.members["B"])("B", {"url": f"http://127.0.0.1:{free_ports(1)[0]}"})
    answer = first.ask("GET", "/v1/vjobs")[1]
    assert (answer["vjobs"], answer["silent"]) == ([], ["b"])
    assert first.ask("GET", "/v1/jobs/13")[0] == 503


def test_clients_go_from_a_manager_that_cannot_hear_to_the_next_one_and_its_own_host_is_served(
    two: tuple[Managed, Managed, Served], munged: Munged
) -> None:
    a, b, _ = two
    urls = " ".join(each["url"] for each in (a.site.members["A"].about, b.site.members["B"].about))
    client = EngineClient.tcp(urls, ME, munge_socket=munged.socket)
    assert client.request("GET", "/v1/jobs/13") and str(client) in urls.split()[0]
    a.cannot_hear = "munged does not answer"
    assert client.request("GET", "/v1/jobs/13") and str(client) in urls.split()[1]
    assert looked_at(a.socket).startswith(b"HTTP/1.1 200 ")
    a.cannot_hear = ""
    assert EngineClient.tcp(urls, ME, munge_socket=munged.socket).request("GET", "/v1/jobs/13")


def looked_at(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        connection.sendall(LOOK)
        return connection.recv(100)


def test_a_request_that_munge_keeps_from_being_heard_makes_a_manager_deaf(
    two: tuple[Managed, Managed, Served], munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, _ = two

    def silent(*_: object) -> None:
        raise UnavailableError("munged does not answer")

    monkeypatch.setattr(front, "verify_request", silent)
    url = a.site.members["A"].about["url"]
    with pytest.raises(UnavailableError):
        EngineClient.tcp(url, ME, munge_socket=munged.socket).request("GET", "/v1/jobs/13")
    assert a.cannot_hear == "munged does not answer"


def test_a_manager_that_stands_still_is_asked_nothing_until_it_goes_on(
    two: tuple[Managed, Managed, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = two[0]
    monkeypatch.setattr(liveness, "LOOK_S", 0.3)
    monkeypatch.setattr(liveness, "_SILENT_S", 0.1)
    port = free_ports(1)[0]
    there = first.site.members["B"]
    with socket.create_server(("127.0.0.1", port)) as stopped:
        first.site.members["B"] = type(there)("B", {"url": f"http://127.0.0.1:{port}"})
        answer = first.ask("GET", "/v1/vjobs")[1]
        assert (answer["vjobs"], answer["silent"]) == ([], ["b"])
        status, answer = first.ask("POST", "/v1/jobs/13/suspend")
        assert (status, "stands still" in answer["error"]) == (503, True)
        stopped.setblocking(False)
        first_lines = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                with stopped.accept()[0] as connection:
                    first_lines.add(connection.recv(1 << 16).partition(b" HTTP")[0])
        assert first_lines == {b"GET /v1/alive", b"POST /v1/hand-on"}, "the order was not sent, only the question"
    first.site.members["B"] = there
    assert first.ask("GET", "/v1/vjobs")[1]["vjobs"]


def test_an_engine_that_stands_still_is_missing_in_lists_and_is_back_as_soon_as_it_goes_on(
    two: tuple[Managed, Managed, Served], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(liveness, "LOOK_S", 0.3)
    monkeypatch.setattr(liveness, "_SILENT_S", 0.05)
    second, path, aside = two[1], two[2].socket, f"{two[2].socket}-aside"
    Path(path).rename(aside)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(path)
        stopped.listen(100)
        assert second.ask("GET", "/v1/jobs/13")[0] == 503
        assert second.ask("GET", "/v1/jobs/13")[0] == 503
        Path(aside).rename(path)
        deadline = time.monotonic() + PATIENCE_S
        while second.ask("GET", "/v1/jobs/13")[0] == 503:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_an_engine_hears_the_caller_and_not_the_manager(two: tuple[Managed, Managed, Served], munged: Munged) -> None:
    status, answer = post(munged, two[1], 0, handed(), "127.0.0.1")
    assert (status, answer) == (404, {"error": "no vjob 13"}), "nobody else is told of it before the first look"


def test_a_host_that_is_no_controller_hands_nothing_on_and_no_more_does_a_user(
    two: tuple[Managed, Managed, Served], munged: Munged
) -> None:
    status, answer = post(munged, two[1], 0, handed(uid=0), "127.0.0.2")
    assert (status, "is no controller" in str(answer)) == (403, True)
    status, answer = post(munged, two[1], 65534, handed(uid=0), "127.0.0.1")
    assert (status, "is no controller" in str(answer)) == (403, True)


def test_what_was_asked_on_another_controller_itself_comes_from_that_controller(
    two: tuple[Managed, Managed, Served], munged: Munged
) -> None:
    order = handed(target="/v1/pause", uid=0)
    assert post(munged, two[1], 0, order, "127.0.0.3")[0] == 403, "the engine of b knows no such controller"
    assert post(munged, two[1], 0, order, "127.0.0.1")[0] == 200
    assert post(munged, two[1], 0, {**order, "origin": "127.0.0.9"}, "127.0.0.3")[0] == 403


@pytest.mark.parametrize("changes", [{"uid": "0"}, {"group": 1}, {"origin": "n1"}, {"more": 1}])
def test_what_no_manager_sends_is_refused(
    two: tuple[Managed, Managed, Served], munged: Munged, changes: dict[str, object]
) -> None:
    assert post(munged, two[1], 0, handed(**changes), "127.0.0.1")[0] == 400


# --- what the leader reads of Slurm ---


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts as silent because this machine is busy."""
    for module, name in (
        (liveness, "LOOK_S"),
        (handing_down, "_LEADER_S"),
        (leaders_readings, "_SILENT_S"),
        (leaders_pulse, "_FIRST_S"),
        (leaders_pulse, "_SILENT_S"),
        (pulse, "_LEADER_S"),
        (pulse, "_GOOD_S"),
    ):
        monkeypatch.setattr(module, name, PATIENCE_S)


def readings_of(manager: Managed) -> LeadersReadings:
    """As an engine on the host of this manager has them."""
    return LeadersReadings(EngineClient.unix(manager.socket), lambda: 0)


@pytest.mark.usefixtures("patient")
def test_an_engine_is_handed_what_the_leader_has_read_by_whichever_manager_it_has(
    two: tuple[Managed, Managed, Served],
) -> None:
    leader, other, _ = two
    for manager in (leader, other):
        assert readings_of(manager).texts().queue == "jobs as A has read them"
    assert (leader.readings, other.readings) == (2, 0)


@pytest.mark.usefixtures("patient")
def test_engines_of_all_managers_are_told_the_same_pulse(two: tuple[Managed, Managed, Served]) -> None:
    told = [LeadersPulse(EngineClient.unix(manager.socket)) for manager in two[:2]]
    first, second = (each.latest() for each in told)
    assert first is not None and first == second
    for each in told:
        each.close()


@pytest.mark.usefixtures("patient")
def test_nobody_hands_down_where_nobody_leads_and_nobody_is_asked_in_a_circle(
    two: tuple[Managed, Managed, Served],
) -> None:
    leader, other, _ = two
    leader.leads = False
    leader.site.leader = "B"  # each takes the other one for the leader
    for manager in (leader, other):
        with pytest.raises(UnavailableError, match=r"the manager [AB] does not lead"):
            readings_of(manager).texts()
    assert (leader.readings, other.readings) == (0, 0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("error", [BadRequestError("it has no such key"), NotFoundError("there is no such request")])
def test_a_leader_of_an_older_release_is_told_apart(
    two: tuple[Managed, Managed, Served], monkeypatch: pytest.MonkeyPatch, error: RmspluginError
) -> None:
    async def refuses(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(two[0].entry, "_handing_down", SimpleNamespace(answer=refuses))
    with pytest.raises(UnavailableError, match="the manager A, which leads, is of a release that hands nothing down"):
        readings_of(two[1]).texts()


def test_a_leader_that_stands_still_is_given_up_within_a_second(two: tuple[Managed, Managed, Served]) -> None:
    leader, other, _ = two
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        url = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        other.site.members["A"] = type(other.site.members["A"])("A", {"url": url})
        readings = readings_of(other)
        with pytest.raises(UnavailableError):
            readings.texts()
        assert leader.readings == 0
    with pytest.raises(UnavailableError):
        readings.texts()


@pytest.mark.parametrize("path", [READING, PULSE])
def test_only_managers_on_controllers_are_told_what_all_users_have(
    two: tuple[Managed, Managed, Served], munged: Munged, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "_HOLD_S", PATIENCE_S)
    leader = two[0]
    for uid, source in ((65534, "127.0.0.1"), (65534, "127.0.0.3"), (0, "127.0.0.2"), (65534, "127.0.0.2")):
        status, answer = ask(munged, leader, uid, "GET", path, b"", source)
        assert (status, "is no controller" in str(answer)) == (403, True)
    assert leader.readings == 0
    for source in ("127.0.0.1", "127.0.0.3"):
        assert ask(munged, leader, 0, "GET", path, b"", source)[0] == 200


@pytest.mark.parametrize("path", [READING, PULSE])
def test_users_of_the_controller_are_not_told_either(two: tuple[Managed, Managed, Served], path: str) -> None:
    code = (
        "import socket; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]);"
        "c.sendall(f'GET {sys.argv[2]} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'.encode());"
        "print(c.recv(4096).decode())"
    )
    answer = python_as(65534, code, two[0].socket, path)
    assert answer.startswith("HTTP/1.1 403") and "jobs as" not in answer
