"""The wrapper's signs of life: now and then, and soon after it was stopped."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rmsplugin.client import EngineClient
from rmsplugin.wrapper import engine
from rmsplugin.wrapper.engine import EngineLink


class Client(EngineClient):
    """Counts what is posted."""

    def __init__(self) -> None:
        self.posted = threading.Semaphore(0)

    def request(self, method: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        assert (method, path) == ("POST", "/v1/jobs/7/attached")
        self.posted.release()
        return {"returns": 0}


def test_a_wrapper_that_was_stopped_says_soon_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SIGN_OF_LIFE_S", (3600.0, 3600.0))
    monkeypatch.setattr(engine, "_LEAST_SIGN_OF_LIFE_S", 0.01)
    client = Client()
    link = EngineLink(client, "7")
    link.show_signs_of_life(lambda _: None)
    for _ in range(3):
        assert client.posted.acquire(timeout=60)
        assert not client.posted.acquire(timeout=0.2)
        link.goes_on()


def test_it_may_be_told_so_however_often() -> None:
    link = EngineLink(Client(), "7")
    for _ in range(100_000):  # more than its pipe takes
        link.goes_on()
