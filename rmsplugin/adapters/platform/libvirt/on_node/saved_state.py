"""Saved state: the head of a ``virsh save`` file with another name, UUID and MAC address, or without compression.

libvirt itself edits all but these. The format is libvirt's private matter, though unchanged since 2010
(src/qemu/qemu_saveimage.h): 16 bytes of magic, 19 numbers of 32 bits as the machine writes them, the domain's XML, NUL,
a cookie, NULs up to the length that the head tells, then QEMU's stream. A file of another form is refused.
"""

from __future__ import annotations

import shutil
import struct
from typing import IO
from xml.etree import ElementTree

from rmsplugin.adapters.platform.libvirt.on_node.formats import STATE_MAGIC, program_of
from rmsplugin.adapters.platform.node_base import Identity, Unpacked
from rmsplugin.errors import CorruptStateError

_VERSION = 2
#: Magic, version, length of the data, was running, compression, offset of the cookie in the data; the rest is unused.
_HEAD = struct.Struct("=16s 5I 56s")
_DATA_LIMIT_BYTES = 1 << 20
_QEMU = "qemu-system-x86_64"


def programs() -> tuple[str, ...]:
    """QEMU: a state of one release is that of no other."""
    return (shutil.which(_QEMU) or _QEMU,)


def unpacked(file: IO[bytes]) -> Unpacked:
    """See ``SavedStates``."""
    magic, version, length, running, packed, cookie_at, unused = _read_head(file)
    head = _HEAD.pack(magic, version, length, running, 0, cookie_at, unused) + file.read(length)
    return Unpacked(head, program_of(packed))


def head_as(file: IO[bytes], identity: Identity) -> bytes:
    """See ``SavedStates``."""
    magic, version, length, running, packed, cookie_at, unused = _read_head(file)
    data = file.read(length)
    xml = _renamed(data[: cookie_at or length].rstrip(b"\0"), identity) + b"\0"
    cookie = data[cookie_at:].rstrip(b"\0") + b"\0" if cookie_at else b""
    if len(data) < length or len(xml) + len(cookie) > length:
        raise CorruptStateError("the template is cut short, or its head has no room for the names of another VM")
    head = _HEAD.pack(magic, version, length, running, packed, len(xml) if cookie_at else 0, unused)
    return head + (xml + cookie).ljust(length, b"\0")


def _read_head(file: IO[bytes]) -> tuple[bytes, int, int, int, int, int, bytes]:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise CorruptStateError("the template has no whole head")
    magic, version, length, running, packed, cookie_at, unused = _HEAD.unpack(head)
    if magic != STATE_MAGIC or version != _VERSION or length > _DATA_LIMIT_BYTES or cookie_at > length:
        raise CorruptStateError(f"the template is of a format that is not known: version {version}")
    return magic, version, length, running, packed, cookie_at, unused


def _renamed(xml: bytes, identity: Identity) -> bytes:
    try:
        domain = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise CorruptStateError(f"the template has no XML: {error}") from None
    cards = domain.findall("devices/interface/mac")
    vjobs = [each for each in domain.findall("metadata/*") if each.tag.endswith("}vjob")]
    name, uuid = domain.find("name"), domain.find("uuid")
    if name is None or uuid is None or len(cards) != 1 or len(vjobs) != 1:
        raise CorruptStateError("the template is not the state of a VM of ours")
    name.text, uuid.text = identity.name, identity.uuid
    cards[0].set("address", identity.mac)
    vjobs[0].set("job", str(identity.job))
    vjobs[0].set("index", str(identity.vm_index))
    return ElementTree.tostring(domain)
