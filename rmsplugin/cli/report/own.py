"""Own: the report of one's own jobs (operators: of all), made by the engine for users who may not read its ledger."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from rmsplugin.client import EngineClient
from rmsplugin.errors import ForbiddenError, NotFoundError, ReportError, UnavailableError
from rmsplugin.report.writing import Row, head_of

#: The engine answers at the end of the report, or after so long with how far it is.
_WAIT_S = 1
_PATIENCE_S = 60.0


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
    client: EngineClient, arguments: argparse.Namespace, *, lives: bool, show: Callable[[str, float], None]
) -> Iterator[OwnReport]:
    """Have the engine make a report, and fetch it; it is there inside the block.

    Args:
        client: reaches the engine.
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
            number = client.request("POST", "/v1/reports", question)["report"]
            for text in _pieces(client, number, show):
                file.write(text)
        except (ForbiddenError, NotFoundError) as error:
            raise ReportError(str(error)) from None
        yield OwnReport(file)


def _pieces(client: EngineClient, number: int, show: Callable[[str, float], None]) -> Iterator[str]:
    """The text of a report, once it is made."""
    fetched, size = 0, 1
    while fetched < size:
        answer: dict[str, Any] = client.request(
            "GET", f"/v1/reports/{number}?wait={_WAIT_S}&from={fetched}", timeout_s=_PATIENCE_S
        )
        if not answer["made"]:
            show(answer["doing"], answer["part"])
            continue
        if not answer["text"]:
            raise UnavailableError("the engine's report ends in the middle; ask for it again")
        yield answer["text"]
        size = answer["bytes"]
        fetched += len(answer["text"])
        show("fetching the report", fetched / size)
