"""The wrapper's signs of life: now and then, and soon after it was stopped."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin.client import EngineClient
from rmsplugin.engine.context.fronts import OVERDUE_S
from rmsplugin.errors import RefusedError, RmspluginError, UnavailableError, UnreachableError
from rmsplugin.wrapper import engine
from rmsplugin.wrapper.attach import program
from rmsplugin.wrapper.attach.program import Wrapper
from rmsplugin.wrapper.engine import EngineLink


class Client(EngineClient):
    """Counts what is posted."""

    def __init__(self, addresses: int = 1, lost: int = 0) -> None:
        """``lost``: so many of the first signs are lost."""
        self._addresses = [("h", port) for port in range(addresses)]
        self.posted, self.lost = threading.Semaphore(0), lost
        self.errors: list[RmspluginError] = []  # of the next signs

    def request(self, method: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        assert (method, path) == ("POST", "/v1/jobs/7/attached")
        self.posted.release()
        if self.lost:
            self.lost -= 1
            raise UnavailableError("it did not answer within 10 s")
        if self.errors:
            raise self.errors.pop(0)
        return {"returns": 0}


def test_a_wrapper_that_was_stopped_says_soon_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SIGN_OF_LIFE_S", (3600.0, 3600.0))
    monkeypatch.setattr(engine, "_LEAST_SIGN_OF_LIFE_S", 0.01)
    client = Client()
    link = EngineLink(client, "7")
    link.show_signs_of_life(lambda _: None)
    for _ in range(3):
        assert client.posted.acquire(timeout=PATIENCE_S)
        assert not client.posted.acquire(timeout=0.2)
        link.goes_on()


@pytest.mark.parametrize(("addresses", "lost", "signs"), [(1, 1, 1), (2, 0, 1), (2, 1, 2), (2, 9, 2), (3, 2, 3)])
def test_a_sign_that_one_of_several_has_lost_is_given_to_the_next_one_at_once(
    monkeypatch: pytest.MonkeyPatch, addresses: int, lost: int, signs: int
) -> None:
    """Else the engine would hear nothing for 10 s and the time to the next sign: too long for a wrapper."""
    monkeypatch.setattr(engine, "_SIGN_OF_LIFE_S", (3600.0, 3600.0))
    client = Client(addresses, lost)
    EngineLink(client, "7").show_signs_of_life(lambda _: None)
    for _ in range(signs):
        assert client.posted.acquire(timeout=PATIENCE_S)
    assert not client.posted.acquire(timeout=0.2)


def signs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs that come once, but for those that are repeated."""
    monkeypatch.setattr(engine, "_SIGN_OF_LIFE_S", (3600.0, 3600.0))
    monkeypatch.setattr(engine, "_SIGN_AGAIN_S", (0.02, 0.05))
    monkeypatch.setattr(engine, "_LEAST_SIGN_OF_LIFE_S", 0.01)
    EngineLink(client, "7").show_signs_of_life(lambda _: None)


def test_a_sign_that_nobody_answered_is_repeated_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a cut of 10 s at the moment of one sign made a silence of two periods, and the job was requeued."""
    client = Client()
    client.errors = [UnreachableError("no way"), UnavailableError("it broke off")]
    signs(client, monkeypatch)
    for _ in range(3):
        assert client.posted.acquire(timeout=PATIENCE_S)
    assert not client.posted.acquire(timeout=0.5), "the third one was answered"


def test_an_engine_that_refuses_a_sign_has_heard_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.errors = [RefusedError("not its vjob")]
    signs(client, monkeypatch)
    assert client.posted.acquire(timeout=PATIENCE_S)
    assert not client.posted.acquire(timeout=0.5)


def test_a_wrapper_is_overdue_for_the_engine_after_its_longest_period() -> None:
    assert max(engine._SIGN_OF_LIFE_S) == OVERDUE_S > 3 * max(engine._SIGN_AGAIN_S)


def test_it_may_be_told_so_however_often() -> None:
    link = EngineLink(Client(), "7")
    for _ in range(100_000):  # more than its pipe takes
        link.goes_on()


def test_it_falls_silent_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LEAST_SIGN_OF_LIFE_S", 0.01)
    client = Client()
    link = EngineLink(client, "7")
    link.show_signs_of_life(lambda _: None)
    assert client.posted.acquire(timeout=PATIENCE_S)
    link.fall_silent()
    link.goes_on()
    assert not client.posted.acquire(timeout=0.5)


def test_a_wrapper_that_stands_aside_for_a_later_run_gives_no_sign_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of itself it would give one in a minute only, which no test of real wrappers waits for."""
    monkeypatch.setattr(engine, "_LEAST_SIGN_OF_LIFE_S", 0.01)
    stands_aside = threading.Event()

    def sleep(seconds: float) -> None:
        stands_aside.set()
        threading.Event().wait()

    client = Client()
    link = EngineLink(client, "7")
    wrapper = Wrapper(["1:1:1", "script"], link, None, lambda mailbox: None)  # type: ignore[arg-type,return-value]
    link.show_signs_of_life(lambda _: None)
    assert client.posted.acquire(timeout=PATIENCE_S)
    monkeypatch.setattr(program, "time", SimpleNamespace(sleep=sleep))
    threading.Thread(target=wrapper._stand_aside, daemon=True).start()
    assert stands_aside.wait(PATIENCE_S)
    link.goes_on()
    assert not client.posted.acquire(timeout=0.5)
