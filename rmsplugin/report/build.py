"""Build: puts together a report's document from the ledger, accounting and the replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmsplugin.adapters.rms.slurm_accounting import Run
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.errors import ReportError, RmspluginError
from rmsplugin.model.job_names import parse
from rmsplugin.model.vm_memory import vm_mib
from rmsplugin.report import utilisation
from rmsplugin.report.columns import Actions, Flags, Ints, Jobs
from rmsplugin.report.document import Consumed, Cost, Head, Job, Node
from rmsplugin.report.hosts import ARRIVALS, Hosts
from rmsplugin.report.jobs import jobs_of
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.lives import lives_of
from rmsplugin.report.notes import Circumstances, notes
from rmsplugin.report.power import consumed
from rmsplugin.report.replay import replay
from rmsplugin.report.samples import Samples, VMs
from rmsplugin.report.sharing import slowed_s
from rmsplugin.report.splice import Accounts, nothing, splice
from rmsplugin.report.stored import stored_states
from rmsplugin.report.totals import Facts, totals
from rmsplugin.report.writing import Row, job_json

#: The kinds of actions whose costs a report tells as costs of switches.
_COSTLY = ("suspend", "resume", "migrate", "copy")

#: Called with the present stage in words, and the part of the work that is done, from 0 to 1.
Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Question:
    """The selection of a report; times are seconds since the epoch, an empty list selects all.

    Attributes:
        since, until: the jobs are those that were there in that time.
        made: the present time.
        with_lives: whether the jobs have their lives in intervals, with the hosts of their VMs.
    """

    since: float
    until: float
    made: float
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    with_lives: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster, as far as it can be asked.

    Attributes:
        nodes: the part of each node that VMs may take; empty where unknown, for the reason ``no_nodes``.
        overhead_mib: the memory that a VM takes of its node besides its own.
        image_overheads_mib: ``overhead_mib`` by image; 0 for an image that is not there.
        host_cpus: the CPUs of the nodes on which VMs ran, by name; empty where unknown.
        runs: asks accounting for the runs since a time; raises RmspluginError where accounting cannot be asked.
        energy: the watts of nodes, by name, tariff and CO2; without classes where no watts are known.
    """

    nodes: Sequence[Node]
    no_nodes: str
    overhead_mib: int
    host_cpus: Mapping[str, int]
    image_overheads_mib: Mapping[str, int]
    runs: Callable[[float], Iterable[Run]]
    energy: EnergyParameters = field(default_factory=lambda: EnergyParameters({}))


class Report:
    """A report: its document without the jobs, and the jobs one by one."""

    def __init__(self, head: Head, facts: Facts, chosen: Flags, hosts: Hosts | None) -> None:
        self.head = head
        self._facts = facts
        self._rows = np.flatnonzero(chosen)
        self._rows = self._rows[np.argsort(facts.jobs.submit[self._rows], kind="stable")]
        self._hosts = hosts

    def __len__(self) -> int:
        return len(self._rows)

    def jobs(self) -> Iterator[Job]:
        """The jobs, in order of their first submission."""
        return jobs_of(self._facts, self._hosts, self._rows)

    def rows(self) -> Iterator[Row]:
        """The jobs as rows of the document."""
        return map(job_json, self.jobs())


