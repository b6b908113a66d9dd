"""Watching: how an operation of the engine goes on, to its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import short_bytes
from rmsplugin.errors import OperationFailedError

if TYPE_CHECKING:
    from rich.progress import Progress

    from rmsplugin.api.answers import Operation
    from rmsplugin.api.binding import Engine

#: Longest wait of one request when nobody watches.
_WAIT_S = 20.0
#: The same when somebody does.
_WATCHED_WAIT_S = 0.5


def watch(engine: Engine, number: int, title: str) -> Operation:
    """Wait for the end of an operation."""
    with _Display(title) as display:
        try:
            return engine.wait(
                number,
                each_s=_WATCHED_WAIT_S if display.shown else _WAIT_S,
                seen=lambda now: display.update(int(now.get("bytes_done") or 0), int(now.get("bytes_total") or 0)),
            )
        except KeyboardInterrupt:
            print(f"operation {number} goes on in the engine; `rmsplugin vjobs` shows how far it is", file=sys.stderr)
            raise


def refuse_failed(operation: Mapping[str, Any]) -> None:
    """Raise OperationFailedError for an operation that has failed."""
    if faults := faults_of(operation):
        raise OperationFailedError(printable(faults[0]))


def faults_of(operation: Mapping[str, Any]) -> list[str]:
    """Why an operation has failed, where it has."""
    failed = operation.get("state") == "failed"
    return [str(operation.get("error") or "failed, without a reason")] if failed else []


def done_sentence(title: str, operation: Mapping[str, Any], began: float) -> str:
    """That an operation is done, how long it took and what it moved: "suspend 12: done in 3.1 s, 1.2GB".

    Args:
        title: what was done to what.
        operation: as it ended.
        began: when, by the monotonic clock.
    """
    moved = operation.get("bytes_done") or 0
    amount = f", {short_bytes(moved)}B" if moved else ""
    return f"{title}: done in {time.monotonic() - began:.1f} s{amount}"


class _Display:
    """Progress on a terminal; nothing in a pipe."""

    def __init__(self, title: str) -> None:
        self.shown = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._title = title

    def __enter__(self) -> Self:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=None)
        return self

    def update(self, done: int, total: int) -> None:
        """Show how many bytes have moved; a total of 0 is one that is not known yet."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total or None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
