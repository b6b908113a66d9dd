"""Input file: the bytes of a file that a user names, gzipped or not, and what messages call it."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

from rmsplugin.errors import RmspluginError

#: What is larger is a mistake, or an attempt to fill the memory: a configuration of 30,000 VMs has 4 MiB, the largest
#: public traces of jobs have some 100 MiB.
MAX_BYTES = 512 << 20

_BLOCK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"

#: Called with the part of the file that has been read, from 0 to 1.
Tell = Callable[[float], None]


def shown_name(path: str) -> str:
    """What messages call the file."""
    return "standard input" if path == "-" else "".join(c if c.isprintable() else "?" for c in path)


@contextmanager
def named(path: str, kind: type[RmspluginError]) -> Iterator[None]:
    """Turn whatever is wrong with the file, while it is read, into an error of a kind that names it."""
    name = shown_name(path)
    try:
        yield
    except kind as error:
        raise kind(f"{name}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise kind(f"{name}: gzipped, but damaged or cut short") from None
    except OSError as error:
        raise kind(f"{name}: {error.strerror or error}") from None
    except ValueError as error:  # a path that is none
        raise kind(f"{name}: {error}") from None


def blocks(
    path: str,
    kind: type[RmspluginError],
    content: str,
    tell: Tell = lambda _: None,
    limit_bytes: int = MAX_BYTES,
) -> Iterator[bytes]:
    """The bytes of a file as they come, unzipped; ``-`` is standard input. To be read inside ``named``.

    Args:
        path: as the user gave it.
        kind: of the errors.
        content: what the file has, in the singular, for the message that it has too much: "trace".
        tell: called after each block.
        limit_bytes: of what is unzipped.
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
    start = file.peek(len(_GZIP))  # type: ignore[attr-defined]  # files opened like this are buffered
    unzipped = file
    if start.startswith(_GZIP):
        unzipped = cast(IO[bytes], gzip.GzipFile(fileobj=file))
    elif path.endswith(".gz") and start:
        raise kind("not gzipped, though its name ends in .gz")
    read_bytes = 0
    while block := unzipped.read(_BLOCK_BYTES):
        read_bytes += len(block)
        if read_bytes > limit_bytes:
            raise kind(f"more than {limit_bytes >> 20} MiB, which no {content} has")
        yield block
        if size_bytes:
            tell(file.tell() / size_bytes)
