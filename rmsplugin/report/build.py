"""Build: a report's document, put together from the ledger, accounting and the replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmsplugin.adapters.rms.slurm_accounting import Run
from rmsplugin.errors import ReportError, RmspluginError
from rmsplugin.report import utilisation
from rmsplugin.report.columns import Actions, Flags, Ints, Jobs
from rmsplugin.report.document import Accounted, Cost, Head, Job, Node, Point, Schedule
from rmsplugin.report.hosts import ARRIVALS, Hosts
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.lives import SLEEPING, WAITING, Lives, lives_of
from rmsplugin.report.notes import Circumstances, notes
from rmsplugin.report.replay import replay
from rmsplugin.report.splice import Accounts, nothing, splice
from rmsplugin.report.totals import Facts, slowdown, totals

#: What switches cost is told of these kinds of actions.
_COSTLY = ("suspend", "resume", "migrate", "copy")

#: Called with what is being done, and the part of it that is, from 0 to 1.
Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for; times are seconds since the epoch, an empty list is all.

    Attributes:
        since, until: the jobs are those that were there in that time.
        made: now.
        with_hosts: whether the jobs' intervals say where their VMs ran.
    """

    since: float
    until: float
    made: float
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    with_hosts: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster, as far as it can be asked.

    Attributes:
        nodes: what VMs may take of each; empty where that is not known, for the reason ``no_nodes``.
        overhead_mib: what a VM takes besides its memory.
        runs: asks accounting for the runs since then; raises RmspluginError where that cannot be done.
    """

    nodes: Sequence[Node]
    no_nodes: str
    overhead_mib: int
    runs: Callable[[float], Iterable[Run]]


class Report:
    """A report: its document but the jobs, and the jobs one by one."""

    def __init__(self, head: Head, facts: Facts, chosen: Flags, actions: Actions) -> None:
        self.head = head
        self._facts = facts
        self._rows = np.flatnonzero(chosen)
        self._rows = self._rows[np.argsort(facts.jobs.submit[self._rows], kind="stable")]
        self._hosts = Hosts(actions, facts.lives, facts.jobs.vms)

    def __len__(self) -> int:
        return len(self._rows)

    def jobs(self) -> Iterator[Job]:
        """The jobs, in order of their first submission."""
        for row in self._rows.tolist():
            yield self._job(row)

    def _job(self, row: int) -> Job:
        jobs, lives, accounts = self._facts.jobs, self._facts.lives, self._facts.accounts
        code = int(accounts.account[row])
        ended = bool(lives.ended[row])
        completion_s = _number(lives.completion_s[row])
        limit_s = float(accounts.limit_s[row])
        return Job(
            id=jobs.name(row),
            user=jobs.users.words[jobs.user[row]],
            account="" if code < 0 else accounts.accounts.words[code],
            partition=jobs.partitions.words[jobs.partition[row]],
            state=_state(lives, row),  # type: ignore[arg-type]
            vms=int(jobs.vms[row]),
            cpus=int(jobs.cpus[row]),
            memory_mib=int(jobs.memory_mib[row]),
            submit=round(float(jobs.submit[row]), 1),
            start=_number(lives.start[row]),
            end=_number(lives.end[row]),
            wait_s=round(float(lives.wait_s[row]), 1),
            run_s=round(float(lives.run_s[row]), 1),
            asleep_s=round(float(lives.asleep_s[row]), 1),
            completion_s=completion_s,
            slowdown=round(float(slowdown(lives.completion_s[row], lives.run_s[row])), 3) if ended else None,
            suspends=int(lives.suspends[row]),
            resumes=int(lives.resumes[row]),
            migrations=int(self._facts.migrations[row]),
            limit_s=limit_s if np.isfinite(limit_s) else None,
            slurm=_accounted(accounts, row),
            intervals=tuple(self._hosts.intervals(row)),
            without={policy: self._schedule(policy, row) for policy in self.head.others},
        )

    def _schedule(self, policy: str, row: int) -> Schedule | None:
        replays = self._facts.replays
        if not (replays.replayed[row] and self._facts.lives.ended[row]):
            return None
        start, end = _number(replays.starts[policy][row]), _number(replays.ends[policy][row])
        return None if start is None or end is None else Schedule(start, end)


def build(reader: LedgerReader, question: Question, site: Site, tell: Tell = lambda _doing, _part: None) -> Report:
    """Make a report.

    Raises:
        ReportError: the ledger, or accounting, has no such user, account, partition or job.
        LedgerError: the ledger cannot be read.
    """
    reader.require("user", list(question.users))
    reader.require("partition", list(question.partitions))
    reader.require_jobs(list(question.jobs))
    tell("reading the ledger", 0.0)
    begins = reader.begins()
    jobs = reader.jobs(question.since)
    lives = lives_of(jobs, reader.operations(jobs), question.until)
    actions = reader.actions(jobs, tuple(dict.fromkeys((*_COSTLY, *(ARRIVALS if question.with_hosts else ())))))
    accounts, no_accounting = _accounts(jobs, site, question)
    replays = replay(jobs, lives, accounts.limit_s, site.nodes, site.overhead_mib, tell)
    facts = Facts(jobs, lives, accounts, replays, _count(actions, "migrate", len(jobs)))
    chosen = _chosen(facts, question, no_accounting)
    about = Circumstances(question.since, begins, reader.node_changes(question.since), no_accounting, site.no_nodes)
    tell("putting the report together", 0.0)
    head = Head(
        kind="report",
        policy="live",
        others=tuple(replays.starts),
        made=question.made,
        since=round(question.since, 1),
        until=round(question.until, 1),
        selection={name: list(getattr(question, name)) for name in ("users", "accounts", "partitions", "jobs")},
        nodes=tuple(site.nodes),
        totals=totals(facts, chosen),
        utilisation_step_s=float(utilisation.step_s(question.since, question.until)),
        utilisation=tuple(_points(reader, facts, site, question)),
        switches=tuple(reader.switches(question.since)),
        costs=_costs(actions, chosen),
        notes=tuple(notes(facts, about)),
    )
    return Report(head, facts, chosen, actions)


def _points(reader: LedgerReader, facts: Facts, site: Site, question: Question) -> Iterator[Point]:
    span = (question.since, question.until)
    return utilisation.points(facts.jobs, facts.lives, facts.replays, reader.samples(question.since), site.nodes, span)


def _accounts(jobs: Jobs, site: Site, question: Question) -> tuple[Accounts, str]:
    """What accounting has of the jobs, or why it has nothing."""
    if not len(jobs):
        return nothing(0), ""
    try:
        return splice(jobs, site.runs(float(jobs.submit.min())), question.since), ""
    except RmspluginError as error:
        return nothing(len(jobs)), str(error)


def _chosen(facts: Facts, question: Question, no_accounting: str) -> Flags:
    """The jobs that were asked for. Raises ReportError."""
    jobs, accounts = facts.jobs, facts.accounts
    chosen = np.ones(len(jobs), dtype=bool)
    if question.users:
        chosen &= np.isin(jobs.user, [code for code, word in enumerate(jobs.users.words) if word in question.users])
    if question.partitions:
        words = jobs.partitions.words
        chosen &= np.isin(jobs.partition, [code for code, word in enumerate(words) if word in question.partitions])
    if question.accounts:
        if no_accounting:
            raise ReportError(f"--account: accounts are in Slurm's accounting only, and {no_accounting}")
        words = accounts.accounts.words
        for account in question.accounts:
            if account not in words:
                raise ReportError(f"accounting has no job of account {account!r} in this time")
        chosen &= np.isin(accounts.account, [words.index(account) for account in question.accounts])
    if question.jobs:
        wanted = set(question.jobs)
        named = np.isin(jobs.job_id, [int(name) for name in wanted if name.isdecimal()])
        for row, name in jobs.names.items():
            named[row] |= name in wanted or name.partition("_")[0] in wanted
        chosen &= named
    return chosen


def _count(actions: Actions, kind: str, count: int) -> Ints:
    """How many actions of a kind each job had."""
    code = actions.kinds.code(kind)
    return np.bincount(actions.row[actions.kind == code], minlength=count).astype(np.int64)


def _costs(actions: Actions, chosen: Flags) -> dict[str, Cost]:
    found = {}
    for kind in _COSTLY:
        of = (actions.kind == actions.kinds.code(kind)) & chosen[actions.row]
        seconds = float((actions.ended[of] - actions.created[of]).sum())
        found[kind] = Cost(int(of.sum()), round(seconds, 1), int(actions.bytes[of].sum()))
    return found


def _state(lives: Lives, row: int) -> str:
    if not np.isnan(lives.end[row]):
        return "ended" if lives.ran[row] else "never-ran"
    return {WAITING: "waiting", SLEEPING: "sleeping"}.get(int(lives.state[row]), "running")


def _accounted(accounts: Accounts, row: int) -> Accounted | None:
    runs = int(accounts.runs[row])
    if not runs:
        return None
    state = accounts.states.words[accounts.state[row]]
    return Accounted(runs, float(accounts.run_s[row]), float(accounts.asleep_s[row]), state)


def _number(value: float) -> float | None:
    """A time for the document; None for NaN."""
    return None if np.isnan(value) else round(float(value), 1)
