"""The node agents over ssh: real sshds and agents, each "node" an address in a private network."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.guests.keys import KeyPair, generate_keypair
from rmsplugin.adapters.nodes.base import Digest, Space
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.platform.libvirt.on_node.formats import STATE_MAGIC
from rmsplugin.errors import (
    HostKeyError,
    KeyRefusedError,
    NotFoundError,
    OperationFailedError,
    TimedOutError,
    UnavailableError,
    UnreachableError,
)

A, B, SILENT = "127.0.0.11", "127.0.0.12", "127.0.0.13"
VM = "vjob12-0"
CONTENT = STATE_MAGIC + bytes(range(256)) * 20_000
DIGEST = Digest(len(CONTENT), hashlib.blake2b(CONTENT).hexdigest())
_CLONE_NEWNET = 0x40000000


class Cluster:
    """A private network with nodes on it, which run the agent or a script in its place."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.engine_key, self._host_key = generate_keypair(), generate_keypair()
        self._write("agent_key", self.engine_key.private_openssh)
        self._write("host_key", self._host_key.private_openssh)
        self._write("known_hosts", "".join(f"{node} {self._host_key.public}\n" for node in (A, B, SILENT)))
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo && exec sleep 100000"], stdout=subprocess.PIPE
        )
        assert self._holder.stdout
        self._holder.stdout.readline()
        self._processes = [self._holder]

    def _write(self, name: str, text: str) -> Path:
        path = self._directory / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def store(self, node: str) -> Path:
        return self._directory / node / "store"

    def agents(self, **bounds: float) -> NodeAgents:
        return NodeAgents("root", f"{self._directory}/agent_key", f"{self._directory}/known_hosts", **bounds)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread, and those that it starts, make their sockets in the private network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self._holder.pid}/ns/net") as there:
            assert libc.setns(there.fileno(), _CLONE_NEWNET) == 0
            try:
                yield
            finally:
                assert libc.setns(home.fileno(), _CLONE_NEWNET) == 0

    def start(self, node: str, *, peers: dict[str, str] | None = None, script: str = "", sessions: int = 10) -> KeyPair:
        """Start a node; ``peers``: public keys of other nodes, with the flags of their lines. Returns its own key.

        Its sshd takes so many sessions on one connection.
        """
        self.store(node).mkdir(parents=True, mode=0o700)
        (self.store(node) / ".rmsplugin-store").write_text(f"{'0' * 32}\n")
        key = generate_keypair()
        key_file = self._write(f"{node}/node_key", key.private_openssh)
        config = self._write(
            f"{node}/rmsplugin.toml",
            f'[nodes]\nstore = "{self.store(node)}"\nvm_dir = "{self._directory}/{node}/vm"\nnode_key = "{key_file}"\n'
            f'known_hosts = "{self._directory}/known_hosts"\n',
        )
        program = f"env PYTHONPATH={os.getcwd()} {sys.executable} -m rmsplugin.node_agent.main"
        if script:
            program = f"sh {self._write(f'{node}/script', script)}"
        lines = [
            f'restrict,command="{program} {flags} --config {config}" {public}\n'
            for public, flags in {self.engine_key.public: "", **(peers or {})}.items()
        ]
        keys = self._write(f"{node}/authorized_keys", "".join(lines))
        sshd_config = self._write(
            f"{node}/sshd_config",
            f"ListenAddress {node}\nHostKey {self._directory}/host_key\nAuthorizedKeysFile {keys}\nUsePAM no\n"
            "PermitRootLogin forced-commands-only\nPasswordAuthentication no\nPidFile none\nStrictModes no\n"
            f"MaxSessions {sessions}\n",
        )
        inside = "mount -t tmpfs run /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f " + shlex.quote(
            str(sshd_config)
        )
        log = (self._directory / node / "log").open("wb")
        entered = ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "unshare", "--mount"]
        self._processes.append(subprocess.Popen([*entered, "sh", "-c", inside], stdout=log, stderr=log))
        self._wait_for_port(node)
        return key

    def _wait_for_port(self, node: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), self.entered(), socket.create_connection((node, 22), timeout=1):
                return
            assert time.monotonic() < deadline, f"no sshd on {node}"
            time.sleep(0.05)

    def put_partial(self, node: str) -> None:
        (self.store(node) / f"{VM}.state.partial").write_bytes(CONTENT)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"]).returncode != 0:
        pytest.skip("needs root and namespaces")
    tmp_path.chmod(0o755)
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


@contextlib.contextmanager
def silent_listener() -> Iterator[None]:
    """A node that takes connections and says nothing."""
    with socket.create_server((SILENT, 22), backlog=100):
        yield


# Connections.


def test_silent_node_delays_nobody_else_and_all_its_callers_alike(cluster: Cluster) -> None:
    cluster.start(A)
    agents = cluster.agents(connect_timeout_s=6, call_timeout_s=60)
    with cluster.entered(), silent_listener(), ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(agents.space, SILENT) for _ in range(16)]
        began = time.monotonic()
        assert agents.space(A).free_bytes > 0
        assert not any(future.done() for future in asked), "the good node was asked when the silent one was given up"
        for future in asked:
            with pytest.raises(UnavailableError, match=r"127\.0\.0\.13 cannot be reached"):
                future.result()
        # One attempt, or two where the first was nearly over; one after the other they would take 96 s.
        assert time.monotonic() - began < 60
        agents.close()


