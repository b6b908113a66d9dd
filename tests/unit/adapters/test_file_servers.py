"""The file servers from which VMs mount: which ones a node asks, what it sees of them, and what is said of that."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

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
        ('source = "10.0.0.1:6789:/"\ntype = "ceph"', []),
        ('source = "/home"', []),
    ],
)
def test_a_node_asks_the_servers_of_its_settings(tmp_path: Path, mount: str, server: list[tuple[str, int]]) -> None:
    settings = tmp_path / "rmsplugin.toml"
    settings.write_text(f'[[guest.mounts]]\ntarget = "/home"\n{mount}\n')
    assert list(load(str(settings)).file_servers) == server
