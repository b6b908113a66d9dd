"""Kernel: the ELF file inside a compressed kernel (bzImage), which QEMU starts directly (by PVH).

An emulated guest takes a quarter of a second to unpack the kernel and to find a random place for it. Started directly,
the kernel is where it was linked to be: there is no address space randomisation of the kernel itself (KASLR).
"""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import subprocess
import zlib
from collections.abc import Callable

#: Of Linux's boot protocol (Documentation/arch/x86/boot.rst), from 2.08 on.
_SECTOR, _SETUP_SECTORS, _MAGIC, _VERSION, _PAYLOAD = 512, 0x1F1, 0x202, 0x206, 0x248
_FIRST_WITH_PAYLOAD = 0x208
#: The kernel's build puts the size of the kernel behind what it has compressed.
_SIZE_BYTES = 4


class KernelError(Exception):
    """The kernel has not the form that is known here; the text says what is strange."""


def unpacked_kernel(image: bytes) -> bytes:
    """The ELF file in a bzImage, with what its build has put behind it.

    Raises:
        KernelError: it is no bzImage, or compressed in a way that is not known here, or has no entry for PVH.
    """
    if image[_MAGIC : _MAGIC + 4] != b"HdrS" or _number("<H", image, _VERSION) < _FIRST_WITH_PAYLOAD:
        raise KernelError("it is no bzImage with a payload")
    begin = ((image[_SETUP_SECTORS] or 4) + 1) * _SECTOR + _number("<I", image, _PAYLOAD)
    payload = image[begin : begin + _number("<I", image, _PAYLOAD + 4)]
    unpack = next((unpack for magic, unpack in _UNPACK.items() if payload.startswith(magic)), None)
    if unpack is None:
        raise KernelError(f"it is compressed in a way that is not known here: {payload[:6].hex()}")
    try:
        kernel = unpack(payload[:-_SIZE_BYTES])
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise KernelError(f"what is compressed in it is damaged: {error}") from error
    if not kernel.startswith(b"\x7fELF") or len(kernel) != _number("<I", payload, len(payload) - _SIZE_BYTES):
        raise KernelError("what is compressed in it is no ELF file of the size that it says")
    if not _NOTE_OF_PVH.search(kernel):
        raise KernelError("it has no entry for PVH")
    return kernel


def _number(form: str, data: bytes, offset: int) -> int:
    return int(struct.unpack_from(form, data, offset)[0])


def _by_program(*command: str) -> Callable[[bytes], bytes]:
    def unpack(data: bytes) -> bytes:
        try:
            return subprocess.run(command, input=data, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise KernelError(f"{command[0]} does not unpack it: {error}") from error

    return unpack


def _by_lzma(data: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(data)


_UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x02\x21\x4c\x18": _by_program("lz4", "-dc"),
    b"\x28\xb5\x2f\xfd": _by_program("zstd", "-dc"),
    b"\xfd7zXZ\0": _by_lzma,
    b"\x1f\x8b": gzip.decompress,
}
#: XEN_ELFNOTE_PHYS32_ENTRY: the sizes of its name and content, its type, its name.
_NOTE_OF_PVH = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")
