"""An engine's process that stops itself (SIGSTOP) in a call of libvirt, or of an agent, and goes on when it is let.

usage: engine_in_call.py KEY KNOWN_HOSTS EPOCH ACT WRITE PART STATE

It stops at its WRITE-th message for a libvirtd, or an agent that serves, (from 1) since ACT began, after it has sent
``half`` or ``all`` of it. At last it says what came of the act.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import paramiko
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.worlds import VM, A, B, spec

from rmsplugin.adapters.nodes.passages import Passages
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.nodes.ssh_link import Target
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.platform.libvirt.ways import ThroughAgents
from rmsplugin.errors import RmspluginError

TIMEOUT_S = 30


class Stop:
    """Stops this process in the middle of what it sends."""

    def __init__(self, write: int, part: str) -> None:
        self._left, self._part = write, part
        self._send = paramiko.Channel.sendall
        self.armed = False

    def send(self, channel: paramiko.Channel, data: bytes) -> None:
        self._left -= self.armed
        if not self.armed or self._left != 0:
            self._send(channel, data)
            return
        now = len(data) // 2 if self._part == "half" else len(data)
        self._send(channel, data[:now])
        os.kill(os.getpid(), signal.SIGSTOP)
        if data[now:]:
            self._send(channel, data[now:])


def acts(platform: Platform, agents: NodeAgents, epoch: int, state: str) -> dict[str, Callable[[], object]]:
    return {
        "boot": lambda: platform.boot(A, spec(epoch=epoch), timeout_s=TIMEOUT_S),
        "restore": lambda: platform.restore(A, spec(epoch=epoch), state, timeout_s=TIMEOUT_S),
        "migrate": lambda: platform.migrate(VM, A, B, timeout_s=TIMEOUT_S, epoch=epoch),
        "save": lambda: platform.save(A, VM, state, timeout_s=TIMEOUT_S),
        "unpause": lambda: platform.unpause(A, VM, timeout_s=TIMEOUT_S),
        "stop": lambda: platform.stop(A, VM, timeout_s=TIMEOUT_S),
        "drop": lambda: agents.drop_state(A, VM),
    }


def main() -> None:
    key, known_hosts, epoch, act, write, part, state = sys.argv[1:]
    passages = Passages(Target("root", key, known_hosts, 8), int(epoch))
    platform = LibvirtWorld._by(ThroughAgents(passages))
    agents = NodeAgents("root", key, known_hosts, epoch=int(epoch))
    for node in (A, B):
        platform.list_vms(node)  # connected, as an engine is that has looked
        agents.list_files(node)
    stop = Stop(int(write), part)
    paramiko.Channel.sendall = lambda channel, data: stop.send(channel, data)
    stop.armed = True
    try:
        acts(platform, agents, int(epoch), state)[act]()
        print("done", flush=True)
    except RmspluginError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
