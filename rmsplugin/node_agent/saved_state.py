"""Saved state: changes the VM's name, UUID and MAC address in the head of a ``virsh save`` file, or uncompresses it.

libvirt itself edits all but these. The format is libvirt's private matter, though unchanged since 2010
(src/qemu/qemu_saveimage.h): 16 bytes of magic, 19 numbers of 32 bits as the machine writes them, the domain's XML, NUL,
a cookie, NULs up to the length that the head tells, then QEMU's stream. A file of another form is refused.
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from rmsplugin.node_agent import compression, files
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.files import STATE_MAGIC

_VERSION = 2
#: Magic, version, length of the data, was running, compression, offset of the cookie in the data; the rest is unused.
_HEAD = struct.Struct("=16s 5I 56s")
_DATA_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """The parts in which two otherwise equal VMs must differ."""

    name: str
    job: int
    index: int
    uuid: str
    mac: str


def copy_as(source: Path, destination: Path, identity: Identity) -> None:
    """Copy a state as that of another VM; ``destination`` must not exist.

    Raises:
        AgentError: kind ``corrupt`` if the file is not of the known form, or has no room for the new names.
    """
    with open(source, "rb") as old, files.create(destination) as new:
        new.write(_rewritten_head(old, identity))
        new.flush()
        files.copy_rest(old, new)


def rename(state: Path, identity: Identity) -> None:
    """Turn a state into that of another VM, in place. Raises as ``copy_as``."""
    with open(state, "r+b") as file:
        head = _rewritten_head(file, identity)
        file.seek(0)
        file.write(head)


def copy_unpacked(source: Path, destination: Path) -> None:
    """Copy a state without its compression: libvirt reads it in half the time; ``destination`` must not exist.

    Raises:
        AgentError: kind ``corrupt`` if the file is not of the known form, ``failed`` if it cannot be unpacked here.
    """
    # The file is unbuffered: the program reads on from its position.
    with open(source, "rb", buffering=0) as old, files.create(destination) as new:
        magic, version, length, running, packed, cookie_at, unused = _read_head(old)
        new.write(_HEAD.pack(magic, version, length, running, 0, cookie_at, unused) + old.read(length))
        new.flush()
        program = compression.program_of(packed)
        if program is None:
            files.copy_rest(old, new)
        elif subprocess.run([program, "-dc"], stdin=old, stdout=new, stderr=subprocess.DEVNULL).returncode != 0:
            raise AgentError("failed", f"{program} cannot unpack the template")


def _read_head(file: IO[bytes]) -> tuple[bytes, int, int, int, int, int, bytes]:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise AgentError("corrupt", "the template has no whole head")
    magic, version, length, running, packed, cookie_at, unused = _HEAD.unpack(head)
    if magic != STATE_MAGIC or version != _VERSION or length > _DATA_LIMIT_BYTES or cookie_at > length:
        raise AgentError("corrupt", f"the template is of a format that is not known: version {version}")
    return magic, version, length, running, packed, cookie_at, unused


def _rewritten_head(file: IO[bytes], identity: Identity) -> bytes:
    magic, version, length, running, packed, cookie_at, unused = _read_head(file)
    data = file.read(length)
    xml = _renamed(data[: cookie_at or length].rstrip(b"\0"), identity) + b"\0"
    cookie = data[cookie_at:].rstrip(b"\0") + b"\0" if cookie_at else b""
    if len(data) < length or len(xml) + len(cookie) > length:
        raise AgentError("corrupt", "the template is cut short, or has no room for the names of another VM")
    head = _HEAD.pack(magic, version, length, running, packed, len(xml) if cookie_at else 0, unused)
    return head + (xml + cookie).ljust(length, b"\0")


def _renamed(xml: bytes, identity: Identity) -> bytes:
    try:
        domain = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise AgentError("corrupt", f"the template has no XML: {error}") from None
    cards = domain.findall("devices/interface/mac")
    vjobs = [each for each in domain.findall("metadata/*") if each.tag.endswith("}vjob")]
    name, uuid = domain.find("name"), domain.find("uuid")
    if name is None or uuid is None or len(cards) != 1 or len(vjobs) != 1:
        raise AgentError("corrupt", "the template is not the state of a VM of ours")
    name.text, uuid.text = identity.name, identity.uuid
    cards[0].set("address", identity.mac)
    vjobs[0].set("job", str(identity.job))
    vjobs[0].set("index", str(identity.index))
    return ElementTree.tostring(domain)
