"""Bar: how far a long command is, on a terminal; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmsplugin.cli.shared.printable import printable

#: Called with what is being done and the part of it that is, from 0 to 1.
Show = Callable[[str, float], None]


@contextmanager
def bar() -> Iterator[Show]:
    """Show it while something is done."""
    if not sys.stderr.isatty():
        yield lambda _doing, _part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        *(TextColumn("{task.description}", markup=False), BarColumn()),
        *(TaskProgressColumn(), TimeElapsedColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda doing, part: progress.update(task, description=printable(doing), completed=part)
