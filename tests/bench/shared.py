"""Shared: a report as a site has it whose nodes are known, so that what sharing CPUs cost is told, too; as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from bench.year import BEGINS, NODES, YEAR_S
from rmsplugin.adapters.rms.slurm_accounting import Run
from rmsplugin.engine.ledger.history import reading
from rmsplugin.errors import UnavailableError
from rmsplugin.report import writing
from rmsplugin.report.build import Question, Site, build
from rmsplugin.report.document import Node
from rmsplugin.report.ledger import LedgerReader


def main(path: Path, node_cpus: int, used_nodes: int) -> None:
    """Print the report of a ledger on standard output.

    Args:
        path: of the ledger.
        node_cpus: how many each node has.
        used_nodes: how many the replays have.
    """
    until = BEGINS + 2 * YEAR_S
    host_cpus = {f"n{number}": node_cpus for number in range(1, NODES + 1)}
    nodes = [Node(name, node_cpus, 0) for name in list(host_cpus)[:used_nodes]]
    with reading(path) as connection:
        reader = LedgerReader(connection, until)
        question = Question(reader.begins(), until, until, with_lives=True)
        report = build(reader, question, Site(nodes, "", 0, host_cpus, {}, _nobody))
    sys.stdout.writelines(writing.json_text(report.head, report.rows(), {}))


def _nobody(_since: float) -> Iterable[Run]:
    raise UnavailableError("there is no accounting")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