def test_silent_node_is_reached_once_it_answers(cluster: Cluster) -> None:
    agents = cluster.agents(connect_timeout_s=1)
    with cluster.entered():
        with silent_listener(), pytest.raises(UnavailableError):
            agents.space(SILENT)
        cluster.start(SILENT)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(UnavailableError):
                assert agents.space(SILENT).free_bytes > 0
                break
            assert time.monotonic() < deadline
        agents.close()


def test_callers_at_once_share_one_connection(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(A)
    agents = cluster.agents(call_timeout_s=120)  # sixteen processes at once, on whatever machine
    with cluster.entered(), ThreadPoolExecutor(16) as pool:
        assert all(each.free_bytes > 0 for each in pool.map(agents.space, [A] * 16))
        agents.close()
    assert (tmp_path / A / "log").read_text().count("Accepted publickey") == 1


def test_a_node_that_refuses_one_more_session_breaks_off_no_other_call(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(A, script="""sleep 0.3; echo '{"free_bytes": 5, "marker": null}'""", sessions=1)
    agents = cluster.agents(connect_timeout_s=60, call_timeout_s=60)
    with cluster.entered(), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(agents.space, [A] * 4)) == [Space(5, None)] * 4
        agents.close()
    assert (tmp_path / A / "log").read_text().count("Accepted publickey") == 1


# Agents that serve.


def served_by(cluster: Cluster, node: str) -> list[int]:
    """The agents that serve on the node."""
    config = f"{cluster.store(node).parent}/rmsplugin.toml".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes().split(b"\0")
                if config in words and b"SSH_ORIGINAL_COMMAND=serve" in environment and words[0] != b"sh":
                    found.append(int(entry.name))
    return found


def test_short_calls_have_one_agent_which_is_replaced_when_it_is_gone_and_ends_with_the_engine(
    cluster: Cluster,
) -> None:
    cluster.start(A)
    agents = cluster.agents()
    with cluster.entered():
        assert agents.space(A).free_bytes > 0
        (agent,) = served_by(cluster, A)
        assert agents.stat(A, VM).final_bytes is None
        assert served_by(cluster, A) == [agent]
        os.kill(agent, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(UnavailableError):  # the call that found out
                assert agents.space(A).free_bytes > 0
                break
            assert time.monotonic() < deadline
        assert agents.space(A).free_bytes > 0
        assert agent not in served_by(cluster, A)
        agents.close()
    while served_by(cluster, A):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stopped_agent_costs_one_call_its_time(cluster: Cluster) -> None:
    cluster.start(A)
    agents = cluster.agents(call_timeout_s=60)
    with cluster.entered():
        assert agents.space(A).free_bytes > 0
        (agent,) = served_by(cluster, A)
        os.kill(agent, signal.SIGSTOP)
        try:
            agents._call_timeout_s = 0.3
            with pytest.raises(TimedOutError):
                agents.space(A)
            agents._call_timeout_s = 60
            assert agents.space(A).free_bytes > 0
        finally:
            os.kill(agent, signal.SIGCONT)
        agents.close()


def test_an_agent_that_does_not_know_how_to_serve_is_asked_once_a_connection(cluster: Cluster, tmp_path: Path) -> None:
    refusal = '{"error": "not a command of the node agent: serve", "kind": "failed"}'
    script = f"""echo "$SSH_ORIGINAL_COMMAND" >>{tmp_path}/asked
[ "$SSH_ORIGINAL_COMMAND" = space ] || {{ echo '{refusal}'; exit 1; }}
echo '{{"free_bytes": 5, "marker": null}}'"""
    cluster.start(A, script=script)
    agents = cluster.agents()
    with cluster.entered():
        assert [agents.space(A).free_bytes for _ in range(3)] == [5] * 3
        agents.close()
    assert (tmp_path / "asked").read_text().split() == ["serve", "space", "space", "space"]


# Seals.


def test_seal(cluster: Cluster) -> None:
    cluster.start(A)
    agents = cluster.agents()
    steps: list[tuple[int, int]] = []
    with cluster.entered():
        with pytest.raises(NotFoundError):
            agents.seal(A, VM)
        cluster.put_partial(A)
        assert agents.seal(A, VM, progress=lambda *step: steps.append(step)) == DIGEST
        assert agents.seal(A, VM) == DIGEST
        agents.close()
    assert steps[0] == (0, len(CONTENT)) and steps[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in cluster.store(A).glob("vjob*")] == [f"{VM}.state"]


def agent_that(total: int, beats: int, then: str) -> str:
    """A script that says so often, twice a second, that it is at work on a state of ``total`` bytes."""
    return (
        f'for i in $(seq {beats}); do echo \'{{"bytes_done": 1, "bytes_total": {total}}}\'; sleep 0.5; done\n{then}\n'
    )


ANSWER = """echo '{"bytes": 1, "blake2b": "d1"}'"""


def test_long_seal_that_gives_signs_of_life_is_waited_for(cluster: Cluster) -> None:
    cluster.start(A, script=agent_that(200 << 20, beats=12, then=ANSWER))
    agents = cluster.agents(call_timeout_s=4)
    with cluster.entered():
        assert agents.seal(A, VM) == Digest(1, "d1")
        agents.close()


@pytest.mark.parametrize(
    ("total", "beats", "then"),
    [(1 << 50, 1, "sleep 300"), (1 << 20, 240, ANSWER), (1 << 50, 0, "sleep 300")],
    ids=["silent on the way", "longer than its size allows", "silent at once"],
)
def test_seal_is_given_up(cluster: Cluster, total: int, beats: int, then: str) -> None:
    cluster.start(A, script=agent_that(total, beats, then))
    agents = cluster.agents(call_timeout_s=4)
    with cluster.entered():
        with pytest.raises(TimedOutError, match=f"seal on {A} did not end in time"):
            agents.seal(A, VM)
        agents.close()


def test_seals_keep_no_short_call_waiting_and_wait_for_each_other(cluster: Cluster, tmp_path: Path) -> None:
    space = """[ "$SSH_ORIGINAL_COMMAND" = space ] && { echo '{"free_bytes": 7, "marker": null}'; exit; }\n"""
    beat = (
        f"""while [ ! -e {tmp_path}/go ]; do echo '{{"bytes_done": 1, "bytes_total": {1 << 40}}}'; sleep 0.5; done\n"""
    )
    cluster.start(A, script=space + beat + ANSWER)
    agents = cluster.agents(call_timeout_s=30)
    begun = threading.Event()
    with cluster.entered(), ThreadPoolExecutor(16) as pool:
        seals = [pool.submit(agents.seal, A, VM, progress=lambda *_: begun.set()) for _ in range(16)]
        try:
            assert begun.wait(PATIENCE_S)
            assert agents.space(A).free_bytes == 7
            assert not any(seal.done() for seal in seals)
        finally:
            (tmp_path / "go").touch()
        assert [seal.result() for seal in seals] == [Digest(1, "d1")] * 16
        agents.close()


def test_agent_of_another_release_is_named_as_such(cluster: Cluster) -> None:
    words = '{"error": "not a command of the node agent: seal vjob12-0", "kind": "failed"}'
    cluster.start(A, script=f"echo '{words}'; exit 1")
    agents = cluster.agents()
    with cluster.entered():
        with pytest.raises(OperationFailedError, match="install the engine's release of rmsplugin there"):
            agents.seal(A, VM)
        agents.close()


def test_who_does_not_let_us_in_is_told_from_who_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(A)
    known = tmp_path / "known_hosts"
    keys = known.read_text()

    def refused(kind: type[UnavailableError], node: str = A) -> None:
        agents = cluster.agents(connect_timeout_s=5.0)
        with cluster.entered(), pytest.raises(kind, match="cannot be reached") as caught:
            agents.space(node)
        assert type(caught.value) is kind
        agents.close()

    refused(UnreachableError, B)
    known.write_text("")
    refused(HostKeyError)
    known.write_text(f"{A} {generate_keypair().public}\n")
    refused(HostKeyError)
    known.write_text(keys)
    (tmp_path / A / "authorized_keys").write_text("")
    refused(KeyRefusedError)


# Copies.


def copied(cluster: Cluster, agents: NodeAgents) -> None:
    cluster.put_partial(A)
    assert agents.seal(A, VM) == DIGEST
    agents.send(A, B, VM, DIGEST, timeout_s=30)
    agents.verify(B, VM, DIGEST, timeout_s=30)


def test_older_state_is_replaced_by_a_copy_although_a_node_may_not_do_it(cluster: Cluster) -> None:
    key = cluster.start(A)
    cluster.start(B, peers={key.public: "--peer"})
    agents = cluster.agents()
    with cluster.entered():
        (cluster.store(B) / f"{VM}.state").write_bytes(STATE_MAGIC + b"of an earlier suspend")
        copied(cluster, agents)
        agents.close()


@pytest.mark.parametrize(("flags", "unrestricted"), [("--peer", False), ("", True)])
def test_node_key_that_may_do_everything_is_noticed(cluster: Cluster, flags: str, unrestricted: bool) -> None:
    key = cluster.start(A)
    cluster.start(B, peers={key.public: flags})
    agents = cluster.agents()
    with cluster.entered():
        reach = agents.reach(A, B)
        agents.close()
    assert (reach.agent, reach.unrestricted) == ("", unrestricted)


def test_node_key_that_is_refused_is_told(cluster: Cluster) -> None:
    cluster.start(A)
    cluster.start(B)
    agents = cluster.agents()
    with cluster.entered():
        reach = agents.reach(A, B)
        agents.close()
    assert "Permission denied" in reach.agent and not reach.unrestricted
