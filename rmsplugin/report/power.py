"""Power: when nodes were off, and which were emptied for that, from the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping

from rmsplugin.energy.account import OffTime
from rmsplugin.energy.not_emptied import EmptiedNode
from rmsplugin.energy.power import PowerClass
from rmsplugin.report.document import Job

_OFF = "select node, ended from power_acts where kind = 'power-off' and ended > 0 and error = '' order by ended"
#: A node comes on by an order of the engine's, or somebody else switched it on.
_ON = """
    select node, began as at from power_acts where kind = 'power-on'
    union select node, time from events where kind = 'power-on' order by at"""


def off_times(connection: sqlite3.Connection, classes: Mapping[str, PowerClass]) -> list[OffTime]:
    """The times in which these nodes were off, as their BMCs proved it.

    Args:
        connection: to the ledger.
        classes: of nodes, by name; others are left out.
    """
    comes_on: dict[str, list[float]] = {}
    for node, at in connection.execute(_ON):
        comes_on.setdefault(node, []).append(at)
    found: list[OffTime] = []
    for node, proved in connection.execute(_OFF):
        if node in classes:
            on_s = next((at for at in comes_on.get(node, ()) if at >= proved), None)
            found.append(OffTime(node, proved - classes[node].off_s, on_s))
    return found


def emptied_nodes(connection: sqlite3.Connection, jobs: Iterable[Job], until: float) -> list[EmptiedNode]:
    """The nodes that were emptied, each until the last of the jobs ended that were there.

    Args:
        connection: to the ledger.
        jobs: with their lives.
        until: a job that has not ended counts until then.
    """
    emptied = [tuple(row) for row in connection.execute("select node, time from events where kind = 'node-emptied'")]
    if not emptied:
        return []
    known = list(jobs)
    return [EmptiedNode(node, at, max(_ends(known, node, at, until), default=at)) for node, at in emptied]


def _ends(jobs: Iterable[Job], node: str, at: float, until: float) -> Iterator[float]:
    """When the jobs ended that had VMs on the node at that time."""
    for job in jobs:
        if any(each.begin <= at < each.until and node in each.nodes for each in job.intervals):
            yield until if job.end is None else job.end
