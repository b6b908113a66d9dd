"""Splice: puts together accounting's facts about each job, the runs of a requeued job as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rmsplugin.adapters.rms.slurm_accounting import Run
from rmsplugin.report.columns import Codes, Flags, Floats, Ints, Jobs, Words, arrays, last_of_each

#: Slurm's time of a submission is in whole seconds; a run that was submitted earlier is of another job with that id.
_EARLIER_S = 2.0


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounting's facts, by row; ``runs`` is 0 for a job that accounting does not know.

    Attributes:
        account, state: codes; -1 where accounting does not know the job. The state is that of the last run.
        runs: the number of runs.
        run_s, asleep_s: of all runs together.
        limit_s: the limit of the last run; infinite for none, NaN where unknown.
        others: the number of jobs that accounting has and the ledger has not.
    """

    account: Codes
    accounts: Words
    state: Codes
    states: Words
    runs: Ints
    run_s: Floats
    asleep_s: Floats
    limit_s: Floats
    others: int = 0

    def is_of(self, account: str) -> Flags:
        """Whether each job is of that account."""
        return np.isin(self.account, [code for code, word in enumerate(self.accounts.words) if word == account])


def nothing(count: int) -> Accounts:
    """The facts about so many jobs without accounting."""
    account, state = (np.full(count, -1, dtype=np.int32) for _ in range(2))
    zeros = np.zeros(count)
    return Accounts(account, Words(), state, Words(), zeros.astype(np.int64), zeros, zeros, np.full(count, np.nan))


def splice(jobs: Jobs, runs: Iterable[Run], since: float) -> Accounts:
    """Put together accounting's facts about these jobs; each run counts once, however often it is given.

    Args:
        jobs: of the report.
        runs: of these jobs and, maybe, of others.
        since: others count if they were submitted since then.
    """
    accounts, states = Words(), Words()
    kinds = ("i", accounts, *"fffff", states)
    job_id, account, submit, start, run_s, asleep_s, limit_s, state = arrays(runs, kinds)
    order = np.lexsort((start, submit, job_id))
    same = (job_id[order][1:] == job_id[order][:-1]) & (submit[order][1:] == submit[order][:-1])
    order = order[np.append(~same, True)[: len(order)]]  # of a run that was seen at two moments, the later one counts
    rows = jobs.rows_of(job_id[order])
    others = len(np.unique(job_id[order][(rows < 0) & (submit[order] >= since)]))
    if not len(jobs):
        return nothing(0)
    kept = (rows >= 0) & (submit[order] >= jobs.submit[rows] - _EARLIER_S)
    rows, order, count = rows[kept], order[kept], len(jobs)
    last = last_of_each(rows)
    result = nothing(count)
    for column, values in ((result.account, account), (result.state, state), (result.limit_s, limit_s)):
        column[rows[last]] = values[order[last]]
    return Accounts(
        *(result.account, accounts, result.state, states),
        runs=np.bincount(rows, minlength=count).astype(np.int64),
        run_s=np.bincount(rows, weights=run_s[order], minlength=count).astype(np.float64),
        asleep_s=np.bincount(rows, weights=asleep_s[order], minlength=count).astype(np.float64),
        limit_s=result.limit_s,
        others=others,
    )
