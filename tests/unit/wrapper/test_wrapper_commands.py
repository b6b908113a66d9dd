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

import pytest
from patience import PATIENCE_S
from unit import descriptors

from rmsplugin.wrapper.session.answers import MAKING
from rmsplugin.wrapper.session.commands import Commands

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

    def __init__(self, words: list[str], status: int | None) -> None:
        self.words, self.said = words, b""
        self.heard = bytearray()  # to which much is added
        self.ended, self.status = False, status

    def read(self) -> bytes | None:
        if self.said or (self.ended and self.status is not None):
            data, self.said = self.said, b""
            return data
        return None

    def write(self, data: bytes) -> None:
        self.heard += data

    def end_input(self) -> None:
        self.ended = True

    def close(self) -> tuple[int, bytes]:
        assert self.status is not None
        return self.status, b""


class Guest:
    """A guest in which requests lie, and the wrapper's Commands for it."""

    def __init__(self, directory: Path, squeue: str = "echo answered", *, switched_off: bool = False) -> None:
        self.calls = directory / "calls"
        self.calls.touch()
        client = directory / "squeue"
        client.write_text(f"#!/bin/sh\necho call >>{self.calls}\n{squeue}\n")
        client.chmod(0o755)
        self.commands = Commands("" if switched_off else str(directory), [])
        self.asked: dict[str, None] = {}
        self.delivered: list[Channel] = []
        #: The exit status of the command that takes an answer; None: it does not end.
        self.status: int | None = None
        self.commands.connect(self, 0)  # type: ignore[arg-type]

    def open(self, words: str) -> Channel:
        """Start a command, as Connection does."""
        channel = Channel(words.split(), self.status)
        if channel.words[1] == "serve":
            self.serve = channel
            self._tell(*self.asked)
        else:
            self.delivered.append(channel)
            self.asked.pop(channel.words[2], None)
        return channel

    def ask(self, *identifiers: str) -> None:
        """Have requests, and tell of them."""
        self.asked.update(dict.fromkeys(identifiers))
        self._tell(*identifiers)

    def _tell(self, *identifiers: str) -> None:
        self.serve.said += "".join(f"new {each}\n" for each in identifiers).encode()

    def turn(self) -> None:
        """Let the wrapper do what it can, and be obeyed."""
        while self.commands.turn() or self._obey():
            pass

    def _obey(self) -> bool:
        lines, self.serve.heard = self.serve.heard.decode().splitlines(), bytearray()
        for line in lines:
            if line == "again":
                self._tell(*self.asked)
            else:
                identifier = line.removeprefix("take ")
                del self.asked[identifier]
                self.serve.said += f"request {identifier} {len(archive())}\n".encode() + archive()
        return bool(lines)

    def until(self, so: Callable[[], object]) -> None:
        """Let the wrapper go on until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not so():
            assert time.monotonic() < deadline
            select.select([self.commands.fileno()], [], [], 0.05)
            self.turn()

    def answer(self, number: int) -> bytes:
        """What the wrapper has sent as one answer, whole."""
        self.until(lambda: len(self.delivered) > number and self.delivered[number].ended)
        return bytes(self.delivered[number].heard)

    def called(self) -> int:
        """How often the site's client was."""
        return len(self.calls.read_text().splitlines())


def test_an_answer_that_the_guest_cannot_keep_is_sent_again_until_it_can_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmsplugin.wrapper.session.answers._AGAIN_S", 0.1)
    guest = Guest(tmp_path)
    guest.status = 1
    guest.ask("1-1")
    guest.until(lambda: len(guest.delivered) == 3)
    assert guest.commands.due_s() is not None
    guest.status = 0
    guest.ask("2-1")
    guest.until(lambda: guest.delivered[-1].words[2] == "2-1" and guest.delivered[-1].ended)
    guest.until(lambda: len(guest.delivered) == 5 and guest.delivered[-1].ended)
    guest.turn()
    assert guest.commands.due_s() is None
    assert sorted(channel.words[2] for channel in guest.delivered) == ["1-1"] * 4 + ["2-1"]
    assert {bytes(channel.heard) for channel in guest.delivered} == {b"0 9 0\nanswered\n"}
    guest.commands.connect(guest, 0)  # type: ignore[arg-type]
    assert guest.serve.words[2:] == ["run:0"]


