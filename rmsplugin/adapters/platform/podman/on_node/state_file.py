"""State file: a container's checkpoint as podman exports it, and behind it a seal of ours.

Podman writes a tar file, compressed by zstd. The seal follows as a frame of zstd that every reader skips (RFC 8878,
section 3.1.2), so podman imports the file as it is. It says that the file is whole, and whose state it is.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import NamedTuple

from rmsplugin.adapters.platform.podman.on_node.use import NO_USE, Use
from rmsplugin.errors import CorruptStateError

_HEAD = struct.Struct("<II")
_SKIPPED = 0x184D2A50
_MARK = b"rmsplugin podman state 1\n"
_SIZE = 1024


class Seal(NamedTuple):
    """Whose state a file has."""

    name: str
    image: str  # the id of its image
    content_bytes: int  # what podman has written
    use: Use = NO_USE  # what its container had used; nothing in one of an older release


def add(state: Path, name: str, image: str, use: Use = NO_USE) -> None:
    """Write the seal behind what podman has written."""
    size = state.stat().st_size
    seal = {"name": name, "image": image, "content_bytes": size, "use": use._asdict()}
    said = _MARK + json.dumps(seal).encode()
    with open(state, "ab") as file:
        file.write(_HEAD.pack(_SKIPPED, _SIZE - _HEAD.size) + said.ljust(_SIZE - _HEAD.size))


def read(state: Path) -> Seal | None:
    """The seal of a file; None if it has none, or is shorter or longer than it was."""
    with open(state, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _SIZE:
            return None
        file.seek(-_SIZE, os.SEEK_END)
        end = file.read(_SIZE)
    if not end[_HEAD.size :].startswith(_MARK) or _HEAD.unpack(end[: _HEAD.size]) != (_SKIPPED, _SIZE - _HEAD.size):
        return None
    try:
        said = json.loads(end[_HEAD.size + len(_MARK) :])
        seal = Seal(str(said["name"]), str(said["image"]), int(said["content_bytes"]), Use.of(said.get("use")))
    except (ValueError, KeyError, TypeError):
        return None
    return seal if seal.content_bytes + _SIZE == size else None


def require(state: Path, name: str) -> Seal:
    """The seal of a whole state of this VM. Raises CorruptStateError for any other file."""
    seal = read(state)
    if seal is None:
        raise CorruptStateError(f"{state} is no whole state of a container")
    if seal.name != name:
        raise CorruptStateError(f"{state} is a state of {seal.name[:80]}, not of {name}")
    return seal
