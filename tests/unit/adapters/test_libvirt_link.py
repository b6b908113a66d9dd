"""Connections to a node's libvirt: long calls have one for themselves, and the next one takes it over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import libvirt
import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.libvirt.link import Call, Link, start_event_loop
from rmsplugin.errors import RmspluginError, TimedOutError, UnavailableError


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All connections that were made, to libvirt's own test driver."""
    start_event_loop()
    made: list[Any] = []
    real = libvirt.open

    def connect(uri: str) -> Any:
        made.append(real(uri))
        return made[-1]

    monkeypatch.setattr(libvirt, "open", connect)
    monkeypatch.setattr(libvirt.virConnect, "setKeepAlive", lambda *_: 0)  # the test driver has no peer
    return made


@pytest.fixture
def link() -> Link:
    return Link("n1", lambda: libvirt.open("test:///default"), 10.0)


def names(link: Link) -> list[str]:
    call = link.start("listing", lambda conn: [domain.name() for domain in conn.listAllDomains()])
    assert call.wait(PATIENCE_S)
    return call.result()


def test_long_calls_one_after_the_other_take_one_connection(link: Link, opened: list[Any]) -> None:
    assert [names(link) for _ in range(3)] == [["test"]] * 3
    assert len(opened) == 1


def test_long_calls_at_the_same_time_have_one_each_and_one_is_kept(link: Link, opened: list[Any]) -> None:
    together = threading.Barrier(2, timeout=PATIENCE_S)
    calls = [link.start("waiting", lambda conn: together.wait() >= 0) for _ in range(2)]
    assert all(call.wait(PATIENCE_S) and call.result() for call in calls)
    assert len(opened) == 2
    names(link)
    assert len(opened) == 2


def test_a_connection_on_which_a_call_failed_is_not_used_again(link: Link, opened: list[Any]) -> None:
    names(link)
    call = link.start("looking", lambda conn: conn.lookupByName("nobody").name())
    assert call.wait(PATIENCE_S)
    with pytest.raises(RmspluginError):
        call.result()
    assert names(link) == ["test"]
    assert len(opened) == 2


def test_a_connection_that_has_ended_is_not_used_again(
    link: Link, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names(link)
    monkeypatch.setattr(type(opened[0]), "isAlive", lambda conn: conn is not opened[0])
    assert names(link) == ["test"]
    assert len(opened) == 2


def test_nothing_is_kept_of_a_link_that_was_closed(link: Link, opened: list[Any]) -> None:
    names(link)
    link.close()
    names(link)
    names(link)
    assert len(opened) == 3


# --- a node that falls silent ---


class Node:
    """A node that answers or not; notes for how long each call was to be waited for, at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited: list[float] = []
        self._answers = threading.Event()
        self.link = Link("n1", self._connect, 10.0)
        real = Call.wait

        def wait(call: Call[Any], timeout_s: float) -> bool:
            if timeout_s > 0:
                self.waited.append(round(timeout_s, 1))
            return real(call, PATIENCE_S if self._answers.is_set() and timeout_s > 0 else 0)

        monkeypatch.setattr(Call, "wait", wait)

    def _connect(self) -> libvirt.virConnect:
        assert self._answers.wait(PATIENCE_S)
        return libvirt.open("test:///default")

    def answers(self, whether: bool) -> None:
        (self._answers.set if whether else self._answers.clear)()

    def listed(self) -> int:
        return len(self.link.query("listing", lambda conn: conn.listAllDomains(), 20.0))

    def hang(self) -> None:
        """Call it, and hear nothing."""
        entered = threading.Event()

        def call(conn: libvirt.virConnect) -> None:
            entered.set()
            assert self._answers.wait(PATIENCE_S)

        self.answers(False)
        with pytest.raises(TimedOutError):
            self.link.call("looking", call, 20.0)
        assert entered.wait(PATIENCE_S)


@pytest.fixture
def node(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(monkeypatch)
    yield made
    made.answers(True)


def test_a_node_that_does_not_let_connect_is_waited_for_once(node: Node, opened: list[Any]) -> None:
    for _ in range(3):
        with pytest.raises(UnavailableError, match="no connection in time"):
            node.listed()
    assert node.waited == [10.0, 2.0, 2.0]
    node.answers(True)
    assert node.listed() == 1
    assert len(opened) == 1, "the connection that was being made all the time"


def test_a_node_that_falls_silent_in_a_call_is_not_waited_for_again(node: Node) -> None:
    node.answers(True)
    assert node.listed() == 1
    node.hang()
    node.waited.clear()
    with pytest.raises(UnavailableError):
        node.listed()
    assert node.waited == [2.0]


def test_a_node_that_has_answered_again_is_waited_for_as_ever(node: Node) -> None:
    node.answers(True)
    node.listed()
    node.hang()
    node.answers(True)
    node.listed()
    node.link.close()
    node.answers(False)
    node.waited.clear()
    with pytest.raises(UnavailableError):
        node.listed()
    assert node.waited == [10.0]
