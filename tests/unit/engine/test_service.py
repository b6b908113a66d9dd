"""The engine's service: what it answers, what it refuses, and that nobody can keep it from answering others."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from others import open_directory
from unit.served import ME, PATIENCE_S, Served, answer_of, request_bytes, until

from rmsplugin.adapters.rms.base import RmsPartition
from rmsplugin.energy.lateness import Lateness, LateSums
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.observe.observation import Observer
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.engine.reconcile.reconcile import Directive
from rmsplugin.engine.serve import connections, front
from rmsplugin.engine.serve.connections import ConnectionLimits
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

NOBODY = 65534
S = VJobState

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as place:  # other users have to reach the socket
        yield place


@pytest.fixture
def served(directory: Path) -> Iterator[Served]:
    served = Served(directory)
    yield served
    served.close()


def start_of(served: Served, job_id: int) -> None:
    """As an operation does."""
    served.ledger.transition(job_id, S.STARTING, "there is room")
    served.ledger.transition(job_id, S.RUNNING, "all VMs answer")


# --- what it answers ---


def test_an_engine_that_does_not_lead_any_more_answers_nobody(served: Served) -> None:
    assert served.ask("GET", "/v1/status")[0] == 200
    served.leads = lambda: False
    status, answer = served.ask("GET", "/v1/status")
    assert (status, answer) == (503, {"error": "this engine does not lead now; try again"})
    why = served.context.hearing.why(served.context.clock.now(), 1.0)
    assert why == "its lease has run out", "a sign of life would not have been heard either"


def test_an_answer_that_is_ready_when_the_lease_has_ended_is_not_given(served: Served) -> None:
    asked: list[bool] = []

    def leads() -> bool:
        asked.append(True)
        return len(asked) == 1

    served.leads = leads
    assert served.ask("GET", "/v1/status")[0] == 503
    assert len(asked) == 2


def test_access_is_for_the_owner(served: Served) -> None:
    served.add_vjob(12, NOBODY, S.RUNNING)
    status, answer = served.ask("GET", "/v1/jobs/12/access")
    assert (status, answer["private_key"]) == (200, "SECRET") if ME == 0 else (status, "error" in answer) == (403, True)


def test_a_vjob_is_told_which_room_ended_its_vm(served: Served) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    body = {"hook": "epilog", "node": "n1", "problem": "vjob99-0 could not be ended", "ended": ["vjob12-0", "vjob99-0"]}
    assert served.ask("POST", "/v1/rooms/7/report", body)[0] == 200
    told = [(each.vjob, each.vm, each.node, each.message) for each in served.ledger.events() if "room" in each.kind]
    assert told == [
        ("", "", "n1", "room 7 on n1: vjob99-0 could not be ended"),
        ("12", "vjob12-0", "n1", "room 7 on n1 ended vjob12-0"),
        ("", "vjob99-0", "n1", "room 7 on n1 ended vjob99-0"),
    ]
    [report] = served.ledger.room_reports.of([7])
    assert (report.problem, report.ended) == ("vjob99-0 could not be ended", ("vjob12-0", "vjob99-0"))


def test_status_tells_how_late_vjobs_are_because_nodes_were_off(served: Served) -> None:
    assert served.ask("GET", "/v1/status")[1]["lateness"] is None
    sums = LateSums(late_s=3.0, vjobs_s=100.0, off_s=2e4, seen_s=1e3)
    served.world.cycle.powering.felt.lateness = Lateness(0.02, sums)
    found = served.ask("GET", "/v1/status")[1]["lateness"]
    assert (found["share"], found["at_most"], found["kept_on"]) == (0.03, 0.02, 2)
    assert found["sentence"].endswith("; power.late_at_most allows 2 %")


def test_status_counts_the_cycles_of_this_engine(served: Served) -> None:
    before = served.ask("GET", "/v1/status")[1]["cycles"]["number"]
    served.world.cycle.run()
    served.world.cycle.run()
    cycles = served.ask("GET", "/v1/status")[1]["cycles"]
    assert (cycles["number"], cycles["seconds"]) == (before + 2, served.world.cycle.seconds)


@pytest.mark.parametrize(("method", "path", "most"), [("GET", "/v1/status", 1), ("POST", "/v1/jobs/12/started", 3)])
def test_a_request_waits_for_the_ledger_a_few_times(
    method: str, path: str, most: int, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait may be for two of the threads that start and stop vjobs."""
    served.add_vjob(12, ME, S.RUNNING)
    served.world.cycle.run()
    lock, waits = served.ledger._lock, list[str]()

    class Counted:
        def __enter__(self) -> None:
            if lock._owner != threading.get_ident() and threading.current_thread().name.startswith("service"):
                waits.append(path)
            lock.__enter__()

        def __exit__(self, *_: object) -> None:
            lock.__exit__()

    monkeypatch.setattr(served.ledger, "_lock", Counted())
    assert served.ask(method, path)[0] == 200
    assert 1 <= len(waits) <= most


