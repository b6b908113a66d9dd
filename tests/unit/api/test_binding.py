"""The binding in Python: what it asks a real service for, whom it asks, and which errors it raises."""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from others import open_directory, runs_commands_as_others
from patience import PATIENCE_S
from unit.api_forms import faults_of, route_of
from unit.cli.test_cli import SETTINGS
from unit.hosts import Hosts
from unit.served import ME, Served

import rmsplugin
from rmsplugin.api.binding import Engine, SeveralError, pieces_of
from rmsplugin.api.routes import ROUTES, Tag
from rmsplugin.client import EngineClient
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.engine.reconcile.reconcile import Directive
from rmsplugin.errors import NoMungeError, NotFoundError, RefusedError, SilentError, UnavailableError, UnreachableError
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import VJobState

EXAMPLE = Path(__file__).resolve().parents[3] / "docs/examples/portal.py"
S = VJobState

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, which may make every request")


class Watched(EngineClient):
    """A client that compares each answer with its form, and remembers what it asked for."""

    asked: list[str]

    def request(self, method: str, path: str, *words: Any, **options: Any) -> dict[str, Any]:
        answer = super().request(method, path, *words, **options)
        assert faults_of(method, path, 200, answer) == []
        route = route_of(method, path)
        assert route is not None
        self.asked.append(route.name)
        return answer


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, controllers=Hosts("head", "backup").leader())
    yield served
    served.close()


def watched(served: Served) -> tuple[Engine, list[str]]:
    client = Watched.unix(served.socket)
    assert isinstance(client, Watched)
    client.asked = []
    return Engine([client]), client.asked


# -- a method for each request ----------------------------------------------------------------------------------------


@as_root
def test_each_request_of_users_and_operators_has_a_method_of_its_name(served: Served) -> None:
    engine, asked = watched(served)
    world = served.world
    job = world.running()
    name = str(job)
    assert engine.status()["version"] and engine.nodes() and engine.vms() and engine.groups()
    assert engine.vjob(name)["state"] == engine.vjobs()[0]["state"] == "running"
    assert [each["job_id"] for each in engine.vjobs_named(name)] == [job] and engine.unmet() == []
    assert engine.usage(name) and engine.decisions(name) and engine.events(vjob=name)
    engine.schedule()
    page = engine.page(node="n1")
    assert page["html"].startswith("<!doctype html>")
    assert not engine.page_news(engine.page_news(0)["number"])["changed"]
    assert engine.cycle(engine.cycles()[-1]["number"])["steps"]
    assert engine.plan(dot=True)["policy"] == "slowdown"
    assert engine.openapi()["openapi"] == "3.1.0"
    assert engine.config()["settings"]["engine"]["socket"] == served.socket
    assert "private_key" in engine.access(name, wait_s=0)
    for begin, state in ((engine.suspend, S.SLEEPING), (engine.resume, S.RUNNING), (engine.migrate, S.RUNNING)):
        assert engine.wait(begin(name))["state"] == "done"
        world.until(job, state)
    assert engine.prefer(name, "auto") == {"vjobs": [name], "refused": {}}
    assert engine.resize(name, cpus=1) == {"vjobs": [name], "refused": {}}
    assert engine.vjob(name)["resized_cpus"] == 1
    assert (engine.pause()["changed"], engine.unpause()["paused"]) == (True, None)
    assert engine.handover(to="backup")["to"] == "backup"
    world.cycle.brake.let_through([Held(99, "99", "", Directive(OperationKind.STOP, "not seen"), proved=False)], 9)
    assert engine.confirm(["99"]) == ["99"]
    served.ledger.markers.set("n3", "f" * 32)
    engine.new_store("n3")
    world.kill_node("n3")
    assert engine.node_gone("n3")["begin_again"] == [] and engine.node_back("n3")["ok"]
    assert engine.states() == []
    assert "".join(pieces_of(engine, engine.begin_report({}), lambda what, part: None)).startswith("{")
    refused = {"take_back": (7,), "drop_states": (7,), "node_fence": ("n1",)}
    for method, words in refused.items():
        with pytest.raises((NotFoundError, RefusedError)):
            getattr(engine, method)(*words)
    public = {route.name for route in ROUTES if route.tag not in (Tag.WRAPPERS, Tag.HOOKS, Tag.MANAGERS)}
    assert set(asked) - {"access"} == public - set(refused)
    assert all(inspect.isfunction(getattr(Engine, method)) for method in public)


