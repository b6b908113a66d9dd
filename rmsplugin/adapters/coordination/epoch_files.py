"""Epoch files: a text that one leader after the other writes on a shared directory, each to a file of its own epoch.

A leader that was stopped, and goes on when another one leads, writes to its own file still: nobody reads that. So two
may believe that they lead, for whatever time: what they write harms nobody. Two things keep a reader from a text that
the next leader does not know of:

* A reader takes the file with the highest epoch, and looks again afterwards whether there is a higher one by now.
* A new leader first makes its own file, empty (``begin``). From then on no reader takes a file of a leader before, and
  none takes the empty one. Only then does the new leader read what it goes on from: all that was ever taken is in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rmsplugin.errors import UnavailableError

#: How many files are kept.
KEPT = 3
#: How often a reader tries again when a new leader has begun meanwhile.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class EpochText:
    """What a leader has written."""

    epoch: int
    name: str  # the path of the file, for messages
    text: str  # empty: it has begun, and has not written yet


class EpochFiles:
    """The files ``NAME-EPOCH.json`` of one directory."""

    def __init__(self, directory: Path, name: str) -> None:
        """Read nothing yet; the directory is made by the first ``write``."""
        self._directory, self._name = directory, name
        self._pattern = re.compile(re.escape(name) + r"-([1-9][0-9]*)\.json")

    def newest(self) -> EpochText | None:
        """The text of the highest epoch; None if there is none.

        Raises:
            UnavailableError: the directory cannot be read, a leader has begun and has not written yet, or leaders
                follow each other faster than it is read.
        """
        with self._saying("read"):
            for _ in range(_TRIES):
                self._look_anew()
                epochs = self._epochs(None)
                if not epochs:
                    return None
                found = self._read(epochs[-1])
                self._look_anew()
                if found is None or self._epochs(None)[-1:] != epochs[-1:]:
                    continue
                if not found.text:
                    raise UnavailableError(f"{found.name}: this leader has begun, and has not written yet")
                return found
        raise UnavailableError(f"{self._directory}: one leader follows the other; it is read again later")

    def highest(self) -> int:
        """The highest epoch of a leader that has begun; 0 if there is none. Raises UnavailableError."""
        with self._saying("read"):
            self._look_anew()
            return max(self._epochs(None), default=0)

    def mark(self) -> tuple[int, int, int]:
        """What changes whenever the newest text does; never raises. All 0: there is none, or it cannot be read now."""
        try:
            epoch = self._epochs(None)[-1]
            with open(self.path(epoch), "rb") as file:  # so that NFS asks the server
                found = os.fstat(file.fileno())
        except (OSError, IndexError):
            return 0, 0, 0
        return epoch, found.st_ino, found.st_mtime_ns

    def begin(self, epoch: int, first: Callable[[EpochText | None], str]) -> str:
        """Write the first text of a new leader, made of that of the leader before. Returns it.

        Args:
            epoch: of the new leader. If that has written already, nothing is written, and its text is returned.
            first: makes the text of what was read; None: there was none.

        Raises:
            UnavailableError: see ``newest`` and ``write``. Nothing may be given before it has succeeded.
        """
        with self._saying("read"):
            own = self._read(epoch)
        if own is not None and own.text:
            return own.text
        self._put(epoch, "")
        text = first(self._before(epoch))
        self.write(epoch, text)
        return text

    def _before(self, epoch: int) -> EpochText | None:
        """The text of the highest epoch below this one whose leader has written one."""
        with self._saying("read"):
            self._look_anew()
            for each in reversed(self._epochs(epoch)):
                if (found := self._read(each)) is not None and found.text:
                    return found
        return None

    def _read(self, epoch: int) -> EpochText | None:
        """The text of this epoch, empty if its leader has only begun; None if there is no file."""
        path = self.path(epoch)
        try:
            return EpochText(epoch, str(path), path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return None

    def write(self, epoch: int, text: str) -> None:
        """Write the text of a leader, in place of the one that it wrote before, and remove old leaders' files.

        Raises:
            UnavailableError: it could not be written; it may be there all the same.
        """
        self._put(epoch, text)
        with self._saying("written"):
            for old in self._epochs(epoch)[: 1 - KEPT]:
                self.path(old).unlink(missing_ok=True)

    def _put(self, epoch: int, text: str) -> None:
        path = self.path(epoch)
        with self._saying("written"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = self._directory / f".{self._name}-{uuid.uuid4().hex}"
            try:
                with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                new.rename(path)
            finally:
                new.unlink(missing_ok=True)
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def path(self, epoch: int) -> Path:
        """The file of the leader of this epoch."""
        return self._directory / f"{self._name}-{epoch}.json"

    def _epochs(self, below: int | None) -> list[int]:
        """The epochs of the files that are there, the lowest first."""
        try:
            found = (self._pattern.fullmatch(name) for name in os.listdir(self._directory))
        except FileNotFoundError:
            return []
        epochs = sorted(int(each[1]) for each in found if each)
        return epochs if below is None else [epoch for epoch in epochs if epoch < below]

    def _look_anew(self) -> None:
        """Have this host's NFS ask the server for the names: it does after a change of its own in the directory."""
        name = self._directory / f".{self._name}-{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            name.unlink()

    @contextlib.contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self._directory} cannot be {what} now: {error.strerror or error}") from None
