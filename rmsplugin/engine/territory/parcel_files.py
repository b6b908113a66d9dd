"""Parcel files: copies of what groups have packed for each other, on the directory that controllers share.

The group that gives writes ``ID.GROUP.json``, or ``ID.GROUP.order``, and removes it; the group that has taken it in
writes ``ID.GROUP.taken`` beside it, which the giver removes, too. GROUP is the giver in all three.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rmsplugin.engine.ledger.parcel_book import Parcel, ParcelKind
from rmsplugin.errors import UnavailableError

_NAME = re.compile(r"([0-9a-f]{32})\.(.+)\.(json|order|taken)")
_ENDS = {ParcelKind.VJOB: "json", ParcelKind.ORDER: "order"}
_TAKEN = "taken"


class Sent(NamedTuple):
    """A parcel that another group has sent."""

    id: str
    giver: str
    number: int
    to: str
    content: Mapping[str, Any]


class _File(NamedTuple):
    id: str
    giver: str
    end: str

    @property
    def name(self) -> str:
        return f"{self.id}.{self.giver}.{self.end}"


class ParcelFiles:
    """The files of one directory, as one group uses them. One thread calls."""

    def __init__(self, directory: Path, group: str) -> None:
        """Read nothing yet; the directory is made by the first parcel."""
        self._directory, self._group = directory, group

    # -- what this group sends -----------------------------------------------------------------------------------

    def send(self, parcels: list[Parcel]) -> frozenset[str]:
        """Have files of these parcels, and of no others of this group. Returns the ids of those that were taken in.

        Raises:
            UnavailableError: the directory cannot be read or written now.
        """
        with self._saying("written"):
            own = [file for file in self._files() if file.giver == self._group]
            proofs = {file.id for file in own if file.end == _TAKEN}
            wanted = {parcel.id for parcel in parcels}
            for parcel in parcels:
                file = _File(parcel.id, self._group, _ENDS[parcel.kind])
                if parcel.id not in proofs and file not in own:
                    self._write(file, _text(parcel))
            for file in own:
                if file.id not in wanted:
                    (self._directory / file.name).unlink(missing_ok=True)
        return frozenset(proofs & wanted)

    # -- what others have sent to it -----------------------------------------------------------------------------

    def vjob(self, parcel: str) -> Sent:
        """The parcel of a vjob. Raises UnavailableError if it is not there yet, or cannot be read."""
        with self._saying("read"):
            for file in self._files():
                if file.id == parcel and file.end == _ENDS[ParcelKind.VJOB]:
                    return self._read(file)
        raise UnavailableError(f"parcel {parcel} is not in {self._directory} yet")

    def unproved(self) -> list[tuple[str, str]]:
        """The id and the giver of each vjob's parcel without a proof beside it. Raises UnavailableError."""
        with self._saying("read"):
            files = self._files()
        proved = {file.id for file in files if file.end == _TAKEN}
        return [
            (file.id, file.giver)
            for file in files
            if file.end == _ENDS[ParcelKind.VJOB] and file.giver != self._group and file.id not in proved
        ]

    def orders(self) -> list[Sent]:
        """The orders to this group that were not carried out yet. Raises UnavailableError."""
        with self._saying("read"):
            files = self._files()
            done = {file.id for file in files if file.end == _TAKEN}
            found = [self._read(file) for file in files if file.end == _ENDS[ParcelKind.ORDER] and file.id not in done]
        return [order for order in found if order.to == self._group]

    def prove(self, parcel: str, giver: str) -> None:
        """Give the giver the proof that the parcel was taken in. Raises UnavailableError."""
        with self._saying("written"):
            self._write(_File(parcel, giver, _TAKEN), f"{self._group}\n")

    # -- files ---------------------------------------------------------------------------------------------------

    def _files(self) -> list[_File]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return [_File(*found.groups()) for name in sorted(names) if (found := _NAME.fullmatch(name))]

    def _read(self, file: _File) -> Sent:
        path = self._directory / file.name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return Sent(file.id, file.giver, int(found["number"]), str(found["to"]), found["content"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"{path} cannot be read: {error!r}") from None

    def _write(self, file: _File, text: str) -> None:
        """Write it whole, durably, and then give it its name."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._directory / f".{uuid.uuid4().hex}"
        try:
            with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(self._directory / file.name)
        finally:
            new.unlink(missing_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self._directory} cannot be {what} now: {error.strerror or error}") from None


def _text(parcel: Parcel) -> str:
    return json.dumps({"number": parcel.number, "to": parcel.to, "content": parcel.content}) + "\n"
