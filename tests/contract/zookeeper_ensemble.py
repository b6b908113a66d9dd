"""An ensemble of three real ZooKeeper servers on the loopback, and a proxy that can cut one engine off from it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lifetime import ENDS_WITH_US
from patience import PATIENCE_S

JAR = Path("/usr/share/java/zookeeper.jar")
#: Sessions of two ticks and more are granted. A follower that has lost its leader notices within 10 ticks.
TICK_MS = 400
_CONFIGURATION = """\
tickTime={tick}
initLimit=50
syncLimit=10
dataDir={directory}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr
{servers}
"""
#: Small, and compiled little: three of them live for a minute on two cores.
_JAVA = (
    *("java", "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("-Dzookeeper.forceSync=no", "-cp", str(JAR), "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    """One server. It ends with the process that made it, however that ends."""

    def __init__(self, directory: Path, port: int, configuration: str) -> None:
        self.directory, self.port = directory, port
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "zoo.cfg").write_text(configuration)

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            command = [*ENDS_WITH_US, *_JAVA, str(self.directory / "zoo.cfg")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGSTOP: as a host that is cut off, it answers nobody, and keeps its connections."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used."""
        if self._process is None:
            return 0.0
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def role(self) -> str:
        """`leader`, or `follower`; empty while it serves nobody."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as asked:
            asked.sendall(b"srvr")
            said = b"".join(iter(lambda: asked.recv(4096), b"")).decode()
            for line in said.splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return ""


class Ensemble:
    """Three servers."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(9)
        peers = "\n".join(f"server.{n}=127.0.0.1:{ports[3 * n - 2]}:{ports[3 * n - 1]}" for n in (1, 2, 3))
        self.servers = []
        for number in (1, 2, 3):
            own, port = directory / str(number), ports[3 * number - 3]
            own.mkdir()
            (own / "myid").write_text(f"{number}\n")
            text = _CONFIGURATION.format(tick=TICK_MS, directory=own, port=port, servers=peers)
            self.servers.append(Server(own, port, text))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.wait_for(3)

    def wait_for(self, count: int) -> None:
        """Wait until so many servers serve, one of them as the leader."""
        deadline = time.monotonic() + PATIENCE_S
        while len(roles := [role for server in self.servers if (role := server.role())]) < count or (
            "leader" not in roles
        ):
            logs = "\n".join((server.directory / "log").read_text()[-1500:] for server in self.servers)
            assert time.monotonic() < deadline, f"the ensemble does not come up: {roles}\n{logs}"
            time.sleep(0.05)

    def leader(self) -> Server:
        return next(server for server in self.servers if server.role() == "leader")

    def stop(self) -> None:
        for server in self.servers:
            server.kill()


class Proxy:
    """A way to a server that can be cut: then nothing arrives, and no connection ends, as when a switch is dead."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._closed = True
        self._open.set()
        for each in (self._listening, *self._pairs):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._closed:
                client, _ = self._listening.accept()
                self._open.wait()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._pairs += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with suppress(OSError, ValueError):
            while not self._closed:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    self._open.wait()
                    if not data:
                        raise OSError
                    other[source].sendall(data)
        client.close()
        server.close()


@contextmanager
def running_ensemble(directory: Path) -> Iterator[Ensemble]:
    """An ensemble that is up; it is stopped on every path."""
    ensemble = Ensemble(directory)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()
