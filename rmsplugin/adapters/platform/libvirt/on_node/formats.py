"""Formats of saved states: libvirt writes and reads them through a program, which every node has to have.

The formats are libvirt's settings (in qemu.conf ``save_image_format`` and, of checkpoints, ``snapshot_image_format``),
and each file has its format in its header. So files of several formats can lie side by side, and all can be restored.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from rmsplugin.adapters.platform.libvirt.on_node.qemu_conf import QEMU_CONF, configured
from rmsplugin.errors import OperationFailedError

#: libvirt writes another magic first and replaces it by this one when the state is complete.
STATE_MAGIC = b"LibvirtQemudSave"
RAW = "raw"
#: In the order of their numbers in the header; all but the first are names of programs.
_FORMATS = (RAW, "gzip", "bzip2", "xz", "lzop", "zstd")
#: Version and format in the header, as this machine writes numbers: they follow the magic, and each other directly.
_HEADER = struct.Struct("=16s I 2I I")


def seen() -> dict[str, Any]:
    """The formats in which this node saves, and those that it can restore."""
    return {
        "save_format": configured_format("save"),
        "snapshot_format": configured_format("snapshot"),
        "restorable_formats": restorable_formats(),
    }


def configured_format(what: str, qemu_conf: Path = QEMU_CONF) -> str:
    """The format in which libvirt writes a state here: of a ``save``, or of a ``snapshot``, as a checkpoint is one."""
    return configured(f"{what}_image_format", qemu_conf) or RAW


def restorable_formats() -> list[str]:
    """The formats whose programs libvirt finds here, if it knows the formats."""
    return [name for name in _FORMATS if name == RAW or _is_here(name)]


def program_of(number: int) -> str | None:
    """The program of a format, by its number in the header; None: it is raw.

    Raises:
        OperationFailedError: the program is not here.
    """
    name = _FORMATS[number] if number < len(_FORMATS) else RAW
    if name == RAW:
        return None
    if not _is_here(name):
        raise OperationFailedError(f"it cannot be restored on this node, which has no program {name}: install {name}")
    return name


def is_whole(state: Path) -> bool:
    """Whether libvirt has finished writing the state file."""
    with open(state, "rb") as file:
        return file.read(len(STATE_MAGIC)) == STATE_MAGIC


def require_program(state: Path) -> None:
    """Refuse a whole state that libvirt could not restore here because the program is missing."""
    with open(state, "rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return
    _, version, _, _, number = _HEADER.unpack(head)
    if version == 2:
        program_of(number)


def _is_here(program: str) -> bool:
    return any(os.access(os.path.join(directory, program), os.X_OK) for directory in os.get_exec_path())
