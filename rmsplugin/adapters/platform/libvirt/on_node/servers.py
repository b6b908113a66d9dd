"""Servers: whether the file servers from which VMs mount answer at this node. A VM itself asks them, not its node."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from rmsplugin.adapters.platform.side_by_side import answers

#: For all servers together, with the resolution of their names.
_ALL_S = 5.0
#: For each of a server's addresses.
_ANSWER_S = 3.0
_LAST_PORT, _IMPOSSIBLE = 65535, "no server has such a name or port"


def seen(servers: Iterable[tuple[str, int]]) -> dict[str, str]:
    """By HOST:PORT: why nothing could be connected there; "" if it could. Ends within 5 s, whatever hangs."""
    asked = sorted(set(servers))
    said = answers(asked, _silence, _ALL_S)
    late = f"no answer within {_ALL_S:g} s"
    return {f"{host}:{port}": said.get((host, port), late) for host, port in asked}


def _silence(server: tuple[str, int]) -> str:
    try:
        if not 0 < server[1] <= _LAST_PORT:  # releases of Python differ in what they make of such a port
            return _IMPOSSIBLE
        socket.create_connection(server, _ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)  # a time-out has no text of the system's
    except ValueError:
        return _IMPOSSIBLE
    return ""
