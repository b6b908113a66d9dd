"""A live page for a browser: an engine on a simulated cluster, its socket forwarded to a port as by `ssh -L`."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unit.served import Served


@contextmanager
def forwarded(to: str) -> Iterator[int]:
    """A port of this host whose connections end at the socket ``to``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stopped = threading.Event()
        threads = [threading.Thread(target=_accept, args=(listening, to, stopped), daemon=True)]
        threads[0].start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            stopped.set()
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            threads[0].join(10)


def _accept(listening: socket.socket, to: str, stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        try:
            there = socket.socket(socket.AF_UNIX)
            there.connect(to)
        except OSError:
            connection.close()
            continue
        for source, sink in ((connection, there), (there, connection)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def engine(directory: Path) -> Iterator[tuple[Served, str]]:
    """An engine that has seen its cluster, and the address of its page."""
    served = Served(directory)
    try:
        served.world.cycle.run()
        with forwarded(served.socket) as port:
            yield served, f"http://localhost:{port}/v1/page"
    finally:
        served.close()
