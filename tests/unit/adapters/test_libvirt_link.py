"""Connections to a node's libvirt: long calls have one for themselves, and the next one takes it over."""

from __future__ import annotations

import threading
from typing import Any

import libvirt
import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.libvirt.link import Link, start_event_loop
from rmsplugin.errors import RmspluginError


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
