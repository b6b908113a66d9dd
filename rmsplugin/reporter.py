"""Reporter: the program of the process that makes one report for the engine (engine/serve/user_reports.py).

A ledger of a year takes up to a minute of a CPU and 1 GiB to read: so the engine does not read it. The request
comes on standard input. The report goes to standard output, which is a file. On standard error goes a line of JSON
for each step, ``{"doing": ..., "part": ...}``, or the one error that ends it, ``{"error": ..., "unknown": ...}``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from rmsplugin.child_process import end_with, limit
from rmsplugin.engine.ledger.gathering import reading_all
from rmsplugin.engine.ledger.site_ledgers import SiteLedger
from rmsplugin.errors import ReportError, RmspluginError
from rmsplugin.latency import uncollected
from rmsplugin.report import slurm, writing
from rmsplugin.report.build import Question, Report, Site, build
from rmsplugin.report.document import Node
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.power import parameters_of
from rmsplugin.settings import Settings

#: All other processes go first.
_NICE = 19
#: The least time between two reports of progress, in seconds.
_TOLD_S = 0.2


def main(words: list[str]) -> int:
    """Make one report.

    Args:
        words: the file descriptor of the lifeline, the memory limit in MiB, and that of the report.
    """
    lifeline, memory_mib, most_mib = map(int, words)
    end_with(lifeline)
    limit(memory_mib, _NICE)
    request = json.load(sys.stdin)
    progress = _Progress()
    try:
        # Rows are in no cycles, and there may be millions of them.
        with uncollected(), os.fdopen(1, "w", encoding="ascii", closefd=False) as file:
            report = _made(Settings.model_validate(request["settings"]), request, progress)
            # From here on this process writes nothing else.
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_mib << 20, most_mib << 20))
            for number, line in enumerate(writing.lines(report.head, report.rows())):
                file.write(line)
                progress("writing", number / (len(report) + 1))
    except RmspluginError as error:
        _say(error=str(error), unknown=isinstance(error, ReportError))
    except MemoryError:
        _say(error=f"the report takes more than {memory_mib} MiB of memory: ask for a shorter time", unknown=False)
    except OSError as error:
        what = f"the report, of at most {most_mib} MiB, cannot be written ({error.strerror}): ask for a shorter time"
        _say(error=what, unknown=False)
    return 0


def _made(settings: Settings, request: dict[str, Any], progress: _Progress) -> Report:
    """Return the made report. Raises RmspluginError."""
    now = time.time()
    until = min(request["until"] or now, now)
    ledgers = [SiteLedger(**{**each, "path": Path(each["path"])}) for each in request["ledgers"]]
    progress("reading the ledger", 0.0)
    with reading_all(ledgers) as connection:
        reader = LedgerReader(connection, until, request["owner"])
        since = request["since"]
        chosen = {name: tuple(request[name]) for name in ("users", "accounts", "partitions", "jobs")}
        question = Question(
            since=reader.begins() if since is None else min(since, until),
            until=until,
            made=round(now, 1),
            with_lives=request["hosts"],
            **chosen,
        )
        return build(reader, question, _site(settings, until, progress), progress)


def _site(settings: Settings, until: float, progress: _Progress) -> Site:
    nodes: list[Node] = []
    cpus: dict[str, int] = {}
    why = ""
    try:
        nodes, cpus = slurm.nodes_of(settings)
    except RmspluginError as error:
        why = f"the nodes are not known: {error}"

    def tell(part: float) -> None:
        progress("asking accounting", part)

    overheads_mib = {name: image.overhead_mib for name, image in settings.image.items()}
    overhead_mib = settings.memory_overhead_mib

    return Site(
        nodes,
        why,
        overhead_mib,
        cpus,
        overheads_mib,
        lambda since: slurm.runs_of(settings, since, until, tell),
        parameters_of(settings, cpus),
    )


class _Progress:
    """Tells the engine the progress, now and then."""

    def __init__(self) -> None:
        self._doing = ""
        self._told = 0.0

    def __call__(self, doing: str, part: float) -> None:
        now = time.monotonic()
        if doing != self._doing or now >= self._told + _TOLD_S:
            self._doing, self._told = doing, now
            _say(doing=doing, part=round(part, 3))


def _say(**values: object) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