def test_what_does_not_exist_is_404(served: Served) -> None:
    for path in ("/v1/jobs/99/access", "/v1/operations/99", "/v2/jobs", "/", "/v1/jobs/12"):
        status, answer = served.ask("GET", path)
        assert (status, list(answer)) == (404, ["error"]), path


def test_a_method_that_a_path_does_not_take_is_refused_with_those_it_takes(served: Served) -> None:
    status, answer = served.ask("DELETE", "/v1/jobs/12/access")
    assert (status, answer) == (400, {"error": "this path takes GET only"})


def test_nodes_are_told_when_slurm_knows_neither_partition_nor_node(served: Served) -> None:
    served.world.rms.partitions = {
        "vmhosts": RmsPartition("vmhosts", True, ("n1", "gone"), "CANCEL", 1, 60),
    }
    served.world.cycle.run()
    status, answer = served.ask("GET", "/v1/nodes")
    assert (status, [node["name"] for node in answer["nodes"]]) == (200, ["n1"])


def test_a_sign_of_life_is_remembered_and_writes_nothing(served: Served) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    told: list[object] = []
    served.ledger.subscribe(told.append)
    before = served.ledger._db.conn.total_changes
    assert served.ask("POST", "/v1/jobs/12/attached") == (200, {"state": "running", "returns": 0})
    assert served.context.signs.last(12) == served.world.time
    served.world.pass_time(5)
    assert served.ask("GET", "/v1/jobs/12/access?wrapper=1&host=n1")[0] == 200
    assert served.context.signs.last(12) == served.world.time
    assert (told, served.ledger._db.conn.total_changes) == ([], before)


def test_wrapper_of_a_run_that_the_engine_has_not_seen_waits(served: Served) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    assert served.ask("GET", "/v1/jobs/12/access?wrapper=1&run=0")[1]["state"] == "running"
    status, answer = served.ask("GET", "/v1/jobs/12/access?wrapper=1&run=1")
    assert (status, answer["state"]) == (200, "waiting")
    served.ledger.update_vjob(12, restarts=1)
    assert served.ask("GET", "/v1/jobs/12/access?wrapper=1&run=1")[1]["state"] == "running"


def test_signs_of_life_of_a_known_vjob_read_nothing_until_it_changes(served: Served) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    served.ask("POST", "/v1/jobs/12/attached")
    read, reads = served.ledger.find_vjob, []
    served.ledger.find_vjob = lambda name: reads.append(name) or read(name)  # type: ignore[method-assign,func-returns-value]
    for _ in range(3):
        assert served.ask("POST", "/v1/jobs/12/attached") == (200, {"state": "running", "returns": 0})
    assert reads == []
    served.ledger.transition(12, S.SUSPENDING, "asked for")
    assert served.ask("POST", "/v1/jobs/12/attached") == (200, {"state": "suspending", "returns": 0})
    assert reads == ["12"]


@as_root
def test_a_sign_of_life_is_taken_from_the_owner_only(served: Served) -> None:
    served.add_vjob(12, NOBODY, S.RUNNING)
    served.add_vjob(13, 1, S.RUNNING)
    idler = Idlers(served, 1, 1, "")
    try:
        assert served.ask("POST", "/v1/jobs/13/attached")[0] == 200  # root may; now it is known
        assert idler.ask("POST", "/v1/jobs/12/attached") == "HTTP/1.1 200"
        assert idler.ask("POST", "/v1/jobs/12/attached") == "HTTP/1.1 200"
        assert idler.ask("POST", "/v1/jobs/13/attached") == "HTTP/1.1 403"
    finally:
        idler.end()


# --- what it refuses ---

