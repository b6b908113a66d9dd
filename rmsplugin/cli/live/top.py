"""Top: `rmsplugin top`, one screen with the engine, the nodes and the queue, which is drawn again and again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from rmsplugin.cli.live import nodes as nodes_shown
from rmsplugin.cli.live import vjobs as vjobs_shown
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.sentences import cycle_sentence, pause_sentence
from rmsplugin.cli.shared.table import Field, Row, local_time, parse_format
from rmsplugin.errors import RmspluginError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rmsplugin.api.binding import Engine

_BAR = 10
#: Columns of a screen that is no terminal.
_WIDE = 160
_VJOBS = "jobid,user,partition,state,time,position,vms,cpus,memory,nodes,why"
_NODES = "node,state,room,vms,memoryused,memory,reason"
#: Lines that are neither nodes nor vjobs: titles of tables, and what is left out of each.
_OTHERS = 4
#: Colours of states that one wants to see; others have none.
_COLOURS = {
    **dict.fromkeys(("running", "held"), "green"),
    **dict.fromkeys(("sleeping", "paused"), "cyan"),
    **dict.fromkeys(("suspending", "resuming", "starting", "stopping", "pausing", "unpausing", "leaving"), "yellow"),
    **dict.fromkeys(("unreachable", "gone", "failed"), "red"),
}


class Seen:
    """What the engine has told; of what it did not, what it told before, and why it did not."""

    def __init__(
        self, status: Row | None = None, nodes: Sequence[Row] = (), vjobs: Sequence[Row] = (), fault: str = ""
    ) -> None:
        self.status, self.nodes, self.vjobs, self.fault = status or {}, nodes, vjobs, fault


def add_command(commands: options.Commands) -> None:
    """Add top to the command line."""
    parser = options.add_command(
        commands,
        "top",
        "show the engine, the nodes and the queue on one screen, and go on with it",
        _top,
        """
        Nodes with something wrong come first, then vjobs with an operation under way, those that wait in the order of
        the queue, and those that run. What does not fit on the screen is counted. Ctrl-C ends it. In a pipe one screen
        is printed.

        examples:
          rmsplugin top
          rmsplugin top -d 10
          rmsplugin top --once
        """,
    )
    parser.add_argument(
        "-d",
        "--delay",
        metavar="SECONDS",
        type=options.positive_seconds,
        default=3.0,
        help="draw it again after so many seconds (default: 3)",
    )
    parser.add_argument("--once", action="store_true", help="print one screen, and end")


def _top(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    engine, console = find_engine(arguments), Console(width=None if sys.stdout.isatty() else _WIDE)
    seen = Seen()
    ask_engine(engine, seen)
    if arguments.once or not sys.stdout.isatty():
        if seen.fault:
            raise RmspluginError(seen.fault)
        console.print(screen(seen, sys.maxsize))
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        engine.while_asked = lambda place, bound_s: nullcontext()  # the screen is full, and tells of a fault itself
        while True:
            live.update(screen(seen, console.size.height), refresh=True)
            time.sleep(arguments.delay)
            ask_engine(engine, seen)


def ask_engine(engine: Engine, seen: Seen) -> None:
    """Ask the engine; what it does not answer stays as it was, and is told."""
    try:
        seen.status, seen.nodes, seen.vjobs = dict(engine.status()), engine.nodes(), engine.vjobs()
        seen.fault = ""
    except RmspluginError as error:
        seen.fault = str(error)


def screen(seen: Seen, height: int) -> RenderableType:
    """All of it, in at most so many lines."""
    from rich.console import Group

    head = _head(seen)
    left = max(2, height - len(head) - _OTHERS)
    nodes = sorted(seen.nodes, key=lambda row: (not row.get("reason"), str(row.get("name"))))
    vjobs = sorted(seen.vjobs, key=_order)
    for_nodes = min(len(nodes), max(left // 2, left - len(vjobs)))
    return Group(
        *head,
        _table(parse_format(_NODES, nodes_shown.FIELDS), nodes, for_nodes, "nodes", _cpus_bar()),
        _table(parse_format(_VJOBS, vjobs_shown.FIELDS), vjobs, left - for_nodes, "vjobs"),
    )


def _head(seen: Seen) -> list[RenderableType]:
    from rich.text import Text

    status = seen.status
    counts: dict[str, int] = {}
    for row in seen.vjobs:
        counts[str(row["state"])] = counts.get(str(row["state"]), 0) + 1
    told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "no vjob"
    lines = [f"{local_time(time.time())}  engine {status.get('version', '?')} on {status.get('host', '?')}: {told}"]
    if last := status.get("last_plan"):
        lines.append(cycle_sentence(last))
    if pause := status.get("paused"):
        lines.append(pause_sentence(pause))
    wrong = [*status.get("ills", ()), *status.get("problems", ()), *([seen.fault] if seen.fault else [])]
    return [*map(Text, map(printable, lines)), *(Text(printable(each), style="red") for each in wrong)]


def _order(row: Row) -> tuple[bool, bool, float, int]:
    """Those on which something is done, those that wait in the order of the queue, the others."""
    position = row.get("position")
    return not row.get("operation"), position is None, position or 0, int(row.get("job_id") or 0)


def _cpus_bar() -> Field:
    def text(row: Row) -> str:
        cpus, used = float(row.get("cpus") or 0), float(row.get("cpus_used") or 0)
        full = round(_BAR * min(1.0, used / cpus)) if cpus else 0
        return f"{'#' * full}{'.' * (_BAR - full)} {used:g}/{cpus:g}"

    return Field("cpus", "CPUs that VMs have taken, of those that they may", text)


def _table(columns: Iterable[Any], rows: Sequence[Row], most: int, what: str, *more: Field) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    fields = [column.field for column in columns]
    fields[-1:-1] = more
    shown = rows[:most] if len(rows) <= most else rows[: max(0, most - 1)]
    lines = [[printable(each.text(row)) or "-" for each in fields] for row in shown]
    table = Table(box=None, pad_edge=False, expand=False)
    for index, each in enumerate(fields):
        # The last column alone is cut where a screen is too narrow.
        least = max(len(each.title), *(len(line[index]) for line in lines), 0) if index < len(fields) - 1 else 1
        justify: Literal["left", "right"] = "right" if each.right else "left"
        table.add_column(each.title, justify=justify, no_wrap=True, overflow="ellipsis", min_width=least)
    for line in lines:
        table.add_row(*(Text(word, style=_COLOURS.get(word, "")) for word in line))
    if len(shown) < len(rows):
        table.add_row(Text(f"and {len(rows) - len(shown)} more {what}"))
    return table
