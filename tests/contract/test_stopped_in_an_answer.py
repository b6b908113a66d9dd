"""An engine is stopped while it answers a wrapper that its script may start, and goes on when its session has ended.

The wrapper is not told to start its script then: the next engine may have had it begun elsewhere (I5).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract import engine_in_answer
from patience import PATIENCE_S
from unit.munged import Munged
from unit.served import ME

from rmsplugin.client import EngineClient
from rmsplugin.errors import RmspluginError, UnavailableError

pytestmark = pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")

#: Long enough for a request on a loaded machine.
SESSION_S = 8.0


@contextmanager
def engine(directory: Path, where: str) -> Iterator[tuple[subprocess.Popen[str], EngineClient]]:
    """An engine that leads for a session, and a client of it."""
    with tempfile.TemporaryDirectory() as short:
        munged = Munged(Path(short))
        process = subprocess.Popen(
            [sys.executable, engine_in_answer.__file__, directory, munged.socket, str(SESSION_S), where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield process, EngineClient.tcp(f"http://127.0.0.1:{port}", ME, munge_socket=munged.socket)
        finally:
            process.kill()
            process.communicate()
            munged.stop()


class Wrapper:
    """A wrapper that asks whether its script may start."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.answer: dict[str, Any] | RmspluginError | None = None
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self.answer = self._client.request("POST", "/v1/jobs/12/started", {}, timeout_s=PATIENCE_S)
        except RmspluginError as error:
            self.answer = error

    def wait(self) -> dict[str, Any] | RmspluginError | None:
        self._thread.join(PATIENCE_S)
        return self.answer


@pytest.mark.parametrize("where", ["asked", "done", "unsealed", "sealed"])
def test_a_script_is_not_told_to_start_by_an_engine_that_was_stopped_and_has_lost(tmp_path: Path, where: str) -> None:
    with engine(tmp_path, where) as (process, client):
        wrapper = Wrapper(client)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(SESSION_S)
        threading.Thread(target=_let_go_on, args=(process, wrapper)).start()
        answer = wrapper.wait()
        assert isinstance(answer, UnavailableError) and "does not lead now" in str(answer), answer


def _let_go_on(process: subprocess.Popen[str], wrapper: Wrapper) -> None:
    """Whenever it has stopped: it seals its refusal as any answer."""
    while wrapper.answer is None and process.poll() is None:
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)


def test_an_engine_that_leads_tells_a_script_to_start(tmp_path: Path) -> None:
    with engine(tmp_path, "never") as (_, client):
        assert Wrapper(client).wait() == {"ok": True}