BAD = [
    ("GET", "/v1/jobs/12/access?wait=nan", None),
    ("GET", "/v1/jobs/12/access?wait=inf", None),
    ("GET", "/v1/jobs/12/access?wait=-1", None),
    ("GET", "/v1/jobs/12/access?wait=1e999", None),
    ("GET", "/v1/jobs/12/access?wait=", None),
    ("GET", "/v1/jobs/12/access?wait=1&wait=2", None),
    ("GET", "/v1/jobs/12/access?wait=%zz", None),
    ("GET", "/v1/jobs/12/access?wait=%ff", None),
    ("GET", "/v1/jobs/12/access?wait=%D9%A3", None),  # an Arabic three, which int() takes
    ("GET", "/v1/jobs/12/access?wrapper=yes", None),
    ("GET", "/v1/jobs/12/access?host=a%20b", None),
    ("GET", "/v1/jobs/12/access?wiat=3", None),
    ("GET", "/v1/jobs/12/access?" + "&".join(f"k{n}=1" for n in range(100)), None),
    ("GET", "/v1/jobs/0/access", None),
    ("GET", "/v1/jobs/_/access", None),
    ("GET", "/v1/jobs/1__2/access", None),
    ("GET", "/v1/jobs/012/access", None),
    ("GET", "/v1/jobs/%ff/access", None),
    ("GET", "/v1/jobs/1%2F2/access", None),
    ("GET", f"/v1/jobs/{'9' * 30}/access", None),
    ("POST", "/v1/jobs/1_2/prolog", None),
    ("POST", "/v1/jobs/1_2/epilog", None),
    ("POST", f"/v1/jobs/{'9' * 30}/prolog", None),
    ("GET", f"/v1/operations/{'9' * 30}", None),
    ("GET", "/v1/operations/x", None),
    ("GET", "/v1/events?limit=-1", None),
    ("GET", "/v1/events?limit=10001", None),
    ("GET", f"/v1/events?since={'9' * 30}", None),
    ("GET", "/v1/events?limit=1_0", None),
    ("GET", "/v1/events?vjob=';--", None),
    ("GET", "/v1/vjobs?ended=2", None),
    ("GET", "/v1/status?verbose=1", None),
    ("GET", "/v1/status", {"verbose": True}),
    ("POST", "/v1/jobs/12/finished", []),
    ("POST", "/v1/jobs/12/finished", {"exit_code": 256}),
    ("POST", "/v1/jobs/12/finished", {"exit_code": -1}),
    ("POST", "/v1/jobs/12/finished", {"exit_code": True}),
    ("POST", "/v1/jobs/12/finished", {"exit_code": 1.0}),
    ("POST", "/v1/jobs/12/finished", {"exit_code": "1"}),
    ("POST", "/v1/jobs/12/finished", {"exit_code": 10**30}),
    ("POST", "/v1/jobs/12/finished", {"exit": 1}),
    ("POST", "/v1/jobs/12/resume", {"to": 7}),
    ("POST", "/v1/jobs/12/resume", {"to": "n1; reboot"}),
    ("POST", "/v1/jobs/12/resume", {"to": "\ud800"}),
    ("POST", "/v1/jobs/12/migrate", {"vm": "vjob12"}),
]


@pytest.mark.parametrize(("method", "path", "body"), BAD, ids=lambda value: str(value)[:60])
def test_input_that_is_not_of_the_form_is_400_with_a_sentence(
    served: Served, method: str, path: str, body: object
) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    status, answer = served.ask(method, path, body)
    assert (status, list(answer)) == (400, ["error"])
    assert 10 < len(answer["error"]) < 250
    assert not served.ledger.vjob(12).finished


BODIES = [b"{", b"\xff\xfe", b'{"exit_code": 1, "exit_code": 2}', b'{"exit_code": NaN}', b"[" * 50_000, b"1" * 60_000]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:20]))
def test_a_body_that_is_no_json_object_is_400(served: Served, body: bytes) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    with served.connect() as connection:
        connection.sendall(request_bytes("POST", "/v1/jobs/12/finished", body))
        status, answer = answer_of(connection)
    assert (status, list(answer)) == (400, ["error"])


def test_a_body_that_is_too_large_is_400(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(request_bytes("POST", "/v1/jobs/12/finished", b" " * 70_000))
        status, answer = answer_of(connection)
    assert status == 400
    assert "larger than 65536 bytes" in answer["error"]


def test_a_body_that_never_comes_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "_ARRIVAL_S", 0.2)
    with served.connect() as connection:
        connection.sendall(request_bytes("POST", "/v1/jobs/12/finished", b"{}")[:-1])
        status, answer = answer_of(connection)
    assert status == 400
    assert "did not arrive" in answer["error"]


# --- requests that wait ---


