"""What the wrapper makes of the engine's words, and of a guest that is not there or is no guest."""

from __future__ import annotations

import contextlib
import select
import shlex
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from patience import PATIENCE_S
from unit import guestbox

from rmsplugin.errors import OperationFailedError, UnavailableError
from rmsplugin.wrapper.session.access import Access
from rmsplugin.wrapper.session.libssh2 import Connection
from rmsplugin.wrapper.session.mailbox import Mailbox
from rmsplugin.wrapper.session.session import SSH_PORT, Session
from rmsplugin.wrapper.session.steps import Steps
from rmsplugin.wrapper.session.streams import Ack
from rmsplugin.wrapper.signals import Fate

VM = {"name": "vjob12-0", "address": "127.0.0.1", "host_key": "ssh-ed25519 AAAA"}
TOOL = "/run/rmsplugin/bin/rmsplugin-guest"
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
            Session.connect(access, 0, port=taken.getsockname()[1])


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
            Session.connect(access, 0, port=server.getsockname()[1])
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the connection was closed"


@pytest.fixture(scope="module")
def box() -> Iterator[guestbox.Guestbox]:
    if why := guestbox.missing():
        pytest.skip(why)
    with guestbox.ready("busybox", 1) as box:
        yield box


def access_to(box: guestbox.Guestbox) -> Access:
    vm = box.guests[0].vm
    return Access(guestbox.USER, (vm.name,), vm.address, vm.host_key, box.key.private_openssh)


@contextlib.contextmanager
def session_with(box: guestbox.Guestbox, does: str) -> Iterator[Session]:
    """A session with a guest whose user has put something else in the place of our tool."""
    program = shlex.quote(f"#!/bin/sh\n{does}\n")
    box.guests[0].run(f"mv {TOOL} {TOOL}.ours && printf %s {program} >{TOOL} && chmod 755 {TOOL}")
    try:
        with box.entered():
            session = Session.connect(access_to(box), 0)
        try:
            yield session
        finally:
            session.close()
    finally:
        box.guests[0].run(f"mv {TOOL}.ours {TOOL}")


def begin(session: Session) -> object:
    return session.begin({"stdout": 0})


def acknowledge(session: Session) -> object:
    return session.acknowledge({f"stream{number}": Ack(1, 1) for number in range(9)})


def ending(session: Session) -> object:
    return session.ending(Steps("", "12", lambda: Fate.RUNNING, lambda step, number: None))


LINE_WITHOUT_END = "cat /dev/zero | tr '\\0' x"


@pytest.mark.parametrize(
    ("ask", "does"),
    [
        (begin, "exec yes"),
        (begin, LINE_WITHOUT_END),
        (begin, "echo kept stdout x; echo ready; cat"),
        (begin, "echo stdout 1 -; echo ready; cat"),
        (begin, f"echo stdout 1 {'9' * 30}; echo ready; cat"),
        (lambda session: session.room(1), "exec yes"),
        (acknowledge, LINE_WITHOUT_END),
        (acknowledge, "exec yes ok"),
        (ending, LINE_WITHOUT_END),
        (ending, "echo exit x"),
        (ending, "echo exit 256"),
        (ending, "echo signal 1000"),
    ],
)
def test_a_tool_that_says_what_ours_would_not_has_failed(
    box: guestbox.Guestbox, ask: Callable[[Session], object], does: str
) -> None:
    with session_with(box, does) as session, pytest.raises(OperationFailedError, match="guest") as failure:
        ask(session)
    assert len(str(failure.value)) < 2000


@pytest.fixture
def connection(box: guestbox.Guestbox) -> Iterator[Connection]:
    access = access_to(box)
    with box.entered():
        sock = socket.create_connection((access.address, SSH_PORT))
    connection = Connection(sock, access.host_key_bytes(), timeout_s=15)
    connection.login(access.user, access.private_key)
    yield connection
    connection.close()


def test_of_a_commands_errors_as_much_is_kept_as_can_be_read(connection: Connection) -> None:
    channel = connection.open("echo it fails >&2; head -c 1000000 /dev/zero >&2; exit 4")
    while channel.read() != b"":
        if not channel.pending():
            select.select([connection], [], [], 0.05)
    status, said = channel.close()
    assert status == 4
    assert said.startswith(b"it fails\n")
    assert len(said) < 10_000


def test_errors_without_end_hold_up_no_other_command(connection: Connection) -> None:
    flood = connection.open("exec yes >&2")
    other = connection.open("sleep 1; echo done")
    while (data := other.read()) is None:
        flood.pending()
        select.select([connection], [], [], 0.05)
    assert data == b"done\n"


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
