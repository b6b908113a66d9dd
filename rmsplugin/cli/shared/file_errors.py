"""File errors: a failed write, read or close names no file, and would pass for one of standard output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmsplugin.errors import RefusedError


@contextmanager
def file_errors(place: object) -> Iterator[None]:
    """Turn what the operating system refuses in the block, which must not print, into an error that names the place.

    Raises:
        RefusedError: it refused something.
    """
    try:
        yield
    except OSError as error:
        raise RefusedError(f"{place}: {error.strerror or error}") from None
