"""CSV form: a report's jobs, or its totals, as comma-separated values; times in seconds since the epoch."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any, TextIO

from rmsplugin.cli.shared.table import Row

_JOB = (
    *("id", "user", "account", "partition", "state", "vms", "cpus", "memory_mib", "submit", "start", "end", "wait_s"),
    *("run_s", "asleep_s", "completion_s", "slowdown", "suspends", "resumes", "migrations", "limit_s", "slowed_s"),
)
_TOTAL = ("name", "jobs", "ended", "cpu_s", "wait_s", "run_s", "asleep_s", "suspends", "resumes", "migrations")
_MEASURES = ("wait_s", "completion_s", "slowdown")
_BESIDE = ("gained_s", "sooner", "later", "paid_s")
_VALUES = ("mean", "p50", "p95", "p99")


def write_jobs(file: TextIO, jobs: Iterable[Row], policies: Iterable[str]) -> None:
    """A line for each job; what is not known is empty."""
    policies = tuple(policies)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*_JOB, *(f"{policy}_{end}" for policy in policies for end in ("start", "end"))))
    for job in jobs:
        schedules = (job["without"].get(policy) or {} for policy in policies)
        there = (schedule.get(end) for schedule in schedules for end in ("start", "end"))
        writer.writerow((*(job[name] for name in _JOB), *there))


def write_totals(file: TextIO, totals: Iterable[Row], policies: Iterable[str]) -> None:
    """A line for each total: means and percentiles of jobs that ended, here and under the other schedules."""
    policies = tuple(policies)
    writer = csv.writer(file, lineterminator="\n")
    spreads = [f"{measure}_{value}" for measure in _MEASURES for value in _VALUES]
    there = [f"{policy}_{name}" for policy in policies for name in ("jobs", *spreads, "longest_s", *_BESIDE)]
    writer.writerow((*_TOTAL, *spreads, "longest_s", *there))
    for total in totals:
        values = [total[name] for name in _TOTAL] + [*_spreads(total["worth"]), total["worth"]["longest_s"]]
        for policy in policies:
            compared = total["without"][policy]
            values += [compared["worth"]["jobs"], *_spreads(compared["worth"]), compared["worth"]["longest_s"]]
            values += [compared[name] for name in _BESIDE]
        writer.writerow(values)


def _spreads(worth: Row) -> list[Any]:
    return [(worth[measure] or {}).get(value) for measure in _MEASURES for value in _VALUES]
