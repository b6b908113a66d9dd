"""A server of ZooKeeper that is silent keeps nobody from another one for long."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.errors import UnavailableError

pytest.importorskip("kazoo")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a port that answers no further connection, as a host does that is cut off."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):  # what the kernel takes by itself, and more
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_does_not_serve_yet_is_asked_again_soon_although_another_one_is_silent(silent: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as electing:
        electing.settimeout(60)
        tree = ZooKeeperTree([silent, f"127.0.0.1:{electing.getsockname()[1]}"], 20.0, 1.0)
        try:
            moments = []
            for _ in range(4):
                electing.accept()[0].close()
                moments.append(time.monotonic())
        finally:
            tree.close()
    assert moments[-1] - moments[0] < 15, "a session is 20 s"


def granted(connection: socket.socket) -> None:
    """Answer the request for a session."""
    connection.recv(4096)
    answer = struct.pack(">iiqi", 0, 6000, 1, 16) + bytes(16) + b"\0"
    connection.sendall(struct.pack(">i", len(answer)) + answer)


def test_a_server_that_falls_silent_is_left_although_requests_are_sent_to_it() -> None:
    """Seen: of the engines at a ZooKeeper server that stood still each stayed there until it went on."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = {each.fileno(): each for each in (first, second)}
        tree = ZooKeeperTree([f"127.0.0.1:{each.getsockname()[1]}" for each in ports.values()], 3.0, 0.2)
        asking, over = threading.Event(), threading.Event()

        def ask() -> None:
            while not over.wait(0.05):
                with suppress(UnavailableError):
                    tree.read("/x")
                asking.set()

        asks = threading.Thread(target=ask)
        with ExitStack() as connections:
            connections.callback(tree.close)
            connections.callback(asks.join)
            connections.callback(over.set)
            asks.start()
            for _ in range(2):  # the second one comes when the first has been silent
                ready, _, _ = select.select(list(ports), [], [], 20)
                assert ready, "the silent server is not left"
                connection = connections.enter_context(ports[ready[0]].accept()[0])
                granted(connection)
    assert asking.is_set()
