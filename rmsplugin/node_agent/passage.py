"""Passage: the engine's way to the platform of this node, which is closed to an engine whose turn is over.

The platform obeys whoever reaches its socket, and knows no epochs. So the engine reaches it only through this process,
which passes bytes on, in both directions, between its own standard streams and the socket. Before each byte for the
platform it looks at the node's epoch: once another engine is obeyed, nothing more of this one arrives, and the
connection ends, even if the engine is stopped and says nothing.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from rmsplugin.node_agent.errors import AgentError

#: The longest time without a look at the epoch, in seconds.
_LOOK_S = 0.5
_CHUNK = 1 << 16
#: Bytes that one side has not taken, at which no more are read from the other.
_HELD_MOST = 1 << 20

#: Holds the node's epoch as it is, and tells whether the engine is obeyed.
Obeyed = Callable[[], AbstractContextManager[bool]]


def reach(paths: Sequence[str]) -> socket.socket:
    """Connect to the first of the platform's sockets that somebody listens on. Raises AgentError."""
    for path in paths:
        reached = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            reached.connect(path)
            return reached
        except (FileNotFoundError, ConnectionRefusedError):
            reached.close()
    raise AgentError("failed", f"the platform does not answer here: nobody listens on {' or '.join(paths)}")


def pass_on(platform: socket.socket, obeyed: Obeyed) -> None:
    """Pass on what comes, until one side hangs up or the turn of the engine is over."""
    for descriptor in (0, 1, platform.fileno()):
        os.set_blocking(descriptor, False)
    for_platform, for_engine = bytearray(), bytearray()
    while True:
        reads = [0] if len(for_platform) < _HELD_MOST else []
        reads += [platform.fileno()] if len(for_engine) < _HELD_MOST else []
        writes = ([platform.fileno()] if for_platform else []) + ([1] if for_engine else [])
        ready, _, _ = select.select(reads, writes, [], _LOOK_S)
        if 0 in ready and not _read(0, for_platform):
            return
        if platform.fileno() in ready and not _read(platform.fileno(), for_engine):
            _write(1, for_engine)
            return
        with obeyed() as is_obeyed:
            if not is_obeyed:
                return
            _write(platform.fileno(), for_platform)
        _write(1, for_engine)


def _read(descriptor: int, held: bytearray) -> bool:
    """Read what is there; return whether the other side is."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    held += data
    return bool(data)


def _write(descriptor: int, held: bytearray) -> None:
    """Write as much as is taken at once. Raises BrokenPipeError if nobody takes any."""
    try:
        while held:
            del held[: os.write(descriptor, held)]
    except BlockingIOError:
        pass
