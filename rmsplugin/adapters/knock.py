"""Knock: whether a host can be reached over the network at all, whatever serves there."""

from __future__ import annotations

import socket

#: Within so many seconds a host has answered even if the first packet was lost: it is sent again after one.
WITHIN_S = 2.5


def knock(host: str, port: int) -> bool:
    """Whether the host answers at this port: its kernel does, also where it refuses. Takes ``WITHIN_S`` at most."""
    try:
        socket.create_connection((host, port), timeout=WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # silent, no way to it, or no address for the name
        return False
    return True
