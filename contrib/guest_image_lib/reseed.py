"""Reseed: a program for guests that has the kernel's random generator begin anew from all that it was given.

What is written to /dev/urandom counts only when the kernel reseeds by itself, up to a minute later. Until then two
guests restored from one state would give out the same numbers. Debian's kernel for clouds has no driver of the VM
generation ID, and neither busybox nor util-linux makes the call, so here are its 41 bytes of code for x86-64.
"""

from __future__ import annotations

import struct

_BASE = 0x400000
_HEADERS_BYTES = 64 + 56
_PATH = b"/dev/urandom\0"

_CODE = bytes.fromhex(
    "b802000000"  # mov eax, SYS_open
    "488d3d1d000000"  # lea rdi, [rip + what is left of the code]: the path
    "31f6"  # xor esi, esi: O_RDONLY
    "0f05"  # syscall
    "89c7"  # mov edi, eax: the descriptor
    "b810000000"  # mov eax, SYS_ioctl
    "be07520000"  # mov esi, RNDRESEEDCRNG
    "31d2"  # xor edx, edx
    "0f05"  # syscall
    "89c7"  # mov edi, eax: 0, or an error
    "b83c000000"  # mov eax, SYS_exit
    "0f05"  # syscall
)


def program() -> bytes:
    """An ELF executable: one segment, of headers, code and path. It ends with 0 if the kernel has reseeded."""
    size = _HEADERS_BYTES + len(_CODE) + len(_PATH)
    identification = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    header = identification + struct.pack(
        "<HHIQQQIHHHHHH",
        *(2, 62, 1, _BASE + _HEADERS_BYTES, 64, 0),  # executable, x86-64, version, entry, program header, sections
        *(0, 64, 56, 1, 0, 0, 0),  # flags, sizes and numbers of the headers
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)  # loaded, readable, executable
    return header + segment + _CODE + _PATH
