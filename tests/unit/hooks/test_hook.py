"""The hooks: what they ask of the engine, and that nothing makes them fail a job or drain a node."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin import defaults, hook
from rmsplugin.client import COMING, EngineClient
from rmsplugin.errors import ForbiddenError
from rmsplugin.model.vjob import VJobState

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "hooks"
NAMES = sorted(hook.HOOKS)


class FakeEngine:
    """Answers on a unix socket with the next entry of ``answers``: (status, body); the last one stays."""

    def __init__(self, path: Path) -> None:
        self.answers: list[tuple[int, dict[str, Any]]] = [(200, {"state": "running"})]
        self.seen: list[tuple[str, str]] = []
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def address_string(self) -> str:
                return "test"

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_POST(self) -> None:
                engine.seen.append((self.command, self.path))
                status, body = engine.answers.pop(0) if len(engine.answers) > 1 else engine.answers[0]
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(
        f'[engine]\nsocket = "{tmp_path}/engine.sock"\n[slurm]\npartitions = ["vjob", "vjob2"]\nprolog_wait_s = 1.5\n'
    )
    return path


@pytest.fixture
def engine(tmp_path: Path, config: Path) -> Iterator[FakeEngine]:
    fake = FakeEngine(tmp_path / "engine.sock")
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def job(config: Path, partition: str = "vjob", job_id: str = "12") -> dict[str, str]:
    return {"RMSPLUGIN_CONFIG": str(config), "SLURM_JOB_PARTITION": partition, "SLURM_JOB_ID": job_id}


@pytest.mark.parametrize("name", NAMES)
def test_other_partitions_are_left_alone(config: Path, engine: FakeEngine, name: str) -> None:
    hook.run(name, job(config, partition="plain"))
    hook.run(name, {"RMSPLUGIN_CONFIG": str(config)})
    assert engine.seen == []


def test_prolog_waits_for_the_vms(config: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_RETRY_S", 0.01)
    engine.answers = [
        (404, {"error": "no such vjob"}),
        (503, {"error": "starting up"}),
        (200, {"state": "suspending"}),
        (200, {"state": "starting"}),
        (200, {"state": "running"}),
        (200, {"state": "too late"}),
    ]
    hook.run("prolog_slurmctld", job(config))
    assert len(engine.seen) == 5
    assert all(method == "POST" and path.startswith("/v1/jobs/12/prolog?wait=") for method, path in engine.seen)


@pytest.mark.parametrize("answer", [{"state": "waiting"}, {"state": "starting", "nearly_up": True}])
def test_a_native_job_goes_on_at_the_first_answer(config: Path, engine: FakeEngine, answer: dict[str, Any]) -> None:
    config.write_text(config.read_text() + '[hypervisor]\nplatform = "native"\n')
    engine.answers = [(200, answer)]
    hook.run("prolog_slurmctld", job(config))
    assert len(engine.seen) == 1


def test_a_native_job_goes_on_without_an_engine_however_long_vms_may_take(
    config: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text().replace("1.5", "600") + '[hypervisor]\nplatform = "native"\n')
    monkeypatch.setattr(hook, "_NATIVE_WAIT_S", 0.3)
    engine.answers = [(503, {"error": "starting up"})]
    hook.run("prolog_slurmctld", job(config))
    assert "job 12 starts" in capsys.readouterr().err


def test_nodes_of_native_jobs_tell_of_the_end_alone(
    config: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hook, "_node_client", lambda _: EngineClient.unix(str(tmp_path / "engine.sock")))
    config.write_text(config.read_text() + '[hypervisor]\nplatform = "native"\n')
    hook.run("prolog", {**job(config), "SLURM_JOB_UID": "0"})
    assert engine.seen == []
    hook.run("epilog", job(config))
    assert engine.seen == [("POST", "/v1/jobs/12/epilog")]


def test_prolog_does_not_wait_for_a_later_start_of_the_job(config: Path, engine: FakeEngine) -> None:
    engine.answers = [
        (200, {"state": "starting", "starts": 1}),
        (200, {"state": "starting", "starts": 2}),
        (200, {"state": "running", "starts": 2}),
    ]
    hook.run("prolog_slurmctld", job(config))
    assert len(engine.seen) == 2


def test_prolog_does_not_wait_for_vms_that_are_nearly_up(config: Path, engine: FakeEngine) -> None:
    engine.answers = [
        (200, {"state": "starting", "starts": 1, "nearly_up": True}),
        (200, {"state": "running", "starts": 1, "nearly_up": True}),
    ]
    hook.run("prolog_slurmctld", job(config))
    assert len(engine.seen) == 1


@pytest.mark.parametrize("state", ["waiting", "stopping", "terminated"])
def test_prolog_does_not_wait_for_what_will_not_come(config: Path, engine: FakeEngine, state: str) -> None:
    engine.answers = [(200, {"state": state})]
    hook.run("prolog_slurmctld", job(config))
    assert len(engine.seen) == 1


def test_prolog_does_not_insist_when_it_is_refused(config: Path, engine: FakeEngine) -> None:
    engine.answers = [(403, {"error": "only root and slurm may do this"})]
    with pytest.raises(ForbiddenError, match="only root"):
        hook.run("prolog_slurmctld", job(config))
    assert len(engine.seen) == 1


def test_prolog_gives_up_in_time(config: Path, engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.answers = [(200, {"state": "starting"})]
    begin = time.monotonic()
    hook.run("prolog_slurmctld", job(config))
    assert 1.4 <= time.monotonic() - begin < defaults.PROLOG_WAIT_S
    assert len(engine.seen) >= 2
    assert "job 12 starts and waits for its VMs: its VMs are not up yet (vjob starting)" in capsys.readouterr().err


def test_prolog_while_the_engine_is_down(config: Path, tmp_path: Path) -> None:
    """It comes up while the prolog waits."""
    fakes: list[FakeEngine] = []
    timer = threading.Timer(0.6, lambda: fakes.append(FakeEngine(tmp_path / "engine.sock")))
    timer.start()
    hook.run("prolog_slurmctld", job(config))
    timer.join()
    (fake,) = fakes
    assert len(fake.seen) == 1
    fake.server.shutdown()
    fake.server.server_close()


def test_epilog_slurmctld(config: Path, engine: FakeEngine) -> None:
    hook.run("epilog_slurmctld", job(config))
    assert engine.seen == [("POST", "/v1/jobs/12/epilog")]


def test_node_epilog_asks_over_tcp(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Client:
        @classmethod
        def tcp(cls, url: str, engine_uid: int) -> Client:
            calls.append((url, engine_uid))
            return cls()

        def request(self, method: str, path: str, *, timeout_s: float) -> dict[str, Any]:
            calls.append((method, path))
            return {}

    monkeypatch.setattr("rmsplugin.client.EngineClient", Client)
    hook.run("epilog", job(config))
    assert calls == []  # no engine.url: the engine listens on the controller only
    config.write_text('[engine]\nurl = "http://head:7"\nuser = "root"\n[slurm]\npartitions = ["vjob"]\n')
    hook.run("epilog", job(config))
    assert calls == [("http://head:7", 0), ("POST", "/v1/jobs/12/epilog")]


def test_the_prolog_waits_in_each_state_in_which_vms_come_up() -> None:
    assert {state for state in VJobState if state.is_live} - {VJobState.RUNNING, VJobState.STOPPING} == COMING


def run_module(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "rmsplugin.hook", *arguments],
        env={"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "text", "job_id", "said"),
    [
        ([], "", "12", "usage"),
        (["reboot"], "", "12", "usage"),
        (["epilog_slurmctld"], None, "12", "No such file"),
        (["epilog_slurmctld"], "not TOML", "12", "Expected"),
        (["epilog_slurmctld"], "slurm = 7", "12", ""),
        (["epilog_slurmctld"], '[slurm]\npartitions = ["vjob"]', "../x", "SLURM_JOB_ID"),
        (["epilog_slurmctld"], '[slurm]\npartitions = ["vjob"]\n[engine]\nsocket = "/nowhere"', "12", "reached"),
        (["prolog_slurmctld"], '[slurm]\npartitions = ["vjob"]\nprolog_wait_s = "x"', "12", "could not convert"),
        (["epilog"], '[slurm]\npartitions = ["vjob"]\n[engine]\nurl = "http://h:1"\nuser = "no one"', "12", "no one"),
    ],
)
def test_whatever_is_wrong_the_exit_status_is_0(
    tmp_path: Path, arguments: list[str], text: str | None, job_id: str, said: str
) -> None:
    config = tmp_path / "config.toml"
    if text is not None:
        config.write_text(text)
    done = run_module(arguments, job(config, job_id=job_id))
    assert done.returncode == 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_that_is_no_vjob_imports_nothing_more(config: Path) -> None:
    """Every job of the cluster passes here, so it has to be fast."""
    program = (
        "import sys\nfrom rmsplugin import hook\nsys.argv = ['hook', 'prolog_slurmctld']\nassert hook.main() == 0\n"
        "print([name for name in ('json', 'http', 'socket', 'pydantic', 'subprocess') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", program],
        env={"PYTHONPATH": str(ROOT), **job(config, partition="plain")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert done.stderr == ""


# --- the scripts that slurm.conf names ---


def run_script(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # No PATH: slurmd gives its hooks none.
    return subprocess.run(
        [str(SCRIPTS / name)], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "a bin"
    directory.mkdir()
    program = directory / "rmsplugin-hook"
    program.write_text('#!/bin/sh\necho "$# $1 ${RMSPLUGIN_CONFIG-none}"\nexit 3\n')
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize("name", NAMES)
def test_script_runs_the_hook(bin_dir: Path, tmp_path: Path, name: str) -> None:
    environment = tmp_path / "hooks.env"
    environment.write_text(f"# a comment\nRMSPLUGIN_BIN={bin_dir}\nRMSPLUGIN_CONFIG=/x y/$(echo z)")
    done = run_script(name, {"RMSPLUGIN_HOOKS_ENV": str(environment)})
    assert (done.stdout, done.returncode) == (f"1 {name} /x y/$(echo z)\n", 0)


@pytest.mark.parametrize("name", NAMES)
def test_script_without_the_plugin(tmp_path: Path, name: str) -> None:
    environment = tmp_path / "hooks.env"
    environment.write_text(f"RMSPLUGIN_BIN={tmp_path}/none\n")
    done = run_script(name, {"RMSPLUGIN_HOOKS_ENV": str(environment)})
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize("text", ["RMSPLUGIN_BIN", "=", "((", "exit 1", "\0\0"])
def test_script_with_a_broken_hooks_env(tmp_path: Path, text: str) -> None:
    environment = tmp_path / "hooks.env"
    environment.write_text(text)
    assert run_script("prolog", {"RMSPLUGIN_HOOKS_ENV": str(environment)}).returncode == 0


@pytest.mark.parametrize("name", ["resume_program", "suspend_program"])
def test_script_hands_the_nodes_on(bin_dir: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "hooks.env").write_text(f"RMSPLUGIN_BIN={bin_dir}\n")
    (bin_dir / "rmsplugin-hook").write_text('#!/bin/sh\necho "$#/$1/$2"\n')
    environment = {"RMSPLUGIN_HOOKS_ENV": str(tmp_path / "hooks.env")}
    done = subprocess.run(
        [str(SCRIPTS / name), "n[1-3]"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.returncode) == (f"2/{name}/n[1-3]\n", 0)
    assert (SCRIPTS / name).resolve() == SCRIPTS / "prolog"


def test_scripts_are_one_file() -> None:
    assert {(SCRIPTS / name).resolve() for name in NAMES} == {SCRIPTS / "prolog"}


def test_the_fronts_prolog_tells_who_the_user_is(
    config: Path, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_node_client", lambda _: EngineClient.unix(str(tmp_path / "engine.sock")))
    engine.answers = [(503, {"error": "not now"}), (200, {"changed": True})]
    hook.run("prolog", {**job(config), "SLURM_JOB_UID": str(os.getuid())})
    assert engine.seen == [("POST", "/v1/jobs/12/account")] * 2


def test_the_fronts_prolog_asks_nobody_where_the_engine_is_on_the_controller_only(
    config: Path, engine: FakeEngine
) -> None:
    hook.run("prolog", {**job(config), "SLURM_JOB_UID": str(os.getuid())})
    assert engine.seen == []
