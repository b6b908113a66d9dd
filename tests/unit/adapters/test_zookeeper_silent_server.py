"""A server of ZooKeeper that is silent keeps nobody from another one for long."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree

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
