"""Servers: whether the file servers from which VMs mount answer at this node. A VM itself asks them, not its node."""

from __future__ import annotations

import socket
from collections.abc import Iterable

_ANSWER_S = 3.0


def seen(servers: Iterable[tuple[str, int]]) -> dict[str, str]:
    """By HOST:PORT: why nothing could be connected there; "" if it could."""
    return {f"{host}:{port}": _silence(host, port) for host, port in sorted(set(servers))}


def _silence(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), _ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)  # a time-out has no text of the system's
    return ""
