"""Totals: jobs by user, account, partition, week and class, and all together; the worth of each schedule to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from rmsplugin.report.columns import Codes, Flags, Floats, Ints, Jobs, Words
from rmsplugin.report.document import GROUPS, Compared, Spread, Total, Worth
from rmsplugin.report.lives import Lives
from rmsplugin.report.replay import Replays
from rmsplugin.report.splice import Accounts
from rmsplugin.simulation.metrics import SLOWDOWN_THRESHOLD_S

#: Jobs that ran for longer are long ones, those of more CPUs wide ones: the four classes of the field.
LONG_S, WIDE_CPUS = 3600.0, 8
CLASSES = Words(["short and narrow", "short and wide", "long and narrow", "long and wide"])

#: From this difference in seconds on, a job ended sooner or later than under another schedule.
_SAME_S = 1.0


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about the jobs of a report, by row.

    Attributes:
        slowed_s: the time that each job lost because its VMs shared CPUs, see sharing.py.
    """

    jobs: Jobs
    lives: Lives
    accounts: Accounts
    replays: Replays
    migrations: Ints
    slowed_s: Floats


def slowdown(completion_s: Floats, run_s: Floats) -> Floats:
    """Bounded slowdown: completion to run time, which counts as at least 10 s; at least 1."""
    return np.asarray(np.maximum(completion_s / np.maximum(run_s, SLOWDOWN_THRESHOLD_S), 1.0))


def totals(facts: Facts, chosen: Flags) -> dict[str, tuple[Total, ...]]:
    """The totals of the chosen jobs; of no job: none."""
    jobs, accounts = facts.jobs, facts.accounts
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return dict.fromkeys(("all", *GROUPS), ())
    weeks, mondays = _weeks(jobs.submit[rows])
    return {
        "all": (_total(facts, "all", rows),),
        "user": tuple(_by(facts, rows, jobs.user[rows], jobs.users)),
        "account": tuple(_by(facts, rows, accounts.account[rows], accounts.accounts)),
        "partition": tuple(_by(facts, rows, jobs.partition[rows], jobs.partitions)),
        "week": tuple(_by(facts, rows, weeks, mondays)),
        "class": tuple(_by(facts, rows, _classes(facts, rows), CLASSES)),
    }


def _classes(facts: Facts, rows: Ints) -> Codes:
    """The class of each job, by its run time here and the number of CPUs that it requested."""
    is_long, is_wide = facts.lives.run_s[rows] > LONG_S, facts.jobs.booked[rows] > WIDE_CPUS
    return (2 * is_long + is_wide).astype(np.int32)


def _by(facts: Facts, rows: Ints, codes: Codes, words: Words) -> Iterator[Total]:
    """A total for each word, sorted by it; the code -1 is the empty one."""
    order = np.argsort(codes, kind="stable")
    found, begins = np.unique(codes[order], return_index=True)
    parts = np.split(rows[order], begins[1:])
    named = [("" if code < 0 else words.words[code], part) for code, part in zip(found, parts, strict=True)]
    for name, part in sorted(named, key=lambda each: each[0]):
        yield _total(facts, name, part)


def _weeks(submit: Floats) -> tuple[Codes, Words]:
    """The Monday of each submission's week, here and then."""
    day = datetime.fromtimestamp(float(submit.min())).replace(hour=0, minute=0, second=0, microsecond=0)
    monday = day - timedelta(days=day.weekday())
    words, begins = Words(), []
    while monday.timestamp() <= float(submit.max()):
        words.code(monday.strftime("%Y-%m-%d"))
        begins.append(monday.timestamp())
        monday += timedelta(days=7)
    return (np.searchsorted(begins, submit, side="right") - 1).astype(np.int32), words


def _total(facts: Facts, name: str, rows: Ints) -> Total:
    lives = facts.lives
    ended = rows[lives.ended[rows]]
    return Total(
        name=name,
        jobs=len(rows),
        ended=len(ended),
        wait_s=_sum(lives.wait_s[rows]),
        run_s=_sum(lives.run_s[rows]),
        asleep_s=_sum(lives.asleep_s[rows]),
        cpu_s=_sum(lives.run_s[rows] * facts.jobs.booked[rows]),
        suspends=int(lives.suspends[rows].sum()),
        resumes=int(lives.resumes[rows].sum()),
        migrations=int(facts.migrations[rows].sum()),
        worth=_own(facts, ended),
        without=_compared(facts, ended),
    )


def _own(facts: Facts, ended: Ints) -> Worth:
    lives = facts.lives
    return _worth(lives.wait_s[ended], lives.completion_s[ended], lives.run_s[ended])


def _compared(facts: Facts, ended: Ints) -> dict[str, Compared]:
    """The other schedules for those of these jobs that were replayed."""
    rows = ended[facts.replays.replayed[ended]]
    own = _own(facts, rows)
    return {policy: _beside(facts, policy, rows, own) for policy in facts.replays.starts}


def _beside(facts: Facts, policy: str, rows: Ints, own: Worth) -> Compared:
    """Another policy's schedule for these jobs, beside their own one with its worth."""
    replays, lives = facts.replays, facts.lives
    submit, start, end = facts.jobs.submit[rows], replays.starts[policy][rows], replays.ends[policy][rows]
    gained_s = end - submit - lives.completion_s[rows]
    return Compared(
        worth=_worth(start - submit, end - submit, end - start),
        own=own,
        gained_s=_sum(gained_s),
        sooner=int((gained_s >= _SAME_S).sum()),
        later=int((gained_s <= -_SAME_S).sum()),
        paid_s=_sum(-gained_s[gained_s <= -_SAME_S]),
    )


def _worth(wait_s: Floats, completion_s: Floats, run_s: Floats) -> Worth:
    if not len(wait_s):
        return Worth(0, None, None, None)
    longest_s = round(float(completion_s.max()), 1)
    slow = _spread(slowdown(completion_s, run_s), 3)
    return Worth(len(wait_s), _spread(wait_s), _spread(completion_s), slow, longest_s)


def _spread(values: Floats, digits: int = 1) -> Spread:
    return Spread(*(round(float(value), digits) for value in (values.mean(), *np.percentile(values, (50, 95, 99)))))


def _sum(values: Floats) -> float:
    return round(float(values.sum()), 1)
