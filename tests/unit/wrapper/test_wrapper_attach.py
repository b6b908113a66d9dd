"""How the wrapper tries again to reach its guest: its pauses, and what it keeps for the next attempt."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmsplugin.errors import UnavailableError
from rmsplugin.wrapper.attach import program as attach
from rmsplugin.wrapper.attach.preparation import Preparation
from rmsplugin.wrapper.attach.program import Wrapper
from rmsplugin.wrapper.session.access import Access
from rmsplugin.wrapper.session.streams import Ack


class EnoughError(Exception):
    """The test has seen what it wants to."""


class Session:
    """A connection over which the script is found running, and which breaks after some output."""

    def begin(self, sizes: dict[str, int]) -> SimpleNamespace:
        return SimpleNamespace(started=True, acks={}, kept_from={})

    def deliver(self, files: list[Any], *_: object) -> None:
        files[0]._ack = Ack(files[0].ack.offset + 1, 0)
        raise UnavailableError("the connection broke")

    def close(self) -> None:
        pass


class Guest:
    """Whether the guest answers, attempt by attempt, for ever silent after the last; and what the wrapper does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: Path) -> None:
        self.answers: Iterator[bool] = itertools.repeat(False)
        self.vms = lambda: ("vjob12-0",)
        self.pauses: list[float] = []
        self.preparations: list[Preparation] = []
        self.attempts = 0
        monkeypatch.setattr(attach.Session, "connect", self._connect)
        monkeypatch.setattr(attach, "Preparation", self._prepare)
        monkeypatch.setattr(attach, "time", SimpleNamespace(monotonic=time.monotonic, sleep=self.pauses.append))
        words = ["vms=1,cpus=1,memory=64,ntasks=1,cpus_per_task=1,image=default", str(script)]
        steps = SimpleNamespace(take_over=lambda: None)
        self._wrapper = Wrapper(words, self, SimpleNamespace(), lambda mailbox: steps, 3)  # type: ignore[arg-type, return-value]

    def access(self) -> Access:
        self.attempts += 1
        return Access("alice", self.vms(), "10.0.0.1", "ssh-ed25519 AAAA", "KEY")

    def _connect(self, access: Access, run: int) -> Session:
        assert run == 3
        answers = next(self.answers, None)
        if answers is None:
            raise EnoughError
        if not answers:
            raise UnavailableError("the guest does not answer")
        return Session()

    def _prepare(self, *words: str) -> Preparation:
        self.preparations.append(Preparation(*words))
        return self.preparations[-1]

    def try_to_reach(self, *answers: bool) -> None:
        self.answers = iter(answers)
        try:
            with pytest.raises(EnoughError):
                self._wrapper.run()
        finally:
            for preparation in self.preparations:
                preparation.close()


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Guest:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/rmsplugin-job\n#!/bin/sh\n")
    return Guest(monkeypatch, script)


def test_pauses_grow_while_the_guest_is_silent(guest: Guest) -> None:
    guest.try_to_reach(*[False] * 2000)
    assert guest.pauses[:6] == [0.5, 1, 2, 4, 5, 5]
    assert set(guest.pauses[6:]) == {5}


def test_after_a_connection_that_served_pauses_are_short_again(guest: Guest) -> None:
    guest.try_to_reach(False, False, False, True, False, True)
    assert guest.pauses == [0.5, 1, 2, 0.5, 1, 0.5]


def test_the_start_is_prepared_once_however_often_the_guest_is_tried(guest: Guest) -> None:
    guest.try_to_reach(*[False] * 5)
    assert (guest.attempts, len(guest.preparations)) == (6, 1)


def test_the_start_is_prepared_anew_for_other_vms(guest: Guest) -> None:
    guest.vms = lambda: (f"vjob12-{guest.attempts // 3}",)
    guest.try_to_reach(*[False] * 5)
    assert [preparation.words[2] for preparation in guest.preparations] == ["vjob12-0", "vjob12-1", "vjob12-2"]


def test_what_a_connection_may_have_taken_is_prepared_anew(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: object) -> None:
        raise UnavailableError("the connection broke")

    monkeypatch.setattr(Session, "begin", break_off)
    guest.try_to_reach(False, True, True, False)
    assert len(guest.preparations) == 3