@as_root
def test_the_fields_of_the_requests_are_sent(served: Served) -> None:
    world = served.world
    job = world.running()
    engine, _ = watched(served)
    where = {"n1": "n2", "n2": "n3", "n3": "n1"}[world.host(job)]
    operation = engine.wait(engine.migrate(str(job), vm=f"vjob{job}-0", to=where))
    assert [(each["vm"], each["destination"]) for each in operation["actions"]] == [(f"vjob{job}-0", where)]
    assert len(engine.events(limit=2)) == 2 and len(engine.cycles(limit=1)) == 1
    newest = engine.events(limit=1)[0]["id"]
    assert engine.events(since=newest) == []
    _, cursor = engine.events_and_cursor(limit=1)
    served.ledger.event("test", "later")
    assert [each["message"] for each in engine.events_and_cursor(after=cursor)[0]] == ["later"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "error", "status"),
    [
        (lambda engine: engine.vjob("99"), NotFoundError, 404),
        (lambda engine: engine.vjob("x"), RefusedError, 400),
        (lambda engine: engine.suspend("12"), RefusedError, 409),
    ],
)
def test_an_error_has_the_engines_sentence_and_its_status(
    served: Served, ask: Callable[[Engine], object], error: type[Exception], status: int
) -> None:
    served.world.cycle.run()
    served.add_vjob(12, ME)
    with pytest.raises(error) as found:
        ask(watched(served)[0])
    sentence = str(found.value)
    assert (found.value.status, "\n" in sentence, " " in sentence) == (status, False, True)  # type: ignore[attr-defined]


@runs_commands_as_others
def test_another_users_vjob_is_refused_to_the_program_of_a_user() -> None:
    with open_directory() as place:  # other users have to reach the socket
        served = Served(place)
        try:
            served.world.cycle.run()
            served.add_vjob(12, ME, S.RUNNING)
            code = f"from rmsplugin.api.binding import Engine; Engine.here({served.socket!r}).suspend('12')"
            told = run(sys.executable, "-c", code, user=65534)
        finally:
            served.close()
    assert "ForbiddenError: vjob 12 belongs to " in told.stderr


def test_elements_of_an_array_are_named_in_the_error(served: Served) -> None:
    for index in (1, 2):
        served.add_vjob(20 + index, ME, S.RUNNING, display_id=f"20_{index}")
    engine, _ = watched(served)
    with pytest.raises(SeveralError, match="job array of 2 elements") as found:
        engine.suspend("20")
    assert found.value.elements == [{"vjob": "20_1", "state": "running"}, {"vjob": "20_2", "state": "running"}]


# -- removal, which is Slurm's ----------------------------------------------------------------------------------------


