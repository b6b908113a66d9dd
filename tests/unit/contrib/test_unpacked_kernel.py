"""The kernel that QEMU starts directly, out of the one that Debian compresses."""

from __future__ import annotations

import gzip
import lzma
import struct
import subprocess
from collections.abc import Callable

import pytest
from guest_image_lib.kernel import KernelError, unpacked_kernel

NOTE = struct.pack("<III4sQ", 4, 8, 18, b"Xen\0", 0x1000850)
KERNEL = b"\x7fELF" + bytes(range(256)) * 4000 + NOTE + b"relocations behind it"
SETUP_SECTORS = 3


def by(*command: str) -> Callable[[bytes], bytes]:
    return lambda data: subprocess.run(command, input=data, capture_output=True, check=True).stdout


def image(payload: bytes, size: int = len(KERNEL), version: int = 0x20F, setup_sectors: int = SETUP_SECTORS) -> bytes:
    """A bzImage, as its header tells it."""
    payload += struct.pack("<I", size)
    setup = bytearray(((setup_sectors or 4) + 1) * 512)
    setup[0x1F1] = setup_sectors
    struct.pack_into("<4sH", setup, 0x202, b"HdrS", version)
    struct.pack_into("<II", setup, 0x248, 700, len(payload))
    return bytes(setup) + b"\x90" * 700 + payload + b"code that unpacks it"


@pytest.mark.parametrize("setup_sectors", [SETUP_SECTORS, 0])
@pytest.mark.parametrize(
    "compress",
    [
        # As the kernel's own build calls them.
        by("lz4", "-l", "-9", "-"),
        by("zstd", "-22", "--ultra"),
        lambda data: lzma.compress(data, check=lzma.CHECK_CRC32),
        gzip.compress,
    ],
    ids=["lz4", "zstd", "xz", "gzip"],
)
def test_the_kernel_comes_out_as_it_was_built(compress: Callable[[bytes], bytes], setup_sectors: int) -> None:
    assert unpacked_kernel(image(compress(KERNEL), setup_sectors=setup_sectors)) == KERNEL


@pytest.mark.parametrize(
    ("strange", "word"),
    [
        (b"", "no bzImage"),
        (b"\x7fELF" + b"\0" * 4000, "no bzImage"),
        (image(gzip.compress(KERNEL), version=0x207), "no bzImage"),
        (image(b"BZh91AY&SY"), "425a68393141"),
        (image(gzip.compress(KERNEL), size=len(KERNEL) + 1), "size"),
        (image(gzip.compress(KERNEL[4:]), size=len(KERNEL) - 4), "no ELF"),
        (image(gzip.compress(KERNEL.replace(NOTE, b"")), size=len(KERNEL) - len(NOTE)), "PVH"),
        (image(by("lz4", "-l")(KERNEL)[:-900]), "lz4"),
        (image(by("zstd")(KERNEL)[:-9]), "zstd"),
        (image(gzip.compress(KERNEL)[:-9]), "damaged"),
        (image(lzma.compress(KERNEL)[:-40]), "damaged|size"),
    ],
)
def test_a_kernel_of_another_form_is_refused_by_what_is_strange(strange: bytes, word: str) -> None:
    with pytest.raises(KernelError, match=word):
        unpacked_kernel(strange)