def test_a_job_that_the_engine_has_not_met_is_looked_up_in_slurm(served: Served) -> None:
    job = served.world.submit()
    status, answer = served.ask("GET", f"/v1/jobs/{job}")
    assert (status, answer["vjob"]["display_id"], answer["vjob"]["state"]) == (200, str(job), "waiting")
    assert "has not met it yet" in answer["vjob"]["reason"]
    assert served.ask("GET", f"/v1/events?vjob={job}") == (
        200,
        {"events": [], "cursor": f"{served.ledger.newest_event()}:{served.ledger.identity}"},
    )
    assert served.ask("GET", f"/v1/jobs/{job}/decisions") == (200, {"decisions": []})
    served.add_vjob(12, ME)
    assert served.ask("GET", "/v1/jobs/12")[1]["vjob"]["reason"] == "for a test"


def test_who_reads_on_is_told_the_oldest_events_first_and_all_of_another_ledger(served: Served) -> None:
    def read(after: str) -> tuple[list[str], str]:
        answer = served.ask("GET", f"/v1/events?kind=test&limit=2&after={after}")[1]
        return [each["message"] for each in answer["events"]], answer["cursor"]

    ledger = served.ledger
    begin = served.ask("GET", "/v1/events")[1]["cursor"]
    for number in range(5):
        ledger.event("test", f"number {number}")
    told, cursor = read(begin)
    assert told == ["number 0", "number 1"]
    told, cursor = read(cursor)
    assert told == ["number 2", "number 3"]
    told, cursor = read(cursor)
    assert (told, cursor) == (["number 4"], f"{ledger.newest_event()}:{ledger.identity}")
    other = f"{ledger.newest_event()}:{'0' * 8}"
    assert read(other)[0] == ["number 0", "number 1"]
    assert read(str(ledger.newest_event() - 1))[0] == ["number 4"], "a place of any ledger"
    assert served.ask("GET", f"/v1/events?limit=0&after={begin}")[1] == {"events": [], "cursor": begin}


def test_a_job_that_is_unknown_or_no_vjob_is_an_error_of_every_question(served: Served) -> None:
    foreign = served.world.rms.submit(partition="debug")
    for name, error in (("4711", "no vjob 4711"), ("9_3", "no vjob 9_3"), (str(foreign), "is in partition debug")):
        for path in (f"/v1/jobs/{name}", f"/v1/events?vjob={name}", f"/v1/jobs/{name}/decisions"):
            status, answer = served.ask("GET", path)
            assert status == 404, path
            assert error in answer["error"]


def test_a_poll_is_answered_when_what_it_waits_for_has_come(served: Served) -> None:
    served.add_vjob(12, ME)
    with served.send("GET", "/v1/jobs/12/access?wait=60") as connection:
        until(lambda: served.waiting == 1, "the request waits")
        served.ledger.transition(12, S.STARTING, "there is room")
        assert served.waiting == 1
        served.ledger.transition(12, S.RUNNING, "all VMs answer")
        status, answer = answer_of(connection)
    assert (status, answer["state"], answer["private_key"]) == (200, "running", "SECRET")
    until(lambda: served.waiting == 0, "nobody waits")


@pytest.mark.parametrize(
    ("method", "verb", "body"),
    [
        ("GET", "access?wrapper=1", None),
        ("POST", "started", None),
        ("POST", "finished", {"exit_code": 0, "signal": 0}),
    ],
)
def test_a_wrapper_whose_job_was_not_met_yet_is_told_to_ask_again(
    served: Served, method: str, verb: str, body: object
) -> None:
    job = served.world.submit()
    asked = (method, f"/v1/jobs/{job}/{verb}", body)
    assert served.ask(*asked) == (503, {"error": "the engine has not seen the cluster yet; try again in a moment"})
    served.world.cycle.seen = Observer(served.context).observe()
    assert served.ask(*asked) == (503, {"error": f"the engine has not met job {job} yet"})
    foreign = served.world.rms.submit(partition="debug")
    served.world.cycle.seen = Observer(served.context).observe()
    asked = (method, f"/v1/jobs/{foreign}/{verb}", body)
    error = f"job {foreign} is no vjob: slurm.partitions of the engine has no debug"
    assert served.ask(*asked) == (404, {"error": error})


def test_who_logs_in_to_a_job_that_was_not_met_is_told_that_there_is_none(served: Served) -> None:
    assert served.ask("GET", "/v1/jobs/12/access") == (404, {"error": "no vjob 12"})


def test_a_poll_is_answered_when_its_time_is_over(served: Served) -> None:
    served.add_vjob(12, ME)
    assert served.ask("GET", "/v1/jobs/12/access?wait=0.1") == (200, {"state": "waiting", "reason": "for a test"})


