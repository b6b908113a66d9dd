"""Own: the report of one's own jobs (operators: of all), made by the engine for users who may not read its ledger."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rmsplugin.api.binding import Engine, pieces_of
from rmsplugin.cli.shared.file_errors import file_errors
from rmsplugin.errors import ForbiddenError, NotFoundError, ReportError, UnavailableError
from rmsplugin.report.writing import Row, head_of


class OwnReport:
    """A report that was brought here as a whole: an engine that ends breaks nothing off halfway."""

    def __init__(self, file: IO[str], place: str) -> None:
        """Take a file with the lines of ``rmsplugin.report.writing.lines``; ``place`` names it in messages.

        Raises:
            UnavailableError: they are none.
            RefusedError: the file cannot be written to its end, or not be read.
        """
        self._file, self._place = file, place
        with file_errors(place):
            file.seek(0)
            first = file.readline()
            self._begin = file.tell()
        try:
            self.head = head_of(first)
        except ValueError:
            raise UnavailableError("the engine's report cannot be read: is it of another release?") from None

    def rows(self) -> Iterator[Row]:
        """The jobs as the document has them. Raises RefusedError if the file cannot be read."""
        with file_errors(self._place):
            self._file.seek(self._begin)
            for line in self._file:
                yield json.loads(line)


@contextmanager
def own_report(
    engine: Engine, arguments: argparse.Namespace, *, lives: bool, show: Callable[[str, float], None]
) -> Iterator[OwnReport]:
    """Have the engine make a report, and fetch it; it is there inside the block.

    Args:
        engine: that is asked.
        arguments: of the command: times, and what jobs.
        lives: whether to ask for the jobs' lives in intervals, with where their VMs ran.
        show: called with what is being done, and the part of it that is.

    Raises:
        ReportError: it may not be told, or the ledger has no such job, partition or account of this user's.
        RefusedError: it cannot be kept in a temporary file.
        RmspluginError: the engine cannot be reached, or cannot make it.
    """
    question = {
        "since": arguments.since,
        "until": arguments.until,
        "users": list(arguments.user),
        "accounts": list(arguments.account),
        "partitions": list(arguments.partition),
        "jobs": list(arguments.job),
        "hosts": lives,
    }
    with _temporary_file() as (file, place):
        try:
            number = engine.begin_report(question)
            for text in pieces_of(engine, number, show):
                with file_errors(place):
                    file.write(text)
        except (ForbiddenError, NotFoundError) as error:
            raise ReportError(str(error)) from None
        yield OwnReport(file, place)


@contextmanager
def _temporary_file() -> Iterator[tuple[IO[str], str]]:
    """A file without a name, and its name in messages. Raises RefusedError if it cannot be made."""
    with file_errors("temporary file"):
        directory = tempfile.gettempdir()
    place = f"temporary file in {directory}"
    with file_errors(place):
        file = tempfile.TemporaryFile("w+", encoding="ascii", dir=directory)  # noqa: SIM115  # closed below
    try:
        yield file, place
    finally:
        with suppress(OSError):  # after a failed write: the close writes the rest, which nobody reads any more
            file.close()
