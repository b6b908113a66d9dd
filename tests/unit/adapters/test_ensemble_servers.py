"""What a server of the ensemble says when it is asked outside any session, and what counts as no answer."""

from __future__ import annotations

import socket
import threading

import pytest

from rmsplugin.adapters.coordination.servers import ServerFact, ask_servers, quorum


def told(said: bytes) -> ServerFact:
    """What is understood of a server that says this."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            asked, _ = listening.accept()
            with asked:
                assert asked.recv(4) == b"srvr"
                asked.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        (found,) = ask_servers([f"127.0.0.1:{listening.getsockname()[1]}"])
        thread.join()
    return found


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"", "says 'nothing'"),
        (b"This ZooKeeper instance is not currently serving requests\n", "says 'This ZooKeeper instance is not curr"),
        (b"srvr is not executed because it is not in the whitelist.\n", "not in the whitelist"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "says 'HTTP/1.1 400 Bad Request'"),
    ],
)
def test_a_server_that_does_not_serve_says_why(said: bytes, problem: str) -> None:
    assert problem in told(said).problem


def test_version_and_mode_are_understood() -> None:
    found = told(b"Zookeeper version: 3.8.0-${mvnbuild.number}, built on 2023\nMode: follower\nNode count: 5\n")
    assert (found.problem, found.version, found.mode) == ("", "3.8.0", "follower")


def test_a_server_that_is_not_there_is_said() -> None:
    (found,) = ask_servers(["127.0.0.1:1"])
    assert found == ServerFact("127.0.0.1:1", "Connection refused")


def test_a_quorum_is_more_than_half() -> None:
    assert [quorum(servers) for servers in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
