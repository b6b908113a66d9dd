"""Own: the report of one's own jobs (operators: of all), made by the engine for users who may not read its ledger."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from rmsplugin.api.binding import Engine, pieces_of
from rmsplugin.errors import ForbiddenError, NotFoundError, ReportError, UnavailableError
from rmsplugin.report.writing import Row, head_of


class OwnReport:
    """A report that was brought here as a whole: an engine that ends breaks nothing off halfway."""

    def __init__(self, file: IO[str]) -> None:
        """Take a file with the lines of ``rmsplugin.report.writing.lines``.

        Raises:
            UnavailableError: they are none.
        """
        self._file = file
        file.seek(0)
        try:
            self.head = head_of(file.readline())
        except ValueError:
            raise UnavailableError("the engine's report cannot be read: is it of another release?") from None
        self._begin = file.tell()

    def rows(self) -> Iterator[Row]:
        """The jobs as the document has them."""
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
    with tempfile.TemporaryFile("w+", encoding="ascii") as file:
        try:
            number = engine.begin_report(question)
            for text in pieces_of(engine, number, show):
                file.write(text)
        except (ForbiddenError, NotFoundError) as error:
            raise ReportError(str(error)) from None
        yield OwnReport(file)