#: What a prolog is told of a vjob that was never started.
NOT_NEARLY = {"starts": 0, "nearly_up": False}


def test_a_prolog_does_not_wait_for_vms_that_are_nearly_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.add_vjob(12, ME, S.STARTING)
    monkeypatch.setattr(Executor, "nearly_up", lambda _, job_id: job_id == 12)
    status, answer = served.ask("POST", "/v1/jobs/12/prolog?wait=60")
    assert (status, answer["state"], answer["nearly_up"]) == (200, "starting", True)


@as_root
def test_a_prolog_waits_for_the_vms_that_boot(served: Served) -> None:
    served.add_vjob(12, ME, S.STARTING)
    with served.send("POST", "/v1/jobs/12/prolog?wait=60") as connection:
        until(lambda: served.waiting == 1, "the request waits")
        start_of(served, 12)
        assert answer_of(connection) == (200, NOT_NEARLY | {"state": "running", "reason": "all VMs answer"})


def test_a_prolog_does_not_wait_for_a_job_that_was_not_met_yet_or_that_was_sent_back(served: Served) -> None:
    answer = NOT_NEARLY | {"state": "waiting", "reason": "not met yet"}
    assert served.ask("POST", "/v1/jobs/12/prolog?wait=60") == (200, answer)
    served.add_vjob(12, ME, S.STARTING)
    with served.send("POST", "/v1/jobs/12/prolog?wait=60") as connection:
        until(lambda: served.waiting == 1, "the request waits")
        served.ledger.transition(12, S.WAITING, "it starts again")
        answer = NOT_NEARLY | {"state": "waiting", "reason": "it starts again"}
        assert answer_of(connection) == (200, answer)


def test_a_prolog_does_not_wait_for_another_start_than_its_own(served: Served) -> None:
    served.add_vjob(12, ME, S.STARTING)
    with served.send("POST", "/v1/jobs/12/prolog?wait=60") as connection:
        until(lambda: served.waiting == 1, "the request waits")
        with served.ledger.transaction():
            served.ledger.transition(12, S.WAITING, "it starts again")
            served.ledger.begin_operation(12, OperationKind.START, "engine")
            served.ledger.transition(12, S.STARTING, "starts on n1")
        status, answer = answer_of(connection)
        assert (status, answer["state"], answer["starts"]) == (200, "starting", 1)


def test_a_poll_of_an_operation_is_answered_at_its_end(served: Served) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    number = served.ledger.begin_operation(12, OperationKind.SUSPEND, "me").id
    with served.send("GET", f"/v1/operations/{number}?wait=60") as connection:
        until(lambda: served.waiting == 1, "the request waits")
        served.ledger.end_operation(number, "no space")
        status, answer = answer_of(connection)
    assert (status, answer["state"], answer["error"]) == (200, "failed", "no space")


def test_a_change_wakes_only_who_waits_for_it(served: Served) -> None:
    asked: list[int] = []
    read = served.ledger.find_vjob
    served.ledger.find_vjob = lambda name: asked.append(int(name)) or read(name)  # type: ignore[method-assign,func-returns-value]
    polls = []
    for job in range(1, 21):
        served.add_vjob(job, ME)
        polls.append(served.send("GET", f"/v1/jobs/{job}/access?wait=60"))
    until(lambda: served.waiting == 20, "all wait")
    until(lambda: len(asked) == 60, "each was looked up, asked for, and asked for again when it was its turn to wait")
    start_of(served, 7)
    assert answer_of(polls[6])[1]["state"] == "running"
    assert set(asked[60:]) == {7}
    for poll in polls:
        poll.close()


def test_a_poll_ends_with_its_connection(served: Served) -> None:
    served.add_vjob(12, ME)
    polls = [served.send("GET", "/v1/jobs/12/access?wait=60") for _ in range(4)]
    until(lambda: served.waiting == 4, "the requests wait")
    polls[0].close()
    polls[1].close()
    until(lambda: (served.waiting, served.connections) == (2, 2), "those whose connections ended wait no more")
    start_of(served, 12)
    assert [answer_of(poll)[1]["state"] for poll in polls[2:]] == ["running", "running"]
    for poll in polls[2:]:
        poll.close()


