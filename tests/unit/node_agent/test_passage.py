"""The passage of a node's agent: bytes to the platform's socket and back, for an engine that is obeyed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.node_agent import config, epoch, passage
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.settings import Settings

#: What the agent does after it has found the platform's half: with sockets of ours in place of the platform's.
AGENT = """
import sys
from rmsplugin.adapters.platform.libvirt.on_node.half import LibvirtOnNode
from rmsplugin.node_agent import main
paths = sys.argv.pop(), sys.argv.pop()
LibvirtOnNode.sockets = lambda self, *, look: paths
sys.exit(main.main())
"""
#: Engines on several hosts; and what settings have besides.
SEVERAL = '[cluster]\ncoordination = "zookeeper"\nservers = ["a:1"]\nshared_dir = "/shared"\n'
OTHERS = """
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.0.10-10.0.0.20"
prefix_length = 24
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
"""
#: The longest time in which a connection of an engine that is not obeyed ends.
ENDS_S = 1.0


class Node:
    """A node whose platform answers with what it is told, and keeps what it was told."""

    def __init__(self, directory: Path) -> None:
        self.vm_dir, self.path = directory / "vm", str(directory / "platform")
        self._config = directory / "rmsplugin.toml"
        nodes = f'[nodes]\nstore = "{directory / "store"}"\nvm_dir = "{self.vm_dir}"\n'
        self._config.write_text(f'{nodes}[hypervisor]\nconnect = "agent"\n')
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self.path)
        self._listening.listen(1)
        self._listening.settimeout(PATIENCE_S)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._before: list[str] = []

    def start(self, *words: str) -> socket.socket:
        """Call the agent; what is its ssh channel. Two paths, of which nobody listens on the first."""
        ours, theirs = socket.socketpair()
        command = [*self._before, sys.executable, "-c", AGENT, "--config", str(self._config), *words]
        environment = {name: value for name, value in os.environ.items() if name != "SSH_ORIGINAL_COMMAND"}
        with theirs:
            command += [self.path, f"{self.path}-none"]
            self._processes.append(subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment))
        ours.settimeout(PATIENCE_S)
        return ours

    def open(self, *words: str) -> tuple[socket.socket, socket.socket]:
        """The engine's end, and the platform's."""
        ours = self.start(*words)
        platform, _ = self._listening.accept()
        platform.settimeout(PATIENCE_S)
        assert json.loads(line_of(ours)) == {"through": 1}
        return ours, platform

    def can_only_read(self) -> None:
        """The agent finds the directory of the VMs on a disk that failed, and can only be read."""
        mounts = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        self._before = ["unshare", "--mount", "sh", "-c", mounts, str(self.vm_dir)]

    def obey(self, number: int) -> None:
        epoch.obey(epoch.of_node(self.vm_dir), number)

    def close(self) -> None:
        self._listening.close()
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def line_of(channel: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"\n"):
        said += channel.recv(1)
    return said


def all_of(end: socket.socket, size: int) -> bytes:
    said = bytearray()
    while len(said) < size:
        said += end.recv(1 << 16)
    return bytes(said)


def ended(end: socket.socket) -> bool:
    """Wait until the other side has hung up; whether it has said nothing before."""
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def test_what_each_side_says_arrives_at_the_other(node: Node) -> None:
    ours, platform = node.open("platform", "--epoch", "4")
    content = os.urandom(5 << 20)
    for one, other in ((ours, platform), (platform, ours)):
        sending = threading.Thread(target=one.sendall, args=(content,))
        sending.start()
        assert all_of(other, len(content)) == content
        sending.join(PATIENCE_S)


@pytest.mark.parametrize("side", ["engine", "platform"])
def test_it_ends_when_one_side_hangs_up(node: Node, side: str) -> None:
    ours, platform = node.open("platform", "--epoch", "4")
    one, other = (ours, platform) if side == "engine" else (platform, ours)
    one.close()
    assert ended(other)


def test_it_ends_soon_when_another_engine_is_obeyed(node: Node) -> None:
    """The engine may be stopped, and say nothing."""
    ours, platform = node.open("platform", "--epoch", "4")
    node.obey(4)
    ours.sendall(b"a")
    assert platform.recv(1) == b"a"
    node.obey(5)
    assert ended(platform) and ended(ours)


def test_the_first_engine_that_a_node_knows_is_let_through_until_another_one_is_obeyed(node: Node) -> None:
    ours, platform = node.open("platform")
    ours.sendall(b"a")
    assert platform.recv(1) == b"a"
    node.obey(5)
    assert ended(platform) and ended(ours)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
@pytest.mark.parametrize("number", [1, 4])
def test_the_platform_is_reached_where_the_disk_with_the_epoch_can_only_be_read(node: Node, number: int) -> None:
    """VMs run on, and are moved off; where only the first engine has acted, no epoch is written down."""
    node.vm_dir.mkdir(mode=0o711)
    node.obey(number)
    node.can_only_read()
    ours, platform = node.open("platform", *(["--epoch", str(number)] if number > 1 else []))
    for said in (b"a", b"b"):
        ours.sendall(said)
        assert platform.recv(1) == said


def test_an_engine_that_takes_no_answer_any_more_loses_its_connection_as_well(node: Node) -> None:
    """It was stopped while the platform told it much."""
    ours, platform = node.open("platform", "--epoch", "4")
    platform.settimeout(0.3)
    with pytest.raises(TimeoutError):
        platform.sendall(b"x" * (64 << 20))
    node.obey(5)
    platform.settimeout(PATIENCE_S)
    assert ended(platform)
    ours.close()


def test_nothing_that_is_said_after_another_engine_is_obeyed_arrives(node: Node) -> None:
    ours, platform = node.open("platform", "--epoch", "4")
    ours.sendall(b"a")
    assert platform.recv(1) == b"a"
    node.obey(5)
    ours.sendall(b"b")
    assert ended(platform)


def test_an_engine_whose_turn_is_over_is_not_let_through(node: Node) -> None:
    node.vm_dir.mkdir()
    node.obey(5)
    answer = json.loads(line_of(node.start("platform", "--epoch", "4")))
    assert answer["kind"] == "deposed"
    node.open("platform", "--epoch", "5")


def test_one_that_only_looks_is_let_through_to_the_end(node: Node) -> None:
    node.vm_dir.mkdir()
    node.obey(5)
    ours, platform = node.open("look-at-platform")
    node.obey(6)
    time.sleep(ENDS_S)
    ours.sendall(b"a")
    assert platform.recv(1) == b"a"


@pytest.mark.parametrize(
    ("lines", "lets_through"),
    [
        ("", False),
        (f'[hypervisor]\nconnect = "uri"\n{SEVERAL}', False),
        (f'[hypervisor]\nconnect = "auto"\n{SEVERAL}', True),
        (SEVERAL, True),
        ('[hypervisor]\nconnect = "agent"\n', True),
    ],
)
def test_a_node_lets_engines_through_only_if_its_settings_say_so(
    tmp_path: Path, lines: str, lets_through: bool
) -> None:
    """The agent's key is the key to the platform then, which can do all that root can."""
    settings = tmp_path / "rmsplugin.toml"
    settings.write_text(lines)
    assert config.load(str(settings)).lets_through is lets_through
    assert Settings.model_validate(tomllib.loads(OTHERS + lines)).through_agents is lets_through


def test_a_node_whose_settings_do_not_say_so_refuses(node: Node) -> None:
    node._config.write_text(f'[nodes]\nvm_dir = "{node.vm_dir}"\n')
    for words in (("platform", "--epoch", "4"), ("look-at-platform",)):
        assert "let no engine through: see hypervisor.connect" in json.loads(line_of(node.start(*words)))["error"]


def test_a_platform_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"nobody listens on /none or .*/two"):
        passage.reach(("/none", str(tmp_path / "two")))
