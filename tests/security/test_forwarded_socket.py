"""The engine's socket forwarded by ssh: whoever comes that way is the user who has logged in, for a real sshd."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from others import open_directory
from unit.served import ME, PATIENCE_S, Served, until

from rmsplugin.model.vjob import VJobState

USER = "daemon"

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to start an ssh server"),
    pytest.mark.skipif(not shutil.which("sshd"), reason="needs an ssh server"),
]

#: A server for one connection, on its standard input, with a /run of its own.
_SERVER = "mount -t tmpfs run /run && mkdir /run/sshd && exec {sshd} -i -f {directory}/sshd_config"


@contextmanager
def logged_in(directory: Path, here: str, there: str) -> Iterator[None]:
    """``USER`` is logged in by ssh, which forwards the socket ``here`` to ``there``."""
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(words, check=True)
    (directory / "sshd_config").write_text(
        f"HostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\nStrictModes no\nUsePAM no\n"
    )
    server = _SERVER.format(sshd=shutil.which("sshd"), directory=directory)
    options = {
        "ProxyCommand": f"unshare -m --propagation private sh -c '{server}'",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "ExitOnForwardFailure": "yes",
    }
    words = [each for key, value in options.items() for each in ("-o", f"{key}={value}")]
    command = ["ssh", "-F", "none", *words, "-i", str(directory / "user"), "-N", "-L", f"{here}:{there}", f"{USER}@n"]
    ssh = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until(lambda: os.path.exists(here) or ssh.poll() is not None, "the forwarded socket")
        yield
    finally:
        ssh.terminate()
        ssh.communicate(timeout=PATIENCE_S)


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as place:
        yield place


def test_who_looks_at_the_page_is_the_user_of_the_login(directory: Path) -> None:
    served = Served(directory)
    with contextlib.closing(served):
        served.world.rms.private = frozenset({"jobs"})
        served.add_vjob(12, ME, VJobState.RUNNING, user="root", job_name="of-root")
        served.add_vjob(13, 1, user=USER, job_name="of-daemon")
        served.world.cycle.run()
        here = str(directory / "forwarded")
        with logged_in(directory, here, served.socket):
            status, text = asked(here, "GET", "/v1/page")
            assert (status, "of-daemon" in text, "of-root" in text) == (200, True, False)
            assert asked(here, "POST", "/v1/pause")[0] == 403
            assert asked(here, "GET", "/v1/page", "evil.example")[0] == 403


def asked(path: str, method: str, target: str, host: str = "localhost:8080") -> tuple[int, str]:
    """Status and text of an answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Accept: text/html", "Content-Length: 0", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read().decode()
