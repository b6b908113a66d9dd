"""Input file: the bytes of a file that a user names, compressed or not, and its name in messages."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

from rmsplugin.errors import RmspluginError

#: A larger file is a mistake, or an attempt to fill the memory: a configuration of 30,000 VMs has 4 MiB, the largest
#: public traces of jobs have some 100 MiB.
MAX_BYTES = 512 << 20

_BLOCK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_BZIP2, _XZ = b"BZh", b"\xfd7zXZ\x00"
#: xz -9 takes 65 MiB to decompress; a file may ask for 4 GiB.
_XZ_MEMORY_BYTES = 256 << 20
#: The beginnings of other compressed files, and the programs that read them.
_UNREAD = {
    b"\x28\xb5\x2f\xfd": "zstd -dc",
    b"\x04\x22\x4d\x18": "lz4 -dc",
    b"PK\x03\x04": "unzip -p",
    b"\x1f\x9d": "zcat",
    b"7z\xbc\xaf\x27\x1c": "7z x -so",
}
_ENDINGS = {".gz": ("gzipped", _GZIP), ".bz2": ("compressed by bzip2", _BZIP2), ".xz": ("compressed by xz", _XZ)}

#: Called with the part of the file that has been read, from 0 to 1.
Tell = Callable[[float], None]


def shown_name(path: str) -> str:
    """The name of the file in messages."""
    return "standard input" if path == "-" else "".join(c if c.isprintable() else "?" for c in path)


@contextmanager
def named(path: str, kind: type[RmspluginError]) -> Iterator[None]:
    """Turn any error in reading the file into an error of a kind that names it."""
    name = shown_name(path)
    try:
        yield
    except kind as error:
        raise kind(f"{name}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise kind(f"{name}: gzipped, but damaged or cut short") from None
    except OSError as error:
        raise kind(f"{name}: {error.strerror or error}") from None
    except ValueError as error:  # a path that is invalid
        raise kind(f"{name}: {error}") from None


def blocks(
    path: str,
    kind: type[RmspluginError],
    content: str,
    tell: Tell = lambda _: None,
    limit_bytes: int = MAX_BYTES,
) -> Iterator[bytes]:
    """The bytes of a file as they come, decompressed (gzip, bzip2, xz); ``-`` is standard input.

    Iterate inside ``named``.

    Args:
        path: as the user gave it.
        kind: the kind of the errors.
        content: the content of the file, in the singular, for the message that it has too much: "trace".
        tell: called after each block.
        limit_bytes: the limit of the decompressed bytes.
    """
    if path == "-":
        if sys.stdin is None:
            raise kind("is closed")
        yield from _unzipped(sys.stdin.buffer, path, kind, content, tell, limit_bytes)
    else:
        with open(path, "rb") as file:
            yield from _unzipped(file, path, kind, content, tell, limit_bytes)


def _unzipped(
    file: IO[bytes], path: str, kind: type[RmspluginError], content: str, tell: Tell, limit_bytes: int
) -> Iterator[bytes]:
    about = os.fstat(file.fileno())
    size_bytes = about.st_size if stat.S_ISREG(about.st_mode) else 0
    start = file.peek(len(_XZ))  # type: ignore[attr-defined]  # files opened like this are buffered
    for ending, (how, magic) in _ENDINGS.items():
        if path.endswith(ending) and start and not start.startswith(magic):
            raise kind(f"not {how}, though its name ends in {ending}")
    for magic, command in _UNREAD.items():
        if start.startswith(magic):
            raise kind(
                f"compressed in a form that is not read here; `{command} FILE` decompresses it for standard input (`-`)"
            )
    read_bytes = 0
    for block in _blocks(file, start, kind):
        read_bytes += len(block)
        if read_bytes > limit_bytes:
            raise kind(f"more than {limit_bytes >> 20} MiB, which no {content} has")
        yield block
        if size_bytes:
            tell(file.tell() / size_bytes)


def _blocks(file: IO[bytes], start: bytes, kind: type[RmspluginError]) -> Iterator[bytes]:
    """The bytes, a bounded number at a time, however well they are compressed."""
    if start.startswith(_BZIP2):
        yield from _decompressed(file, bz2.BZ2Decompressor, "bzip2", kind)
    elif start.startswith(_XZ):
        yield from _decompressed(file, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES), "xz", kind)
    else:
        plain = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if start.startswith(_GZIP) else file
        while block := plain.read(_BLOCK_BYTES):
            yield block


def _decompressed(
    file: IO[bytes],
    new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
    how: str,
    kind: type[RmspluginError],
) -> Iterator[bytes]:
    """Yield the streams of a file one after the other, decompressed."""
    stream, given = new(), b""
    try:
        while True:
            if stream.eof:
                given = (stream.unused_data or file.read(_BLOCK_BYTES)).lstrip(b"\0")  # xz may pad
                if not given:
                    return
                stream = new()
            elif stream.needs_input:
                given = file.read(_BLOCK_BYTES)
                if not given:
                    raise EOFError
            block = stream.decompress(given, max_length=_BLOCK_BYTES)
            given = b""
            if block:
                yield block
    except lzma.LZMAError as error:
        if "emory" in str(error):
            raise kind(f"compressed by {how}, for more than {_XZ_MEMORY_BYTES >> 20} MiB of memory") from None
        raise kind(f"compressed by {how}, but damaged or cut short") from None
    except (EOFError, OSError, ValueError):
        raise kind(f"compressed by {how}, but damaged or cut short") from None
