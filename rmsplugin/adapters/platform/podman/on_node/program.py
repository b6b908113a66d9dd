"""Program: podman on this node, run with words of ours; nothing is given to a shell."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rmsplugin.errors import NoSpaceError, OperationFailedError, TimedOutError

#: runc restores by CRIU on each kind of control groups; crun does so on version 2 alone. With podman's other manager,
#: systemd's, groups would have names of systemd's.
_PODMAN = ("podman", "--log-level", "error", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
#: The programs without which there is no container here, none that ends well, and none that is saved.
NAMES = ("podman", "runc", "criu")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_STEP_S = 0.02
_SAID_MOST = 600
_HEARD_MOST = 1 << 20


def environment() -> dict[str, str]:
    """What podman and the programs that it starts have: nothing of who asks."""
    return {"PATH": _PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}


def version(name: str, timeout_s: float) -> str:
    """The first number of the version that a program names; "" if there is no such program. Raises as ``ended``."""
    done = ended([name, "--version"], timeout_s)
    if done is None or done.returncode != 0:
        return ""
    return next((word for word in done.stdout.replace("+", " ").split() if word[:1].isdigit()), "")


def ended(words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run another program to its end; None if there is no such program.

    Raises:
        TimedOutError: it did not end in so many seconds, and was killed.
    """
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, env=environment()
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise TimedOutError(f"{' '.join(words)} did not end in {timeout_s:g} s") from None


class Podman:
    """One run of podman."""

    def __init__(self, *words: str) -> None:
        """Start it.

        Raises:
            OperationFailedError: there is no podman here.
        """
        self._what = " ".join(words[:2])
        self._heard = b""
        try:
            self._process = subprocess.Popen(
                [*_PODMAN, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment(),
            )
        except OSError as error:
            raise OperationFailedError(f"podman cannot be started on this node: {error.strerror}") from None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def wait(self, deadline: float, *, over: Callable[[], bool] = lambda: False) -> str:
        """Wait for its end, and return what it has said.

        Args:
            deadline: by the monotonic clock.
            over: asked all the time; true ends the wait.

        Raises:
            NoSpaceError, OperationFailedError: it has failed.
            TimedOutError: the time is over, or ``over`` says so; it runs on.
        """
        while self._process.poll() is None:
            self.listen()
            if over():
                raise TimedOutError(f"podman {self._what} was given up")
            if time.monotonic() > deadline:
                raise TimedOutError(f"podman {self._what} did not end in time")
            time.sleep(_STEP_S)
        said = self._said()
        if self._process.returncode == 0:
            return said
        text = " ".join(said.split())[-_SAID_MOST:] or f"exit status {self._process.returncode}"
        full = "no space left on device" in said.lower() or "disk quota exceeded" in said.lower()
        raise (NoSpaceError if full else OperationFailedError)(f"podman {self._what}: {text}")

    def _said(self) -> str:
        """What it has said so far; the programs that it leaves behind may hold its output open."""
        self.listen()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._heard.decode(errors="replace")

    def listen(self) -> None:
        """Take what it has said: it waits when nobody takes what does not fit into its pipe."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return  # it has ended, and all was taken
        with suppress(BlockingIOError):
            while said := os.read(self._process.stdout.fileno(), 1 << 16):
                self._heard = (self._heard + said)[-_HEARD_MOST:]

    @property
    def children(self) -> list[int]:
        """The processes that it has started and that have not ended."""
        return list(_descendants(self._process.pid))

    def kill(self) -> None:
        """End podman itself, and wait for that."""
        self._process.kill()
        self._process.wait()


def _descendants(pid: int) -> Iterator[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def run(*words: str, timeout_s: float) -> str:
    """Run podman, and return what it has said. Raises as ``Podman.wait``; past its time it is ended."""
    podman = Podman(*words)
    try:
        return podman.wait(time.monotonic() + timeout_s)
    except TimedOutError:
        podman.kill()
        raise