def test_a_vjob_is_removed_by_scancel_as_its_user(tmp_path: Path) -> None:
    program = tmp_path / "scancel"
    program.write_text(
        f'#!/bin/sh\necho "$# $1" >>{tmp_path}/asked\n[ "$1" != 13 ] || {{ echo "no such job" >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    engine = Engine([], scancel=program)
    engine.cancel("12_[1-3,7]")
    with pytest.raises(RefusedError, match="no such job"):
        engine.cancel("13")
    for name in ("--state=RUNNING", "12 13", "-u alice", ""):
        with pytest.raises(RefusedError, match="is not a job id"):
            engine.cancel(name)
    assert (tmp_path / "asked").read_text() == "1 12_[1-3,7]\n1 13\n"
    with pytest.raises(UnavailableError, match="scancel cannot be run"):
        Engine([], scancel=tmp_path / "none").cancel("12")


# -- whom it asks ------------------------------------------------------------------------------------------------------


class Scripted(EngineClient):
    """A client whose engine does what a test says."""

    def __init__(self, told: list[str], name: str, does: Callable[[], dict[str, Any]]) -> None:
        super().__init__([("", 0)], unix_path=name, engine_uid=0, munge_socket="")
        self._told, self._does = told, does
        self.looks: list[object] = []

    def request(self, method: str, path: str, *words: Any, **options: Any) -> dict[str, Any]:
        self._told.append(f"{self} {method}")
        self.looks.append(options["looks"])
        return self._does()


def fails(error: Exception) -> Callable[[], dict[str, Any]]:
    def fail() -> dict[str, Any]:
        raise error

    return fail


def test_an_engine_that_is_not_there_is_passed_over_and_the_one_that_answered_is_asked_first_next_time() -> None:
    told: list[str] = []
    gone = Scripted(told, "gone", fails(UnreachableError("no connection")))
    engine = Engine([gone, Scripted(told, "there", lambda: {"nodes": []})], timeout_s=30)
    assert (engine.nodes(), engine.nodes()) == ([], [])
    assert told == ["gone GET", "there GET", "there GET"]
    assert gone.looks == [True], "it costs a second"
    only = Scripted([], "only", lambda: {"nodes": []})
    Engine([only], timeout_s=30).nodes()
    assert only.looks == [False], "there is no other to ask"


def test_on_a_controller_whose_engine_stands_by_the_other_addresses_are_asked(tmp_path: Path) -> None:
    """The socket of an engine that has led there is left behind."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "engine.sock"))
    path = tmp_path / "rmsplugin.toml"
    words = f'[engine]\nuser = "root"\nsocket = "{tmp_path}/engine.sock"\nurl = "{{}}"\n[slurm]\n'
    path.write_text(words.format("http://head1:7 http://head2:7"))
    assert [str(each) for each in Engine.of_site(str(path))._clients] == [
        f"{tmp_path}/engine.sock",
        "head1:7",
        "head2:7",
    ]
    path.write_text(words.format("http://head1:7"))
    assert len(Engine.of_site(str(path))._clients) == 1
    path.write_text(words.format("http://head1:7 http://head2:7").replace("engine.sock", "none.sock"))
    assert [str(each) for each in Engine.of_site(str(path))._clients] == ["head1:7", "head2:7"]


@pytest.mark.parametrize("name", ["a" * 300, "a\\u0000b"], ids=["too-long", "null-byte"])
def test_a_socket_that_cannot_be_looked_at_is_named_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=f"{tmp_path}/{name}"))
    with pytest.raises(UnavailableError, match=r"the engine's socket cannot be looked at: '.*': "):
        Engine.of_site(str(path))


def test_an_order_that_an_engine_may_have_taken_is_given_to_no_other_but_a_question_is_asked_again() -> None:
    told: list[str] = []

    def engines() -> Engine:
        told.clear()
        silent = Scripted(told, "silent", fails(UnavailableError("did not answer within 30 s")))
        return Engine([silent, Scripted(told, "there", lambda: {"operation": 7, "nodes": []})])

    with pytest.raises(UnavailableError, match="did not answer"):
        engines().suspend("12")
    assert told == ["silent POST"]
    assert engines().nodes() == []
    assert told == ["silent GET", "there GET"]
    gone = Scripted(told, "gone", fails(UnreachableError("no connection")))
    assert Engine([gone, Scripted(told, "there", lambda: {"operation": 7})]).suspend("12") == 7


def test_one_that_took_a_connection_and_said_nothing_is_waited_for_when_nobody_else_is_there() -> None:
    told: list[str] = []
    slow = Scripted(told, "slow", fails(SilentError("says nothing")))
    engine = Engine([slow, Scripted(told, "gone", fails(UnreachableError("no connection")))])
    with pytest.raises(SilentError):
        engine.suspend("12")
    assert told == ["slow POST", "gone POST", "slow POST"]
    assert slow.looks == [True, False]


def test_a_refusal_is_an_answer_and_the_last_error_is_raised_when_nobody_is_there() -> None:
    told: list[str] = []
    refuses = Scripted(told, "refuses", fails(NotFoundError("no vjob 12")))
    with pytest.raises(NotFoundError):
        Engine([refuses, Scripted(told, "there", lambda: {"vjob": {}})]).vjob("12")
    assert told == ["refuses GET"]
    gone = [Scripted(told, name, fails(UnreachableError(f"{name}: no connection"))) for name in ("one", "two")]
    with pytest.raises(UnreachableError, match="two"):
        Engine(gone).status()
    with pytest.raises(UnavailableError, match="no engine"):
        Engine([]).status()


def test_that_munge_does_not_answer_here_is_told_though_another_address_refuses() -> None:
    """Seen: `rmsplugin handover` waited for minutes, for it took the next leader for one that does not answer yet."""
    told: list[str] = []
    gone = Scripted(told, "gone", fails(UnreachableError("no connection")))
    deaf = Scripted(told, "deaf", fails(NoMungeError("munged does not answer")))
    for clients in ([gone, deaf, gone], [deaf, gone], [gone, deaf]):
        with pytest.raises(NoMungeError):
            Engine(clients).status()
    assert Engine([deaf, Scripted(told, "there", lambda: {"nodes": []})]).nodes() == [], "a socket needs no munge"


def test_a_connection_that_never_came_about_is_told_apart_from_one_that_broke(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="cannot be reached"):
        EngineClient.unix(str(tmp_path / "none")).request("GET", "/v1/status")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError), pytest.MonkeyPatch.context() as patch:
            patch.setattr(EngineClient, "_credential", lambda *_: "x")
            EngineClient.tcp(f"http://127.0.0.1:{closed.getsockname()[1]}", 0).request("GET", "/v1/status")
    path = tmp_path / "breaks"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=lambda: listening.accept()[0].close())
        thread.start()
        with pytest.raises(UnavailableError) as broke:
            EngineClient.unix(str(path)).request("GET", "/v1/status")
        thread.join(PATIENCE_S)
    assert not isinstance(broke.value, UnreachableError)


def test_the_end_of_an_operation_is_waited_for_while_the_engine_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: Iterator[object] = iter(["running", UnavailableError("broke off"), "running", "done"])
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)

    def does() -> dict[str, Any]:
        told = next(answers)
        if isinstance(told, Exception):
            raise told
        return {"state": told}

    seen: list[object] = []
    ended = Engine([Scripted([], "engine", does)]).wait(7, seen=seen.append)
    assert (ended["state"], len(seen), naps) == ("done", 2, [1])


# -- the example of the docs -------------------------------------------------------------------------------------------


def run(*words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])},
        user=user,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@as_root
def test_the_example_shows_the_cluster_and_suspends_and_resumes_a_vjob(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "rmsplugin.toml"
    settings.write_text(
        f'[engine]\nsocket = "{served.socket}"\n[slurm]\npartitions = ["vjob"]\n[partition.vjob]\nhosts = "vmhosts"\n'
        '[network]\npool = "10.0.0.10-10.0.0.20"\nprefix_length = 24\n'
        '[image.default]\nkind = "kernel"\nkernel = "/k"\ninitrd = "/i"\n'
    )
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(settings))
    world = served.world
    job = world.running()

    def portal(*words: str) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, str(EXAMPLE), *words)

    shown = portal()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{world.host(job)}: 1 of 2 CPUs, " in shown.stdout
    assert f"{job} of nobody is running on {world.host(job)}" in shown.stdout
    assert portal(str(job)).stdout.splitlines()[0] == f"suspend of {job}: done"
    world.until(job, S.SLEEPING)
    assert portal(str(job)).stdout.splitlines()[0] == f"resume of {job}: done"
    world.until(job, S.RUNNING)
    refused = portal("99")
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", "portal: no vjob 99 (status 404)\n")


def test_the_example_is_as_short_as_the_page_says() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 30


def test_the_forms_of_answers_are_not_loaded_by_those_who_only_ask() -> None:
    code = "import sys, rmsplugin.api.binding; print(*sorted(name for name in sys.modules if 'rmsplugin.' in name))"
    told = run(sys.executable, "-c", code).stdout.split()
    assert "rmsplugin.client" in told
    assert not {"rmsplugin.api.answers", "rmsplugin.api.routes", "rmsplugin.settings"} & set(told), json.dumps(told)
