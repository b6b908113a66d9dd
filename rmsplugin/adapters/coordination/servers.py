"""Servers: what each server of a ZooKeeper ensemble says of itself when it is asked by `srvr`, outside any session."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

#: A server sends a few hundred bytes.
_MOST_BYTES = 65536


@dataclass(frozen=True, slots=True)
class ServerFact:
    """One server."""

    address: str
    problem: str = ""  # why it serves nobody; empty: it does
    version: str = ""
    mode: str = ""  # leader, follower, observer, standalone
    seconds: float = 0.0  # the answer took so long


def ask_servers(addresses: Sequence[str], timeout_s: float = 1.0) -> list[ServerFact]:
    """Ask each server, HOST:PORT, at the same time."""
    with ThreadPoolExecutor(max(1, len(addresses)), thread_name_prefix="ensemble") as pool:
        return list(pool.map(lambda address: _ask(address, timeout_s), addresses))


def quorum(servers: int) -> int:
    """How many of so many servers have to serve."""
    return servers // 2 + 1


def _ask(address: str, timeout_s: float) -> ServerFact:
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as asked:
            asked.sendall(b"srvr")
            said = b""
            while len(said) < _MOST_BYTES and (piece := asked.recv(4096)):
                said += piece
    except OSError as error:
        return ServerFact(address, error.strerror or "no answer in time")
    return _understood(address, said.decode("utf-8", "replace"), time.monotonic() - began)


def _understood(address: str, said: str, seconds: float) -> ServerFact:
    mode = re.search(r"^Mode: (\w+)$", said, re.MULTILINE)
    version = re.search(r"version: ([\w.]+)", said)
    if mode is None:
        return ServerFact(address, f"says {' '.join(said.split())[:80] or 'nothing'!r}")
    return ServerFact(address, "", version[1] if version else "", mode[1], seconds)
