"""What the wrapper makes of the engine's words, and of a guest that is not there or is no guest."""

from __future__ import annotations

import select
import socket
import threading

import pytest

from rmsplugin.errors import UnavailableError
from rmsplugin.wrapper.engine import Access
from rmsplugin.wrapper.mailbox import Mailbox
from rmsplugin.wrapper.session import Session

VM = {"name": "vjob12-0", "address": "127.0.0.1", "host_key": "ssh-ed25519 AAAA"}
ANSWER = {"state": "running", "user": "alice", "vms": [VM], "private_key": "secret"}


def test_access_is_what_the_engine_says() -> None:
    access = Access.parse(ANSWER)
    assert access is not None
    assert (access.user, access.vm_names, access.address) == ("alice", ("vjob12-0",), "127.0.0.1")
    assert "secret" not in repr(access)
    assert Access.parse({"state": "suspending", "reason": "a context switch"}) is None


@pytest.mark.parametrize("without", ["user", "private_key"])
def test_an_answer_that_lacks_something_is_none_of_an_engine(without: str) -> None:
    with pytest.raises(UnavailableError, match=without):
        Access.parse({name: value for name, value in ANSWER.items() if name != without})


@pytest.mark.parametrize("host_key", ["", "ssh-ed25519", "ssh-ed25519 A", "ssh-ed25519 ****"])
def test_a_host_key_that_is_none_is_not_connected_to(host_key: str) -> None:
    access = Access("alice", ("vjob12-0",), "127.0.0.1", host_key, "secret")
    with pytest.raises(UnavailableError, match="host key"):
        access.host_key_bytes()


def test_nobody_there_is_a_guest_that_does_not_answer() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        access = Access("alice", ("vjob12-0",), "127.0.0.1", "ssh-ed25519 AAAA", "secret")
        with pytest.raises(UnavailableError, match="does not answer"):
            Session.connect(access, port=taken.getsockname()[1])


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n" + b"\0" * 100])
def test_a_server_that_speaks_no_ssh_is_a_broken_connection(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(greeting)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1000):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        access = Access("alice", ("vjob12-0",), "127.0.0.1", "ssh-ed25519 AAAA", "secret")
        with pytest.raises(UnavailableError):
            Session.connect(access, port=server.getsockname()[1])
        thread.join(10)
        assert not thread.is_alive(), "the connection was closed"


def test_a_signal_stays_in_the_mailbox_until_it_was_sent() -> None:
    mailbox = Mailbox()
    assert mailbox.get() == ""
    assert not select.select([mailbox], [], [], 0)[0]
    mailbox.put(10, everything=False)
    mailbox.put(15, everything=True)
    assert select.select([mailbox], [], [], 0)[0]
    mailbox.clear_wakes()
    assert not select.select([mailbox], [], [], 0)[0]
    assert [mailbox.get(), mailbox.get()] == ["kill 10"] * 2
    mailbox.sent()
    assert mailbox.get() == "kill 15 all"
