"""The number of a namespace that is gone is another's soon: nobody is taken for a cluster's process by it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from minicluster_lib import teardown
from minicluster_lib.namespaces import HeldNamespaces

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Hosts:
    """Processes in network namespaces of their own, with the names that they are given in their command lines."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *names: str) -> subprocess.Popen[bytes]:
        command = ["unshare", "--net", "--", "sh", "-c", "echo; read -r line", *names]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"\n"
        return process

    @staticmethod
    def number(process: subprocess.Popen[bytes]) -> str:
        return os.readlink(f"/proc/{process.pid}/ns/net")

    def start_until(self, number: str) -> None:
        """Some, until one is given this number, or a second is over."""
        for _ in range(20):
            # The kernel takes its time to give a number back.
            time.sleep(0.05)
            if self.number(self.start()) == number:
                return

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    # Numbers that are free among those that are taken go to these: the one of a host that ends is the next, then.
    for _ in range(5):
        made.start()
    yield made
    made.end()


def test_one_in_a_namespace_that_is_held_is_known_and_a_newcomer_is_not(hosts: Hosts) -> None:
    with HeldNamespaces() as held:
        host = hosts.start()
        number = hosts.number(host)
        held.hold(host.pid)
        held.hold(os.getpid())
        assert len(held) == 1
        assert held.has(host.pid)
        assert not held.has(os.getpid())
        host.kill()
        host.communicate()
        hosts.start_until(number)
        assert not any(held.has(process.pid) for process in hosts.running if process is not host)


def test_nobody_is_killed_who_was_given_the_namespace_number_of_a_host_that_is_gone(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosts.start("minicluster_lib.host_init", str(tmp_path))
    number = hosts.number(host)
    kill = os.kill

    def kill_and_let_others_begin(pid: int, signal: int) -> None:
        kill(pid, signal)
        if pid == host.pid:
            host.communicate()
            hosts.start_until(number)

    monkeypatch.setattr(os, "kill", kill_and_let_others_begin)
    assert teardown.end_processes(tmp_path) == 1
    monkeypatch.undo()
    others = [process for process in hosts.running if process is not host]
    assert [process.poll() for process in others] == [None] * len(others)
