"""The file servers from which VMs mount: which ones a node asks, what it sees of them, and what is said of that."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.libvirt.checks.servers import judge_servers
from rmsplugin.adapters.platform.libvirt.on_node import servers
from rmsplugin.finding import Level
from rmsplugin.node_agent.config import load


def test_a_server_that_listens_answers_and_another_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as closed:
        there, gone = listening.getsockname()[1], closed.getsockname()[1]
        closed.close()
        found = servers.seen([("127.0.0.1", there), ("127.0.0.1", gone), ("127.0.0.1", there)])
    assert found == {f"127.0.0.1:{there}": "", f"127.0.0.1:{gone}": "Connection refused"}


@pytest.mark.parametrize("host", ["srv..x", "s" * 64])
def test_a_name_that_none_can_have_is_no_server(host: str) -> None:
    assert servers.seen([(host, 2049)]) == {f"{host}:2049": "no server has such a name or port"}


@pytest.mark.parametrize("port", [0, 65536, 1 << 80])
def test_a_port_that_none_can_have_is_no_server(port: int) -> None:
    assert servers.seen([("127.0.0.1", port)]) == {f"127.0.0.1:{port}": "no server has such a name or port"}


def test_servers_that_hang_are_given_up_all_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, never = threading.Barrier(4, timeout=PATIENCE_S), threading.Event()

    def hang(server: tuple[str, int], timeout_s: float) -> socket.socket:
        asked.wait()  # each is asked before another one has answered
        if server[0] == "dead":
            never.wait()
        raise OSError("refused")

    monkeypatch.setattr(socket, "create_connection", hang)
    monkeypatch.setattr(servers, "_ALL_S", 0.5)
    try:
        found = servers.seen([("dead", 1), ("dead", 2), ("live", 1), ("live", 2)])
    finally:
        never.set()
    late = "no answer within 0.5 s"
    assert found == {"dead:1": late, "dead:2": late, "live:1": "refused", "live:2": "refused"}


def test_a_node_says_which_servers_it_does_not_reach() -> None:
    [fault] = judge_servers("node n1", {"10.0.0.1:2049": "Connection refused", "10.0.0.2:2049": ""})
    assert (fault.level, fault.subject) == (Level.WARNING, "node n1")
    assert "does not reach 10.0.0.1:2049" in fault.what and "Connection refused" in fault.what and fault.remedy
    [fine] = judge_servers("node n1", {"10.0.0.2:2049": ""})
    assert (fine.level, fine.what) == (Level.OK, "reaches the file servers of VMs: 10.0.0.2:2049")
    assert list(judge_servers("node n1", {})) == []


@pytest.mark.parametrize(
    ("mount", "server"),
    [
        ('source = "10.0.0.1:/home"', [("10.0.0.1", 2049)]),
        ('source = "files:{home}"', [("files", 2049)]),
        ('source = "[fe80::1]:/home"\ntype = "nfs4"', [("fe80::1", 2049)]),
        ('source = "10.0.0.1:/a:/b"\noptions = "vers=4.2,port=12049"', [("10.0.0.1", 12049)]),
        ('source = "10.0.0.1:/home"\noptions = "vers=3,proto=udp"', []),
        ('source = "10.0.0.1:/home"\noptions = "port=x"', [("10.0.0.1", 2049)]),
        ('source = "10.0.0.1:/home"\noptions = "port=0"', [("10.0.0.1", 2049)]),
        ('source = "10.0.0.1:/home"\noptions = "port=0065535"', [("10.0.0.1", 65535)]),
        ('source = "10.0.0.1:/home"\noptions = "port=65536"', []),
        pytest.param(f'source = "10.0.0.1:/home"\noptions = "port={"9" * 5000}"', [], id="huge"),
        ('source = "10.0.0.1:6789:/"\ntype = "ceph"', []),
        ('source = "/home"', []),
    ],
)
def test_a_node_asks_the_servers_of_its_settings(tmp_path: Path, mount: str, server: list[tuple[str, int]]) -> None:
    settings = tmp_path / "rmsplugin.toml"
    settings.write_text(f'[[guest.mounts]]\ntarget = "/home"\n{mount}\n')
    assert list(load(str(settings)).file_servers) == server
