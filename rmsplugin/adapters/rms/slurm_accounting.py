"""Slurm's accounting: every run of the jobs of some partitions, as ``sacct -D`` has them; a requeue begins a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.adapters.rms.slurm_records import duration_s, epoch, unless_a_year

_FIELDS = ("JobIDRaw", "Account", "Submit", "Start", "ElapsedRaw", "Suspended", "TimelimitRaw", "State")
#: One answer has the runs of so many seconds: it is held as a whole.
_SLICE_S = 7 * 86400.0


class Run(NamedTuple):
    """One run of a job. Times are seconds since the epoch."""

    job_id: int
    account: str
    submit: int
    start: int  # 0 if it did not start
    run_s: int  # suspended time does not count
    asleep_s: int
    limit_s: float  # infinite where there is none, NaN where it is not known
    state: str  # one word, such as COMPLETED


class SlurmAccounting:
    """The answers of ``sacct``, on this host."""

    def __init__(self, bin_dir: str = "", timeout_s: float = 30.0, *, prefix: Sequence[str] = ()) -> None:
        """Ask nothing yet; for the arguments see ``SlurmCli``."""
        self._run = SlurmCommands(bin_dir, timeout_s, prefix).run

    def runs(
        self,
        partitions: Sequence[str],
        since: float,
        until: float,
        tell: Callable[[float], None] = lambda _part: None,
    ) -> Iterator[Run]:
        """All runs of jobs of these partitions in that time; some may come twice.

        Asks for a week at a time; ``tell`` is called with the part of the time that is done, from 0 to 1.

        Raises:
            UnavailableError: accounting does not answer.
            RefusedError: there is no accounting.
        """
        begin = since
        while begin < until:
            end = min(begin + _SLICE_S, until)
            # sacct counts in whole seconds.
            between = ("-S", _utc(math.floor(begin)), "-E", _utc(max(math.ceil(end), math.floor(begin) + 1)))
            text = self._run(
                *("sacct", "-n", "-P", "-X", "-D", "-a", "-r", ",".join(partitions), *between, "-o", ",".join(_FIELDS))
            )
            yield from read_runs(text)
            begin = end
            tell((begin - since) / (until - since))


def read_runs(text: str) -> Iterator[Run]:
    """Read ``sacct -n -P -X -D`` with ``_FIELDS``; lines that are not about a job's run are left out."""
    for line in text.splitlines():
        values = line.split("|")
        if len(values) != len(_FIELDS) or not values[0].isdecimal():
            continue
        job_id, account, submit, start, elapsed, suspended, limit, state = values
        yield Run(
            *(int(job_id), account, epoch(submit), epoch(start), epoch(elapsed), duration_s(suspended)),
            *(_limit_s(limit), state.partition(" ")[0]),
        )


def _limit_s(minutes: str) -> float:
    """A time limit; a job with its partition's limit says so in words."""
    if minutes.isdecimal():
        return unless_a_year(int(minutes) * 60.0)
    return math.inf if minutes.upper() == "UNLIMITED" else math.nan


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
