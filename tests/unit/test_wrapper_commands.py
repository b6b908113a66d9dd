"""Commands on a front that has nothing to spare, and for a guest that does not keep to what was agreed."""

from __future__ import annotations

import errno
import io
import os
import select
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import descriptors
import pytest

from rmsplugin.wrapper.commands import Commands

REQUEST = {"words": b"squeue\0", "cwd": b"/", "umask": b"022\n", "environment": b""}


def archive() -> bytes:
    """What slurm-client asks for by `squeue`."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in REQUEST.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


class Channel:
    """A command of the guest's; as far as the wrapper sees."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.said, self.heard = words, b"", b""
        self.status: int | None = None

    def read(self) -> bytes | None:
        if self.said or self.status is not None:
            data, self.said = self.said, b""
            return data
        return None

    def write(self, data: bytes) -> None:
        self.heard += data

    def end_input(self) -> None:
        self.heard += b"<end>"

    def close(self) -> tuple[int, bytes]:
        assert self.status is not None
        return self.status, b""


class Guest:
    """A guest in which requests lie, and the wrapper's Commands for it."""

    def __init__(self, directory: Path, squeue: str = "echo answered") -> None:
        self.calls = directory / "calls"
        self.calls.touch()
        client = directory / "squeue"
        client.write_text(f"#!/bin/sh\necho call >>{self.calls}\n{squeue}\n")
        client.chmod(0o755)
        self.commands = Commands(str(directory))
        self.delivered: list[Channel] = []
        self.commands.connect(self)  # type: ignore[arg-type]

    def open(self, words: str) -> Channel:
        """Start a command, as Connection does."""
        channel = Channel(words.split())
        if channel.words[1] == "serve":
            self.serve = channel
        else:
            self.delivered.append(channel)
        return channel

    def ask(self, *identifiers: str) -> None:
        """Tell of requests."""
        self.serve.said += "".join(f"new {each}\n" for each in identifiers).encode()

    def turn(self) -> None:
        """Let the wrapper do what it can; what it takes comes."""
        while self.commands.turn() or self._give():
            pass

    def _give(self) -> bool:
        taken = [line.split()[1] for line in self.serve.heard.splitlines() if line.startswith(b"take ")]
        self.serve.heard = b""
        for identifier in taken:
            self.serve.said += b"request %s %d\n" % (identifier, len(archive())) + archive()
        return bool(taken)

    def until(self, so: Callable[[], object]) -> None:
        """Let the wrapper go on until it is so."""
        deadline = time.monotonic() + 60
        while not so():
            assert time.monotonic() < deadline
            select.select([self.commands.fileno()], [], [], 0.05)
            self.turn()

    def answer(self, number: int) -> bytes:
        """What the wrapper has sent as one answer, whole."""
        self.until(lambda: len(self.delivered) > number and self.delivered[number].heard.endswith(b"<end>"))
        return self.delivered[number].heard.removesuffix(b"<end>")

    def called(self) -> int:
        """How often the site's client was."""
        return len(self.calls.read_text().splitlines())


@pytest.mark.parametrize("more", range(4))  # a request, two ends of a line, an answer
def test_a_front_that_has_no_descriptors_left_says_that_it_was_not_carried_out(tmp_path: Path, more: int) -> None:
    guest = Guest(tmp_path)
    before = descriptors.open_now()
    guest.ask("1-1")
    with descriptors.at_most(more):
        guest.turn()
    assert descriptors.open_now() == before
    answer = guest.answer(0)
    assert answer.startswith(b"1 0 ")
    assert b"not carried out" in answer
    assert b"Too many open files" in answer
    guest.delivered[0].status = 0
    guest.ask("2-1")
    assert guest.answer(1) == b"0 9 0\nanswered\n"
    assert guest.called() == 1


def test_a_front_that_has_no_processes_left_says_that_it_was_not_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = Guest(tmp_path)
    before = descriptors.open_now()

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    guest.ask("1-1")
    with monkeypatch.context() as short:
        short.setattr(os, "posix_spawn", refuse)
        guest.turn()
    assert descriptors.open_now() == before
    assert b"not carried out" in guest.answer(0)