def test_a_user_cannot_have_more_than_a_few_requests_wait_for_one_vjob(served: Served) -> None:
    served.add_vjob(12, ME)
    served.add_vjob(13, ME)
    polls = [served.send("GET", "/v1/jobs/12/access?wait=60") for _ in range(8)]
    until(lambda: served.waiting == 8, "the requests wait")
    status, answer = served.ask("GET", "/v1/jobs/12/access?wait=60")
    assert (status, answer["error"]) == (
        429,
        "8 of your requests wait for vjob 12 already; end one of them first",
    )
    assert served.ask("GET", "/v1/jobs/12/access?wait=0")[0] == 200
    assert served.ask("GET", "/v1/jobs/13/access?wait=0.1")[0] == 200
    polls.pop().close()
    until(lambda: served.waiting == 7, "one has ended")
    assert served.ask("GET", "/v1/jobs/12/access?wait=0.1")[0] == 200
    for poll in polls:
        poll.close()


def test_users_who_ask_silent_guests_keep_hooks_and_wrappers_from_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = range(1001, 1005)
    caller, hanging, over = [0], [], threading.Event()

    def hang(address: str, host_key: str, *, timeout_s: float) -> None:
        hanging.append(address)
        over.wait(3 * PATIENCE_S)
        raise UnavailableError("it is silent")

    monkeypatch.setattr(front, "_peer_uid", lambda transport: caller[0])
    monkeypatch.setattr(served.world.guests, "used", hang)
    with contextlib.ExitStack() as open_connections:
        open_connections.callback(over.set)
        for uid in users:
            served.add_vjob(uid, uid, S.RUNNING, script_started=True)
            caller[0] = uid
            for _ in range(2):
                asked = len(hanging)
                open_connections.enter_context(served.send("GET", f"/v1/jobs/{uid}/usage"))
                until(lambda asked=asked: len(hanging) > asked, "the guest is asked")
        assert served.ask("POST", "/v1/jobs/1004/started")[0] == 200
        caller[0] = 0
        assert served.ask("POST", "/v1/jobs/1004/prolog")[0] == 200
        with served.send("GET", "/v1/jobs/1004/usage"):
            until(lambda: len(hanging) == 9, "root's guest is asked, too")


def test_a_wrapper_that_asks_anew_ends_the_wait_of_its_lost_connection(served: Served) -> None:
    served.add_vjob(12, ME)
    with served.send("GET", "/v1/jobs/12/access?wait=60&wrapper=1") as lost:
        until(lambda: served.waiting == 1, "the request waits")
        with served.send("GET", "/v1/jobs/12/access?wait=60&wrapper=1") as anew:
            assert answer_of(lost)[1]["state"] == "waiting"
            until(lambda: served.waiting == 1, "only the new one waits")
            start_of(served, 12)
            assert answer_of(anew)[1]["state"] == "running"


# --- connections ---


def limited(monkeypatch: pytest.MonkeyPatch, directory: Path, each: int, total: int) -> Served:
    monkeypatch.setattr(ConnectionLimits, "of_this_process", classmethod(lambda cls: cls(each, total, strangers=1)))
    return Served(directory)


IDLERS = """
import json, socket, sys
path, count, close, request = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
connections = []
for number in range(count):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    if request:
        job = number % 50 + 1
        connection.sendall(request.replace(b"JOB", str(job).encode()))
    connections.append(connection)
print("open", flush=True)
for line in sys.stdin:
    if line == "close\\n":
        for connection in connections[:close]:
            connection.close()
        print("closed", flush=True)
    elif line == "read\\n":
        print(json.dumps([c.recv(12).decode() for c in connections[close:]]), flush=True)
    else:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(path)
            try:
                connection.sendall(json.loads(line).encode())
            except BrokenPipeError:
                pass  # refused already; why is there to be read
            print(connection.recv(12).decode(), flush=True)
"""


