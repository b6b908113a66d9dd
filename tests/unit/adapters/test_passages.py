"""Passages on the engine's side: a socket of this host, behind which is the platform of a node."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import PATIENCE_S
from socket_channel import SocketChannel

from rmsplugin.adapters.nodes import passages
from rmsplugin.adapters.nodes.passages import Passages
from rmsplugin.adapters.nodes.ssh_link import Target
from rmsplugin.errors import DeposedError, OperationFailedError, UnavailableError

TARGET = Target("root", "/key", "/hosts", PATIENCE_S)
THROUGH = b'{"through": 1}\n'


class Channel(SocketChannel):
    """A channel whose other end does what ``agent`` does with the words of the call."""

    def __init__(self, agent: Callable[[str, socket.socket], None]) -> None:
        ours, self._theirs = socket.socketpair()
        self._agent = agent
        super().__init__(ours, PATIENCE_S)

    def exec_command(self, words: str) -> None:
        threading.Thread(target=self._agent, args=(words, self._theirs), daemon=True).start()


class Links:
    """The ssh connections that were made, and how many channels each has had."""

    def __init__(self) -> None:
        self.made: list[list[Channel]] = []
        self.agent = echo

    def __call__(self, node: str, target: Target) -> Any:
        channels: list[Channel] = []
        self.made.append(channels)
        links = self

        class Link:
            def __init__(self) -> None:
                self.node = node

            def open_channel(self, timeout_s: float) -> Channel:
                channels.append(Channel(links.agent))
                return channels[-1]

            def close(self) -> None:
                for channel in channels:
                    channel.close()

        return Link()


def echo(words: str, channel: socket.socket) -> None:
    """Let through, and say again what is said; the first words with the greeting."""
    channel.sendall(THROUGH + words.encode())
    with channel:
        while data := channel.recv(1 << 16):
            channel.sendall(data)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Iterator[Links]:
    links = Links()
    monkeypatch.setattr(passages, "Link", links)
    yield links


def connected(ways: Passages, node: str = "n1") -> socket.socket:
    with ways.path(node) as path:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.connect(path)
        assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert not os.path.exists(path)
    end.settimeout(PATIENCE_S)
    return end


def said(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += end.recv(size - len(data))
    return data


@pytest.mark.parametrize(
    ("epoch", "words"), [(1, b"platform"), (7, b"platform --epoch 7"), (None, b"look-at-platform")]
)
def test_what_is_said_on_the_socket_goes_to_the_node_and_back(links: Links, epoch: int | None, words: bytes) -> None:
    end = connected(Passages(TARGET, epoch))
    assert said(end, len(words)) == words, "what came with the greeting is not lost"
    end.sendall(b"x" * 100_000)
    assert said(end, 100_000) == b"x" * 100_000


def test_the_end_of_one_side_is_that_of_the_other(links: Links) -> None:
    ways = Passages(TARGET, 7)
    end = connected(ways)
    links.made[0][0].close()
    while end.recv(1 << 16):
        pass
    end = connected(ways)
    end.close()
    theirs = links.made[0][1]._theirs
    for _ in range(1000):
        if theirs.fileno() < 0:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the agent was not told")


def answers(line: bytes) -> Callable[[str, socket.socket], None]:
    def agent(words: str, channel: socket.socket) -> None:
        with channel:
            channel.sendall(line)

    return agent


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (b'{"error": "the turn of this engine is over", "kind": "deposed"}\n', DeposedError, "n1: the turn"),
        (
            b'{"error": "not a command of the node agent: platform", "kind": "failed"}\n',
            OperationFailedError,
            "release",
        ),
        (b"", UnavailableError, "ended without an answer"),
        (b"what?\n", UnavailableError, "n1 cannot be reached"),
        (b"[" * 4000 + b"\n", UnavailableError, "n1 cannot be reached"),
        (b"5\n", UnavailableError, "n1 cannot be reached"),
        (b"x" * 9000, UnavailableError, "ended without an answer"),
    ],
)
def test_an_agent_that_lets_nobody_through_is_told_as_it_is(
    links: Links, line: bytes, error: type[Exception], words: str
) -> None:
    links.agent = answers(line)
    with pytest.raises(error, match=words), Passages(TARGET, 7).path("n1"):
        raise AssertionError("it was let through")


def test_an_ssh_connection_has_no_more_passages_than_a_server_of_ssh_allows(links: Links) -> None:
    ways = Passages(TARGET, 7)
    ends = [connected(ways) for _ in range(9)]
    assert [len(channels) for channels in links.made] == [8, 1]
    assert len(connected(ways, "n2").recv(1)) == 1
    assert len(links.made) == 3
    ends[0].close()
    while len(ways._links["n1"][0][1]) == 8:
        threading.Event().wait(0.01)
    connected(ways)
    assert [len(channels) for channels in links.made] == [9, 1, 1]


def test_all_end_with_the_engine(links: Links) -> None:
    ways = Passages(TARGET, 7)
    end = connected(ways)
    ways.close()
    while end.recv(1 << 16):
        pass


def test_a_node_that_is_booted_anew_is_shown_once_that_the_engine_leads(links: Links) -> None:
    shown: list[str] = []

    def agent(words: str, channel: socket.socket) -> None:
        if shown:
            echo(words, channel)
            return
        with channel:
            channel.sendall(b'{"error": "no engine has shown", "kind": "unowned", "boot": "b", "now_ms": 1}\n')

    links.agent = agent
    with pytest.raises(UnavailableError, match="no engine has shown"), Passages(TARGET, 7).path("n1"):
        pass
    end = connected(Passages(TARGET, 7, shown.append))
    assert end.recv(64) == b"platform --epoch 7"
    assert shown == ["n1"]
    end.close()
