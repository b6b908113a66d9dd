"""Jobs: makes a document's jobs from a report's columns; many at once, for access to single array values is slow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from rmsplugin.report.columns import Floats, Ints
from rmsplugin.report.document import Accounted, Job, JobState, Schedule
from rmsplugin.report.hosts import Hosts
from rmsplugin.report.lives import SLEEPING, WAITING
from rmsplugin.report.totals import Facts, slowdown

#: The number of jobs that are Python values at a time.
_BATCH = 2000


def jobs_of(facts: Facts, hosts: Hosts | None, rows: Ints) -> Iterator[Job]:
    """The jobs in these rows, in their order.

    Args:
        facts: the facts of the jobs.
        hosts: the hosts of their VMs; None: their lives are not told.
        rows: the rows of the jobs.
    """
    for begin in range(0, len(rows), _BATCH):
        yield from _batch(facts, hosts, rows[begin : begin + _BATCH])


def _batch(facts: Facts, hosts: Hosts | None, rows: Ints) -> Iterator[Job]:
    jobs, lives, accounts = facts.jobs, facts.lives, facts.accounts
    ratio = np.where(lives.ended[rows], slowdown(lives.completion_s[rows], lives.run_s[rows]), np.nan)
    limits_s = accounts.limit_s[rows]
    return map(
        Job,
        map(jobs.name, rows.tolist()),
        _words(jobs.users.words, jobs.user[rows]),
        _words(accounts.accounts.words, accounts.account[rows]),
        _words(jobs.partitions.words, jobs.partition[rows]),
        _states(facts, rows),
        jobs.vms[rows].tolist(),
        jobs.cpus[rows].tolist(),
        jobs.memory_mib[rows].tolist(),
        jobs.large[rows].tolist(),
        jobs.small_cpus[rows].tolist(),
        _numbers(jobs.submit[rows]),
        _numbers(lives.start[rows]),
        _numbers(lives.end[rows]),
        _numbers(lives.wait_s[rows]),
        _numbers(lives.run_s[rows]),
        _numbers(lives.asleep_s[rows]),
        _numbers(lives.completion_s[rows]),
        _numbers(ratio, 3),
        _numbers(facts.slowed_s[rows]),
        lives.suspends[rows].tolist(),
        lives.resumes[rows].tolist(),
        facts.migrations[rows].tolist(),
        _numbers(np.where(np.isfinite(limits_s), limits_s, np.nan)),
        _accounted(facts, rows),
        repeat(()) if hosts is None else hosts.intervals(rows),
        _without(facts, rows),
    )


def _words(words: list[str], codes: Any) -> list[str]:
    """The words of codes; the code -1 is the empty one."""
    return ["" if code < 0 else words[code] for code in codes.tolist()]


def _numbers(values: Floats, digits: int = 1) -> list[Any]:
    """Times for the document; None for NaN."""
    return [None if value != value else value for value in np.round(values, digits).tolist()]


def _states(facts: Facts, rows: Ints) -> list[JobState]:
    lives = facts.lives
    over = ~np.isnan(lives.end[rows])
    names: dict[int, JobState] = {WAITING: "waiting", SLEEPING: "sleeping"}
    return [
        ("ended" if ran else "never-ran") if ends else names.get(state, "running")
        for ends, ran, state in zip(over.tolist(), lives.ran[rows].tolist(), lives.state[rows].tolist(), strict=True)
    ]


def _accounted(facts: Facts, rows: Ints) -> list[Accounted | None]:
    accounts = facts.accounts
    columns = (accounts.runs, accounts.run_s, accounts.asleep_s)
    known = zip(
        *(each[rows].tolist() for each in columns), _words(accounts.states.words, accounts.state[rows]), strict=True
    )
    return [Accounted(*values) if values[0] else None for values in known]


def _without(facts: Facts, rows: Ints) -> Iterator[dict[str, Schedule | None]]:
    """The other schedules of each job; none for a job that has not ended, or is not replayed."""
    replays = facts.replays
    compared = replays.replayed[rows] & facts.lives.ended[rows]
    schedules = []
    for policy, starts in replays.starts.items():
        begins, ends = _numbers(starts[rows]), _numbers(replays.ends[policy][rows])
        found = zip(begins, ends, compared.tolist(), strict=True)
        schedules.append([Schedule(begin, end) if there else None for begin, end, there in found])
    for each in zip(*schedules, strict=True) if schedules else [()] * len(rows):
        yield dict(zip(replays.starts, each, strict=True))
