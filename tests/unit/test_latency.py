"""What large pieces of work leave is not gone through by the collector after each, and garbage goes all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from rmsplugin import latency
from rmsplugin.latency import Sparing


class Thing:
    """Something that refers to itself, so that the collector alone can free it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def nothing_exempted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(latency, "_EXEMPTED_MOST", 3)
    gc.unfreeze()
    yield
    gc.unfreeze()


def work(sparing: Sparing, things: int) -> tuple[list[list[int]], weakref.ref[Thing]]:
    """Make so many objects that stay, and one that is garbage."""
    with sparing.meanwhile(lambda: things > 10):
        assert not gc.isenabled()
        garbage = weakref.ref(Thing())
        return [[number] for number in range(things)], garbage


def test_what_much_work_leaves_is_not_gone_through() -> None:
    kept, _ = work(Sparing(), 1000)
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(kept)


def test_after_little_work_garbage_is_collected_as_ever() -> None:
    _, garbage = work(Sparing(), 10)
    assert not gc.get_freeze_count()
    gc.collect()
    assert garbage() is None


def test_what_was_exempted_is_gone_through_once_in_a_while() -> None:
    sparing = Sparing()
    _, garbage = work(sparing, 1000)
    gc.collect()
    assert garbage() is not None  # as nobody went through it
    for _ in range(3):
        work(sparing, 1000)
    assert garbage() is None
