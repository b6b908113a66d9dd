"""z. Passage: calls to a platform's socket through a node's agent, beside the same calls on the socket itself.

Without sshd: its encryption is the same as that of TLS. The CPU seconds are those of the agent, which the node
spends; an engine makes some 30 calls to a node of ten VMs in a cycle of 30 s.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Report, median, progress, ratio

#: Rounds, and calls in each.
SIZES: Mapping[str, tuple[int, int]] = {"full": (7, 2000), "quick": (3, 500), "tiny": (1, 20)}

#: Bytes of a question and of an answer, as of a listing of ten VMs.
_ASKED, _ANSWERED = 120, 4000
#: Calls in a second to a node of ten VMs, and connections that are kept to it.
_CALLS_A_SECOND, _CONNECTIONS = 1.0, 2
#: Seconds in which nothing is asked.
_IDLE_S = {"full": 20.0, "quick": 5.0, "tiny": 0.5}

_AGENT = """
import sys
from rmsplugin.adapters.platform.libvirt.on_node.half import LibvirtOnNode
from rmsplugin.node_agent import main
path = sys.argv.pop()
LibvirtOnNode.sockets = lambda self, *, look: (path,)
sys.exit(main.main())
"""


def run(sizes: tuple[int, int], report: Report) -> None:
    """Measure both by turns."""
    rounds, calls = sizes
    idle_s = next(_IDLE_S[name] for name, each in SIZES.items() if each == sizes)
    report.title("z", "calls to a platform through a node's agent, beside its socket itself")
    with tempfile.TemporaryDirectory() as directory, _platform(Path(directory)) as path:
        for turn in range(rounds):
            progress(f"z: round {turn + 1} of {rounds}")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as direct:
                direct.connect(path)
                report.record(way="direct", wall_s=_calls(direct, calls) / calls, cpu_s=0.0, idle=0.0)
            with _passage(Path(directory), path) as (through, cpu_s):
                before = cpu_s()
                wall_s, asked_s = _calls(through, calls) / calls, (cpu_s() - before) / calls
                before = cpu_s()
                time.sleep(idle_s)
                idle = (cpu_s() - before) / idle_s
                report.record(way="through", wall_s=wall_s, cpu_s=asked_s, idle=idle)
    progress("")
    found = {(way, key): median([row[key] for row in report.of(way=way)]) for way in _WAYS for key in _KEYS}
    report.table(
        ["", "ms a call", "ms of the node's CPU a call, by the agent", "% of a core while nothing is asked"],
        [[way, *(1000 * found[way, key] for key in ("wall_s", "cpu_s")), 100 * found[way, "idle"]] for way in _WAYS],
    )
    report.ratio("wall of a call, through / direct", ratio(found["direct", "wall_s"], found["through", "wall_s"]))
    share = _CALLS_A_SECOND * found["through", "cpu_s"] + _CONNECTIONS * found["through", "idle"]
    report.ratio("of a node's core at ten VMs, agent / core", share)


_WAYS, _KEYS = ("direct", "through"), ("wall_s", "cpu_s", "idle")


def _calls(end: socket.socket, calls: int) -> float:
    """Wall seconds of so many calls, one after the other."""
    began = time.perf_counter()
    for _ in range(calls):
        end.sendall(b"q" * _ASKED)
        left = _ANSWERED
        while left:
            left -= len(end.recv(left))
    return time.perf_counter() - began


@contextmanager
def _platform(directory: Path) -> Iterator[str]:
    """A socket on which each question is answered."""
    path = str(directory / "platform")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen(8)

        def serve(end: socket.socket) -> None:
            with end:
                while end.recv(_ASKED, socket.MSG_WAITALL):
                    end.sendall(b"a" * _ANSWERED)

        def accept() -> None:
            while True:
                try:
                    end, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(end,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield path


@contextmanager
def _passage(directory: Path, path: str) -> Iterator[tuple[socket.socket, Callable[[], float]]]:
    """The engine's end of a passage through an agent, and the CPU seconds of the agent so far."""
    settings = directory / "rmsplugin.toml"
    nodes = f'[nodes]\nstore = "{directory}/store"\nvm_dir = "{directory}/vm"\n'
    settings.write_text(f'{nodes}[hypervisor]\nconnect = "agent"\n', encoding="utf-8")
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", _AGENT, "--config", str(settings), "platform", "--epoch", "7", path]
    with theirs:
        agent = subprocess.Popen(command, stdin=theirs, stdout=theirs)

    def cpu_s() -> float:
        fields = Path(f"/proc/{agent.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with ours:
        while ours.recv(1) != b"\n":
            pass
        yield ours, cpu_s
    agent.wait()
