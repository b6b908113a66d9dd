"""Stage: runs commands on the minicluster's hosts, shows them, and waits for what they bring about."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_REPOSITORY = Path(__file__).resolve().parent.parent.parent
_RMSPLUGIN = str(_REPOSITORY / ".venv/bin/rmsplugin")
_BOLD, _PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


class StoryError(Exception):
    """Something is not as the story says it is."""


class Stage:
    """The minicluster in one directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Begin a step: one sentence of what it shows."""
        print(f"\n{_BOLD}[{time.monotonic() - self._started:3.0f} s] {text}{_PLAIN}", flush=True)

    def run(self, words: Sequence[str], *, user: str = "root", host: str = "head", stdin: str = "") -> str:
        """Run a command on a host without showing it; return what it prints."""
        program = [_RMSPLUGIN if words[0] == "rmsplugin" else words[0], *words[1:]]
        enter = [str(_REPOSITORY / "contrib/minicluster"), "exec", "--dir", self.directory, "--user", user, host, "--"]
        try:
            done = subprocess.run([*enter, *program], input=stdin, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired:
            raise StoryError(f"`{' '.join(words)}` did not end within 3 minutes") from None
        if done.returncode != 0:
            raise StoryError(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def show(self, words: Sequence[str], *, user: str = "alice") -> str:
        """Run a command on the head in front of the reader; return what it prints."""
        print(f"  {user}$ {' '.join(word if ' ' not in word else repr(word) for word in words)}", flush=True)
        output = self.run(words, user=user)
        for line in output.splitlines():
            print(f"  {line}", flush=True)
        return output

    @contextmanager
    def engine_with(self, *lines: str) -> Iterator[None]:
        """An engine that has these lines more in the section [decision] of its settings; afterwards one without."""
        path, section = "/etc/rmsplugin/rmsplugin.toml", "[decision]\n"
        before = self.run(["cat", path])
        check(before.count(section) == 1, f"{path} has no section [decision]")
        try:
            self._begin_engine(path, before.replace(section, "\n".join([section.strip(), *lines, ""])))
            yield
        finally:
            self._begin_engine(path, before)

    def _begin_engine(self, path: str, settings: str) -> None:
        """End the engine and begin one with these settings; VMs and jobs go on meanwhile."""
        self.run(["dd", f"of={path}", "status=none"], stdin=settings)
        words = [str(_REPOSITORY / "contrib/minicluster"), "restart", "--dir", self.directory, "head", "engine"]
        subprocess.run(words, check=False, capture_output=True, timeout=180)
        self.await_("the engine to answer", self._engine_answers)

    def _engine_answers(self) -> bool | None:
        try:
            return bool(self.ask("nodes")) or None
        except StoryError:
            return None

    def ask(self, listing: str) -> list[dict[str, Any]]:
        """Rows of one of rmsplugin's listings."""
        words = ["rmsplugin", listing, "--json", *(["--all"] if listing == "vjobs" else [])]
        rows: list[dict[str, Any]] = json.loads(self.run(words))[listing]
        return rows

    def await_(self, what: str, look: Callable[[], T | None], timeout_s: float = 90) -> T:
        """Look until there is something to see; on a terminal, say for how long."""
        started = time.monotonic()
        shown = sys.stderr.isatty()
        try:
            while True:
                found = look()
                if found is not None:
                    return found
                waited_s = time.monotonic() - started
                if waited_s > timeout_s:
                    raise StoryError(f"waited {timeout_s:.0f} s in vain for {what}")
                if shown:
                    print(f"\r  ... {what} ({waited_s:.0f} s)\033[K", end="", file=sys.stderr, flush=True)
                time.sleep(0.3)
        finally:
            if shown:
                print("\r\033[K", end="", file=sys.stderr, flush=True)


def check(condition: bool, otherwise: str) -> None:
    """Make sure of what the story says.

    Raises:
        StoryError: it is not so.
    """
    if not condition:
        raise StoryError(otherwise)
