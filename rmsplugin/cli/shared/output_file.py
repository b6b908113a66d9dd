"""Output file: where an option like --dot writes; all of the text, or what was there before."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from rmsplugin.errors import RefusedError
from rmsplugin.presence import is_directory, is_file, is_there


class OutputFile:
    """A file that can be written, as far as that can be told before.

    Raises:
        RefusedError: it cannot be.
    """

    def __init__(self, option: str, name: str) -> None:
        """``option`` is what messages begin with."""
        try:
            self._path = Path(name).resolve()  # a link stays one, what it leads to is replaced
            if self._path.is_symlink():  # in a circle: Python 3.13 resolves up to there, and says nothing
                raise RuntimeError("links in a circle")
            if is_there(self._path) and not is_file(self._path):
                what = "a directory" if is_directory(self._path) else "no regular file"
                raise RefusedError(f"{option}: {name} is {what}")
            directory = self._path.parent
            if not is_directory(directory):
                raise RefusedError(f"{option}: there is no directory {directory}")
        except (OSError, ValueError, RuntimeError) as error:  # too long; a null byte; links in a circle
            raise RefusedError(f"{option}: {name!r}: {getattr(error, 'strerror', None) or error}") from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise RefusedError(f"{option}: {directory} is not writable")
        self._what = f"{option}: {name}"

    def write(self, text: str) -> None:
        """Replace what is there. Raises RefusedError if it cannot, and then leaves what is there."""
        temporary = None
        try:
            descriptor, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name[:100]}.")
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(descriptor, self._mode())
            os.replace(temporary, self._path)
        except BaseException as error:  # an interrupt leaves nothing behind either
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            if isinstance(error, OSError):
                raise RefusedError(f"{self._what}: {error.strerror or error}") from None
            raise

    def _mode(self) -> int:
        """The permissions of what is replaced, or those of any new file."""
        try:
            return self._path.stat().st_mode & 0o777
        except FileNotFoundError:
            mask = os.umask(0)
            os.umask(mask)
            return 0o666 & ~mask
