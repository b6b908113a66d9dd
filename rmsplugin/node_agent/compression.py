"""Compression of saved states: libvirt writes and reads them through a program, which every node has to have.

The formats are libvirt's settings (in qemu.conf ``save_image_format`` and, of checkpoints, ``snapshot_image_format``),
and each file has its format in its header. So files of several formats can lie side by side, and all can be restored.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from rmsplugin.node_agent.errors import AgentError

QEMU_CONF = Path("/etc/libvirt/qemu.conf")
RAW = "raw"
#: In the order of their numbers in the header; all but the first are names of programs.
_FORMATS = (RAW, "gzip", "bzip2", "xz", "lzop", "zstd")
#: Version and format in the header, as this machine writes numbers: they follow the magic, and each other directly.
_HEADER = struct.Struct("=16s I 2I I")


def configured_format(what: str, qemu_conf: Path = QEMU_CONF) -> str:
    """The format in which libvirt writes a state here: of a ``save``, or of a ``snapshot``, as a checkpoint is one."""
    return configured(f"{what}_image_format", qemu_conf) or RAW


def configured(wanted: str, qemu_conf: Path = QEMU_CONF) -> str:
    """The value of this key in libvirt's settings of QEMU; "" if they have none."""
    try:
        lines = qemu_conf.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    values = [value for key, _, value in (line.partition("=") for line in lines) if key.strip() == wanted]
    return values[0].partition("#")[0].strip().strip("\"'") if values else ""  # libvirt, too, takes the first


def restorable_formats() -> list[str]:
    """The formats whose programs libvirt finds here, if it knows the formats."""
    return [name for name in _FORMATS if name == RAW or _is_here(name)]


def program_of(number: int) -> str | None:
    """The program of a format, by its number in the header; None: it is raw. AgentError: the program is not here."""
    name = _FORMATS[number] if number < len(_FORMATS) else RAW
    if name == RAW:
        return None
    if not _is_here(name):
        raise AgentError("failed", f"it cannot be restored on this node, which has no program {name}: install {name}")
    return name


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