def test_a_part_that_the_guest_cannot_keep_is_sent_again_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmsplugin.wrapper.session.answers._AGAIN_S", 0.1)
    guest = Guest(tmp_path, "echo one; sleep 2; echo two")
    guest.serve.said += b"parts\n"
    guest.status = 1
    guest.ask("1-1")
    guest.until(lambda: len(guest.delivered) == 2)
    guest.status = 0
    guest.until(lambda: len(guest.delivered) == 3 and guest.delivered[-1].ended)
    guest.serve.said += b"more 1-1 1\n"
    guest.until(lambda: len(guest.delivered) == 4 and guest.delivered[-1].ended)
    assert [channel.words[3] for channel in guest.delivered] == ["1", "1", "1", "2"]
    assert [channel.heard for channel in guest.delivered] == [b"- 4 0\none\n"] * 3 + [b"0 4 0\ntwo\n"]
    assert guest.called() == 1


def check_without_descriptors(directory: Path) -> None:
    guest = Guest(directory)
    guest.status = 0
    before = descriptors.open_now()
    for more in range(4):  # a request, two ends of a line, an answer
        guest.ask(f"{more}-1")
        with descriptors.at_most(more):
            guest.turn()
        assert descriptors.open_now() == before
        answer = guest.answer(more)
        assert answer.startswith(b"1 0 ")
        assert b"not carried out" in answer
        assert b"Too many open files" in answer
    guest.ask("4-1")
    assert guest.answer(4) == b"0 9 0\nanswered\n"
    assert guest.called() == 1


def test_a_front_that_has_no_descriptors_left_says_that_it_was_not_carried_out(tmp_path: Path) -> None:
    descriptors.alone(check_without_descriptors, tmp_path)


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
    assert descriptors.open_now() <= before
    assert b"not carried out" in guest.answer(0)


@pytest.mark.parametrize(
    ("squeue", "asked", "most"),
    [("echo answered", 100, 64), ("head -c 8000000 /dev/zero", 40, 64 // 8 + 16)],
    ids=["many", "large"],
)
def test_a_guest_that_takes_no_answers_has_no_more_of_them_made(
    tmp_path: Path, squeue: str, asked: int, most: int
) -> None:
    guest = Guest(tmp_path, squeue)
    guest.ask(*(f"{number}-1" for number in range(1, asked + 1)))
    guest.turn()
    # Then nothing is begun any more: each process has ended, or waits for its part to be taken.
    guest.until(lambda: all(answer.state != MAKING for answer in guest.commands._answers.values()))
    assert 0 < guest.called() <= most
    guest.delivered[0].status = guest.status = 0
    guest.until(lambda: len(guest.delivered) == asked and guest.delivered[-1].ended)
    assert guest.called() == asked


def test_where_commands_are_switched_off_any_number_of_requests_is_answered_and_few_answers_are_held(
    tmp_path: Path,
) -> None:
    guest = Guest(tmp_path, switched_off=True)
    with descriptors.at_most(8):
        guest.ask(*(f"{number}-1" for number in range(1, 3001)))
        guest.turn()
        guest.commands.connect(guest, 0)  # type: ignore[arg-type]
        assert len(guest.serve.words[3:]) <= 64
        guest.status = 0
        guest.until(lambda: not guest.asked and guest.delivered[-1].ended)
    assert all(b"switched off" in channel.heard for channel in guest.delivered if channel.ended)
    assert len({channel.words[2] for channel in guest.delivered if channel.ended}) == 3000