class Idlers:
    """Another user with many connections."""

    def __init__(self, served: Served, count: int, close: int, request: str) -> None:
        self._process = subprocess.Popen(
            ["/usr/bin/python3", "-c", IDLERS, served.socket, str(count), str(close), request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=NOBODY,
            cwd="/",
        )
        assert self._read() == "open"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._read()

    def ask(self, method: str, path: str) -> str:
        """The status line of the answer to one more request of this user."""
        return self.tell(json.dumps(request_bytes(method, path).decode()))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@as_root
def test_idle_pollers_of_one_user_disturb_nobody(served: Served) -> None:
    for job in range(1, 51):
        served.add_vjob(job, NOBODY)
    served.add_vjob(60, NOBODY, S.RUNNING)
    served.add_vjob(70, 1, S.RUNNING)
    before = threading.active_count()
    request = request_bytes("GET", "/v1/jobs/JOB/access?wait=300").decode()
    idlers = Idlers(served, 300, 150, request)
    try:
        until(lambda: served.waiting == 300, "all wait")
        assert threading.active_count() - before <= 8
        assert idlers.tell("close") == "closed"
        assert served.ask("GET", "/v1/jobs/70/access")[0] == 200
        assert served.ask("POST", "/v1/jobs/70/attached") == (200, {"state": "running", "returns": 0})
        assert idlers.ask("POST", "/v1/jobs/60/attached") == "HTTP/1.1 200"
        assert (served.context.signs.last(60), served.context.signs.last(70)) == (served.world.time,) * 2
        until(lambda: (served.waiting, served.connections) == (150, 150), "the closed ones are gone")
        for job in range(1, 51):
            start_of(served, job)
        assert set(json.loads(idlers.tell("read"))) == {"HTTP/1.1 200"}
    finally:
        idlers.end()


@as_root
def test_one_user_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    served = limited(monkeypatch, directory, each=20, total=50)
    idlers = Idlers(served, 20, 10, "")
    try:
        assert idlers.ask("GET", "/v1/status") == "HTTP/1.1 429"
        assert served.ask("GET", "/v1/status")[0] == 200
        assert idlers.tell("close") == "closed"
        until(lambda: served.connections == 10, "half of them are closed")
        assert idlers.ask("GET", "/v1/status") == "HTTP/1.1 200"
    finally:
        idlers.end()
        served.close()


@as_root
def test_root_gets_in_when_all_connections_are_taken(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    served = limited(monkeypatch, directory, each=20, total=20)
    idlers = Idlers(served, 20, 0, "")
    try:
        until(lambda: served.connections == 20, "all are taken")
        assert idlers.ask("GET", "/v1/status") == "HTTP/1.1 429"
        assert served.ask("GET", "/v1/status")[0] == 200
    finally:
        idlers.end()
        served.close()


def test_a_connection_that_asks_nothing_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENT_S", 0.2)
    with served.connect() as silent, served.connect() as slow:
        slow.sendall(b"GET /v1/status HTTP/1.1\r\nHost:")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""


def test_a_connection_that_waits_is_not_taken_for_silent(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENT_S", 0.2)
    served.add_vjob(12, ME)
    assert served.ask("GET", "/v1/jobs/12/access?wait=1")[0] == 200


def test_several_requests_over_one_connection(served: Served) -> None:
    with served.connect() as connection:
        for _ in range(3):
            connection.sendall(request_bytes("GET", "/v1/status"))
            assert answer_of(connection)[0] == 200


def test_who_sends_more_while_waiting_is_cut_off(served: Served) -> None:
    served.add_vjob(12, ME)
    with served.send("GET", "/v1/jobs/12/access?wait=60") as connection:
        until(lambda: served.waiting == 1, "the request waits")
        connection.sendall(request_bytes("GET", "/v1/status"))
        assert connection.recv(1) == b""
        until(lambda: served.waiting == 0, "its request waits no more")


@pytest.mark.parametrize("more", [1, 10, 1000])
def test_requests_that_come_all_at_once_hide_no_end_of_their_connection(served: Served, more: int) -> None:
    served.add_vjob(12, ME)
    requests = request_bytes("GET", "/v1/jobs/12/access?wait=60") + request_bytes("GET", "/v1/status") * more
    with served.connect() as connection:
        connection.sendall(requests)
    until(lambda: (served.waiting, served.connections) == (0, 0), "nothing is left of it")


def test_a_socket_left_by_a_killed_engine_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "engine.sock"))
    served = Served(tmp_path)
    assert served.ask("GET", "/v1/status")[0] == 200
    served.close()


# --- what is held back ---


def hold_back(served: Served, *jobs: int) -> None:
    """As a cycle that has no proof."""
    directive = Directive(OperationKind.STOP, "not seen")
    served.world.cycle.brake.let_through([Held(job, str(job), "nobody", directive, proved=False) for job in jobs], 9)


def test_status_shows_what_is_held_back_and_operators_let_it_through(served: Served) -> None:
    hold_back(served, 12, 13)
    held = served.ask("GET", "/v1/status")[1]["held"]
    assert held[0] == {"vjob": "12", "what": "stop", "reason": "not seen", "proved": False}
    assert served.ask("POST", "/v1/confirm", {"vjobs": ["13", "14"]}) == (200, {"confirmed": ["13"]})
    assert [event.vjob for event in served.ledger.events() if event.kind == "confirmed"] == ["13"]
    assert served.ask("POST", "/v1/confirm", {"vjobs": "13"})[0] == 400
    assert served.ask("POST", "/v1/confirm", {"vjobs": ["13;"]})[0] == 400


@as_root
def test_only_operators_confirm_and_hand_over(served: Served) -> None:
    hold_back(served, 12)
    idler = Idlers(served, 1, 1, "")
    try:
        assert idler.ask("POST", "/v1/confirm") == "HTTP/1.1 403"
        assert idler.ask("POST", "/v1/handover") == "HTTP/1.1 403"
    finally:
        idler.end()


def test_an_engine_that_is_alone_hands_over_to_nobody(served: Served) -> None:
    status, answer = served.ask("POST", "/v1/handover", {"group": "g1"})
    assert (status, "there are no managers here" in answer["error"]) == (409, True)
    status, answer = served.ask("POST", "/v1/handover")
    assert status == 409 and "this engine is alone" in answer["error"]
    assert served.ask("GET", "/v1/status")[1]["cluster"] is None


def test_states_that_were_put_aside_are_listed_and_dropped(served: Served) -> None:
    served.add_vjob(12, ME, S.RUNNING)
    aside = served.ledger.set_aside.open(served.ledger.vjob(12), served.ledger.vms(12), "lost: a damaged state")
    status, answer = served.ask("GET", "/v1/states")
    assert (status, [(each["number"], each["vjob"], each["reason"]) for each in answer["states"]]) == (
        200,
        [(aside.id, "12", "lost: a damaged state")],
    )
    assert "SECRET" not in json.dumps(answer)
    path = f"/v1/states/{aside.id}"
    assert served.ask("POST", f"{path}/drop")[0] == 409, "the restart is not done with them"
    served.ledger.set_aside.close(12)
    assert served.ask("POST", f"{path}/take-back")[0] == 409, "there was no saved state"
    assert served.ask("POST", f"{path}/drop") == (200, {"ok": True})
    assert served.ask("POST", f"{path}/drop")[0] == 404
    assert served.ask("POST", "/v1/states/x/drop")[0] == 400


def test_only_a_store_that_is_known_is_renewed(served: Served) -> None:
    assert served.ask("POST", "/v1/new-store", {"store": "n1"})[0] == 404
    assert served.ask("POST", "/v1/new-store", {"store": "../x"})[0] == 400
    served.ledger.markers.set("n1", "f" * 32)
    assert served.ask("POST", "/v1/new-store", {"store": "n1"})[0] == 200
    assert served.ledger.markers.of("n1") == ""


# --- nodes that are gone ---


def test_a_node_that_answers_cannot_be_said_to_be_gone_and_one_that_does_not_can(served: Served) -> None:
    served.world.cycle.run()
    status, answer = served.ask("POST", "/v1/nodes/n1/gone")
    assert status == 409
    assert "n1 is not gone: its libvirt answers; drain it (`rmsplugin drain n1`)" in answer["error"]
    assert served.ask("POST", "/v1/nodes/n1/back")[0] == 404
    assert served.ask("POST", "/v1/nodes/n9/gone")[0] == 404
    assert served.ask("POST", "/v1/nodes/n1;x/gone")[0] == 400
    assert served.ask("POST", "/v1/nodes/n1/fence")[0] == 409, "there is no command for it"
    served.world.kill_node("n1")
    assert served.ask("POST", "/v1/nodes/n1/gone") == (200, {"begin_again": [], "wait": []})
    (row,) = [row for row in served.ask("GET", "/v1/nodes")[1]["nodes"] if row["name"] == "n1"]
    assert (row["state"], row["gone_by"], row["gone_since"] > 0) == ("gone", pwd.getpwuid(ME).pw_name, True)
    assert served.ask("POST", "/v1/nodes/n1/back") == (200, {"ok": True})


@as_root
@pytest.mark.parametrize("what", ["gone", "back", "fence"])
def test_only_operators_say_what_has_become_of_a_node(served: Served, what: str) -> None:
    idler = Idlers(served, 1, 1, "")
    try:
        assert idler.ask("POST", f"/v1/nodes/n1/{what}") == "HTTP/1.1 403"
    finally:
        idler.end()


def test_a_request_that_a_locked_ledger_cannot_answer_is_told_so(served: Served, directory: Path) -> None:
    served.ledger.nodes.set_gone("n1", "alice")
    served.ledger._db.conn.execute("pragma busy_timeout = 10")
    path = served.ledger._db.execute("pragma database_list").fetchone()[2]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        status, answer = served.ask("POST", "/v1/nodes/n1/back")
    assert (status, "another process has it locked" in answer["error"]) == (503, True)
    assert served.ask("POST", "/v1/nodes/n1/back")[0] == 200
