"""Trace file: the workload in an SWF file, gzipped or not, read as it comes."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, cast

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.jobs import Workload, read_workload

#: The largest public traces have some 100 MiB; this is a mistake, or an attempt to fill the memory.
MAX_BYTES = 512 << 20

_BLOCK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"

#: Called with the part of the file that has been read, from 0 to 1.
Tell = Callable[[float], None]


def shown_name(path: str) -> str:
    """What messages call the file."""
    return "standard input" if path == "-" else "".join(c if c.isprintable() else "?" for c in path)


def read(path: str, tell: Tell = lambda _: None, limit_bytes: int = MAX_BYTES) -> Workload:
    """Read the trace in a file; ``-`` is standard input.

    Raises:
        WorkloadError: the file cannot be read, or is no trace.
    """
    name = shown_name(path)
    try:
        if path == "-":
            if sys.stdin is None:
                raise WorkloadError("is closed")
            return read_workload(_blocks(sys.stdin.buffer, path, tell, limit_bytes))
        with open(path, "rb") as file:
            return read_workload(_blocks(file, path, tell, limit_bytes))
    except WorkloadError as error:
        raise WorkloadError(f"{name}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise WorkloadError(f"{name}: gzipped, but damaged or cut short") from None
    except OSError as error:
        raise WorkloadError(f"{name}: {error.strerror or error}") from None
    except ValueError as error:  # a path that is none
        raise WorkloadError(f"{name}: {error}") from None


def _blocks(file: IO[bytes], path: str, tell: Tell, limit_bytes: int) -> Iterator[bytes]:
    """The bytes of the trace, unzipped."""
    about = os.fstat(file.fileno())
    size_bytes = about.st_size if stat.S_ISREG(about.st_mode) else 0
    start = file.peek(len(_GZIP))  # type: ignore[attr-defined]  # files opened like this are buffered
    unzipped = file
    if start.startswith(_GZIP):
        unzipped = cast(IO[bytes], gzip.GzipFile(fileobj=file))
    elif path.endswith(".gz") and start:
        raise WorkloadError("not gzipped, though its name ends in .gz")
    read_bytes = 0
    while block := unzipped.read(_BLOCK_BYTES):
        read_bytes += len(block)
        if read_bytes > limit_bytes:
            raise WorkloadError(f"more than {limit_bytes >> 20} MiB, which no trace has")
        yield block
        if size_bytes:
            tell(file.tell() / size_bytes)
