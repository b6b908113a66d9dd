"""Nobody keeps the engine from hearing others: idle polls, open or abandoned, disturb nobody (issue 7, 6.j)."""

from __future__ import annotations

import json
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from e2e.cluster import PROGRAM, Cluster
from e2e.engine_settings import configured

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_POLLERS = 64
#: As many as one user may have waiting for one vjob.
_EACH = 8
#: Longer than a wrapper may be silent (engine.orphan_s).
_WATCHED_S = 45.0
_PAUSE_S = 2.0

# Opens the polls in its words and abandons half of those over the unix socket; tells how many are answered by now
# whenever it reads a line.
_POLL = """
import hashlib, json, secrets, select, socket, sys
from rmsplugin.adapters import munge
path, host, port, count, *jobs = sys.argv[1:]
count = int(count)

def request(job):
    where = f"/v1/jobs/{job}/access?wait=300"
    claim = {"method": "GET", "path": where, "sha256": hashlib.sha256(b"").hexdigest(), "nonce": secrets.token_hex(16)}
    credential = munge.encode(json.dumps(claim).encode())
    return f"GET {where} HTTP/1.1\\r\\nHost: engine\\r\\nAuthorization: Munge {credential}\\r\\n\\r\\n".encode()

polls = []
for number in range(count):
    if host:
        poll = socket.create_connection((host, int(port)))
    else:
        poll = socket.socket(socket.AF_UNIX)
        poll.connect(path)
    poll.sendall(request(jobs[number % len(jobs)]))
    polls.append(poll)
print("open", flush=True)
answers = {}
for line in sys.stdin:
    if line.strip() == "close half":
        for poll in polls[::2]:
            poll.close()
        del polls[::2]
    answered, _, _ = select.select(polls, [], [], 0)
    for poll in answered:
        answers.setdefault(poll, poll.recv(200).decode("ascii", "replace"))
    print(json.dumps([answer for poll, answer in answers.items() if poll in polls]), flush=True)
"""


class Pollers:
    """Alice's polls, over the unix socket or over TCP; ``ask`` tells what was answered of them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self.line() == "open"

    def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def answered(self, word: str = "") -> list[str]:
        """The beginnings of the answers that came so far."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        answers: list[str] = json.loads(self.line())
        return answers


@contextmanager
def pollers(cluster: Cluster, host: str, where: tuple[str, str, str], jobs: list[int]) -> Iterator[Pollers]:
    """Alice's polls for her jobs, opened on ``host``."""
    python = str(PROGRAM.parent / "python")
    words = [python, "-c", _POLL, *where, str(_POLLERS), *map(str, jobs)]
    argv = cluster.entering(*words, host=host, user="alice")
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Pollers(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()  # its loop ends
        process.wait(120)


def test_64_idle_pollers_of_one_user_disturb_nobody(cluster: Cluster) -> None:
    bobs = cluster.sbatch("#!/bin/sh\necho up; sleep 600\n", user="bob")
    over_unix = [cluster.sbatch("#!/bin/sh\ntrue\n", "--begin=now+1hour") for _ in range(_POLLERS // _EACH)]
    over_tcp = [cluster.sbatch("#!/bin/sh\ntrue\n", "--begin=now+1hour") for _ in range(_POLLERS // _EACH)]
    cluster.wait_vjob(bobs, "running")
    for job in (*over_unix, *over_tcp):
        cluster.wait_vjob(job, "waiting")
    settings = tomllib.loads(cluster.ok("cat", "/etc/rmsplugin/rmsplugin.toml"))["engine"]
    host, _, port = settings["url"].removeprefix("http://").rpartition(":")
    near = ("/run/rmsplugin/engine.sock", "", "")
    login = cluster.nodes[0]
    with (
        configured(cluster, "engine", f'login_hosts = ["{login}"]'),
        pollers(cluster, "head", near, over_unix) as local,
        pollers(cluster, login, ("", host, port), over_tcp) as remote,
    ):
        assert (local.answered(), remote.answered()) == ([], [])
        until = time.monotonic() + _WATCHED_S
        closed = False
        while time.monotonic() < until:
            assert cluster.plugin("vjobs", user="bob").code == 0
            time.sleep(_PAUSE_S)
            if not closed:
                assert (local.answered("close half"), remote.answered("close half")) == ([], [])
                closed = True
        # What was open waits on, undisturbed.
        assert (local.answered(), remote.answered()) == ([], [])
        # One more of bob's starts and ends meanwhile.
        assert cluster.wait_job(cluster.sbatch("#!/bin/sh\ntrue\n", user="bob"))["JobState"] == "COMPLETED"
        fields = cluster.job(bobs)
        assert (fields["JobState"], fields["Restarts"]) == ("RUNNING", "0")
        events = cluster.plugin("events", "--vjob", str(bobs), user="bob").out
        assert "silent" not in events
        assert "requeue" not in events


def test_a_user_with_too_many_polls_of_a_vjob_is_told(cluster: Cluster) -> None:
    job = cluster.sbatch("#!/bin/sh\ntrue\n", "--begin=now+1hour")
    cluster.wait_vjob(job, "waiting")
    with pollers(cluster, "head", ("/run/rmsplugin/engine.sock", "", ""), [job]) as local:

        def refused() -> list[str] | None:
            answers = local.answered()
            return answers if len(answers) == _POLLERS - _EACH else None

        answers = cluster.wait("the polls beyond the limit are answered", refused, 20)
        assert all(answer.startswith("HTTP/1.1 429") for answer in answers), answers
