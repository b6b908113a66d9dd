"""Display: what is being done, on a terminal; and what a file leaves in doubt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmsplugin.cli.shared.printable import printable
from rmsplugin.model.rules import confined_to

if TYPE_CHECKING:
    from rmsplugin.model.configuration import Configuration


@contextmanager
def display() -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is being done, and how long it has taken; and let an interrupt end it.

    Whatever starts threads (NumPy already when it is imported) has to come after this, see ``ends_at_once``.
    """
    from rmsplugin.cli.plan.interrupt import ends_at_once
    from rmsplugin.cli.plan.quiet import solvers_keep_quiet

    if not sys.stderr.isatty():
        with ends_at_once(lambda: None), solvers_keep_quiet():
            yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with ends_at_once(progress.stop), solvers_keep_quiet(), progress:
        task = progress.add_task("")
        yield lambda doing: progress.update(task, description=printable(doing), refresh=True)


def warn_of_unknown_nodes(command: str, configuration: Configuration) -> None:
    """A node that a vjob may use need not be there; but it may be a slip."""
    for vjob in configuration.vjobs:
        for name in sorted((confined_to(vjob.rules) or frozenset()) - configuration.node_by_name.keys()):
            words = f"rmsplugin {command}: warning: vjob {vjob.name} may use node {name}, but there is no such node"
            print(printable(words), file=sys.stderr)