def build(
    reader: LedgerReader,
    question: Question,
    site: Site,
    tell: Tell = lambda _doing, _part: None,
    check: Callable[[int], None] = lambda _jobs: None,
) -> Report:
    """Make a report.

    Args:
        reader: reads the ledger.
        question: the selection.
        site: the cluster.
        tell: called with the progress.
        check: called with the number of jobs of the report, before most of the work; may raise ReportError.

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
    accounts, no_accounting = _accounts(jobs, site, question)
    told = reader.may_be_told(jobs)
    chosen = _chosen(jobs, accounts, question, no_accounting, told, reader.of_yours)
    check(int(chosen.sum()))
    tell("reading the ledger", 0.1)
    lives = lives_of(jobs, reader.operations(jobs), question.until)
    where = question.with_lives or bool(site.host_cpus)
    actions = reader.actions(jobs, tuple(dict.fromkeys((*_COSTLY, *(ARRIVALS if where else ())))))
    vms = VMs.of(jobs)
    # The costs of sharing are told for whole lives, the use of CPUs for the time of the report.
    seen_since = jobs.begins(question.until) if site.host_cpus else question.since
    samples = Samples.of(jobs, vms, reader.samples(seen_since))
    slowed = slowed_s(jobs, lives, vms, actions, samples, site.host_cpus)
    migrations, costs = _count(actions, "migrate", len(jobs)), _costs(actions, chosen)
    tells_energy = _tells_energy(reader, question, site)
    hosts = Hosts(actions, lives, jobs.vms) if question.with_lives or tells_energy else None
    stored = stored_states(actions, lives)
    del actions  # the replays need the memory
    replays = replay(jobs, lives.work_s - slowed, accounts.limit_s, site.nodes, _taken_mib(jobs, site), tell)
    facts = Facts(jobs, lives, accounts, replays, migrations, slowed)
    about = _circumstances(reader, question, site, jobs, begins, no_accounting)
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
        utilisation=tuple(
            utilisation.points(facts, told, vms, samples, stored, site.nodes, (question.since, question.until))
        ),
        switches=() if about.own_only else tuple(reader.switches(question.since)),
        costs=costs,
        notes=tuple(notes(facts, about, told)),
        losses=tuple(reader.losses(question.since, jobs, chosen)),
        energy=(_energy(reader, question, site, facts, hosts),) if tells_energy else (),
    )
    return Report(head, facts, chosen, hosts if question.with_lives else None)


def _tells_energy(reader: LedgerReader, question: Question, site: Site) -> bool:
    """Whether watts are known, and the report is of the whole cluster."""
    part = question.users or question.accounts or question.partitions or question.jobs or reader.owner is not None
    return bool(site.energy.classes and site.host_cpus) and not part


def _energy(reader: LedgerReader, question: Question, site: Site, facts: Facts, hosts: Hosts | None) -> Consumed:
    jobs = list(jobs_of(facts, hosts, np.arange(len(facts.jobs))))
    return consumed(reader.connection, site.energy, site.host_cpus, jobs, question.since, question.until)


def _circumstances(
    reader: LedgerReader, question: Question, site: Site, jobs: Jobs, begins: float, no_accounting: str
) -> Circumstances:
    return Circumstances(
        since=question.since,
        begins=begins,
        node_changes=reader.node_changes(question.since),
        no_accounting=no_accounting,
        no_nodes=site.no_nodes,
        knows_hosts=bool(site.host_cpus),
        own_only=reader.owner is not None,
        ruled=reader.ruled(jobs),
    )


def _accounts(jobs: Jobs, site: Site, question: Question) -> tuple[Accounts, str]:
    """Accounting's facts about the jobs, or the reason why there are none."""
    if not len(jobs):
        return nothing(0), ""
    try:
        return splice(jobs, site.runs(float(jobs.submit.min())), question.since), ""
    except RmspluginError as error:
        return nothing(len(jobs)), str(error)


def _chosen(
    jobs: Jobs, accounts: Accounts, question: Question, no_accounting: str, told: Flags, of_yours: str
) -> Flags:
    """The selected jobs, among those that may be told. Raises ReportError."""
    chosen = told.copy()
    if question.users:
        chosen &= np.isin(jobs.user, [code for code, word in enumerate(jobs.users.words) if word in question.users])
    if question.partitions:
        words = jobs.partitions.words
        chosen &= np.isin(jobs.partition, [code for code, word in enumerate(words) if word in question.partitions])
    if question.accounts:
        if no_accounting:
            raise ReportError(f"--account: accounts are in Slurm's accounting only, and {no_accounting}")
        for account in question.accounts:
            if not (told & accounts.is_of(account)).any():
                raise ReportError(f"accounting has no job{of_yours} of account {account!r} in this time")
        chosen &= np.any([accounts.is_of(account) for account in question.accounts], axis=0)
    if question.jobs:
        wanted = [parse(name) for name in question.jobs]
        named = np.isin(jobs.job_id, [name.job for name in wanted if not name.ranges])
        for row, called in jobs.names.items():
            named[row] |= any(name.means(called) for name in wanted)
        chosen &= named
    return chosen


def _count(actions: Actions, kind: str, count: int) -> Ints:
    """The number of actions of a kind that each job had."""
    code = actions.kinds.code(kind)
    return np.bincount(actions.row[actions.kind == code], minlength=count).astype(np.int64)


def _costs(actions: Actions, chosen: Flags) -> dict[str, Cost]:
    found = {}
    for kind in _COSTLY:
        of = (actions.kind == actions.kinds.code(kind)) & chosen[actions.row]
        seconds = float((actions.ended[of] - actions.created[of]).sum())
        found[kind] = Cost(int(of.sum()), round(seconds, 1), int(actions.bytes[of].sum()))
    return found


def _taken_mib(jobs: Jobs, site: Site) -> Ints:
    """The memory that a VM of each job takes of its node, by the settings of today."""
    overheads_mib = np.array([site.image_overheads_mib.get(name, 0) for name in jobs.images.words] or [0])[jobs.image]
    shapes, of = np.unique(np.stack([jobs.memory_mib, overheads_mib]), axis=1, return_inverse=True)
    sizes = np.array([vm_mib(int(request), int(overhead)) for request, overhead in shapes.T], dtype=np.int64)
    return sizes[of.reshape(-1)] + site.overhead_mib
