"""Document: the data that `rmsplugin report --json` prints and the page of `--html` shows; simulate and compare use it.

All times are seconds since the epoch (of a trace: seconds as in the trace), all durations are seconds; null: unknown.
The keys of the JSON are the names of the fields below::

    {"kind": "report", "policy": "live", "others": ["fcfs", "easy"], "made": 1763843000.0,
     "since": 1763700000.0, "until": 1763800000.0,
     "selection": {"users": [], "accounts": [], "partitions": [], "jobs": []},
     "nodes": [{"name": "n1", "cpus": 4, "memory_mib": 8192}],
     "jobs": [{"id": "12", "user": "alice", "account": "physics", "partition": "vjob", "state": "ended",
               "vms": 2, "cpus": 1, "memory_mib": 512,
               "submit": 1763700100.0, "start": 1763700160.0, "end": 1763703000.0,
               "wait_s": 60.0, "run_s": 1840.0, "asleep_s": 1000.0, "completion_s": 2900.0, "slowdown": 1.58,
               "slowed_s": 0.0, "suspends": 1, "resumes": 1, "migrations": 0, "limit_s": 3600.0,
               "slurm": {"runs": 1, ...} or null,
               "intervals": [{"state": "waiting", "from": 1763700100.0, "until": 1763700160.0, "nodes": []},
                             {"state": "running", "from": 1763700160.0, "until": 1763701000.0, "nodes": ["n1", "n1"]},
                             {"state": "sleeping", "from": 1763701000.0, "until": 1763702000.0, "nodes": []},
                             {"state": "running", "from": 1763702000.0, "until": 1763703000.0, "nodes": ["n1", "n2"]}],
               "without": {"fcfs": {"start": 1763700100.0, "end": 1763701940.0}, "easy": null}}],
     "totals": {"all": [TOTAL], "user": [TOTAL, ...], "account": [...], "partition": [...], "week": [...],
                "class": [...]},
     "energy": [{"policy": "live", "kwh": 12.5, "kwh_all_on": 20.1, "kwh_not_emptied": 13.0, "kwh_oracle": 11.9,
                 "cost": 3.1, "co2_kg": null, "switched_off": 14,
                 "nodes": [{"name": "n1", "kwh": 12.5, "cost": 3.1, "co2_kg": null}],
                 "users": [{"name": "", "kwh": 4.5, ...}, {"name": "alice", "kwh": 8.0, ...}], "accounts": [...]}],
     "utilisation_step_s": 3600.0,
     "utilisation": [{"t": 1763700000.0, "cpu_used": 1.5, "cpu_booked": 2.0, "cpu_demanded": 6.0, "cpu_total": 4.0,
                      "without": {"fcfs": 2.0, "easy": 3.0}, "mem_booked_mib": 2048.0, "mem_total_mib": 8192.0,
                      "waiting": 3.5, "asleep": 1.0, "store_mib": 512.0}],
     "switches": [{"number": 7, "at": 1763701000.0, "state": "done", "cost_mib": 1024, "seconds": 40.1,
                   "start": 0, "suspend": 1, "resume": 0, "migrate": 0, "pause": 0, "unpause": 0}],
     "costs": {"suspend": {"actions": 2, "vm_seconds": 71.0, "bytes": 1073741824}, "resume": {...}, "migrate": {...}},
     "losses": [{"at": 1763701000.0, "id": "12", "kind": "lost", "sentence": "vjob12-0 on n2, which is gone; ..."}],
     "notes": [{"code": "running", "count": 3, "sentence": "3 jobs have not ended: ..."}]}

``kind`` is report, simulation or comparison. ``policy`` names the schedule of the jobs' own fields, of ``utilisation``
and of ``switches`` ("live" in a report). ``others`` names the schedules beside it, which are the keys of every
``without``. A simulation has fcfs and easy beside a policy that switches, and else no others; a comparison has its last
policy as ``policy``, the rest as others. Both have no ``totals``. The names of their users, accounts and partitions are
those of the workload (workload/jobs.py); an empty name is one that the workload does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["report", "simulation", "comparison"]
JobState = Literal["ended", "never-ran", "running", "sleeping", "waiting"]

#: The groups for which there are totals.
GROUPS = ("user", "account", "partition", "week", "class")


@dataclass(frozen=True, slots=True)
class Node:
    """A node that hosts VMs."""

    name: str
    cpus: int
    memory_mib: int


class Interval(NamedTuple):
    """A part of a job's life; a job's intervals follow each other without gaps. A report without lives has none.

    Attributes:
        state: waiting (for its first start, or anew after a loss; its start included), running, or sleeping: from the
            beginning of its suspend to the end of its resume.
        begin: in JSON ``from``.
        until: its end.
        nodes: of a running job, the host of each VM in the order of their numbers; a migration begins an interval.
    """

    state: Literal["waiting", "running", "sleeping"]
    begin: float
    until: float
    nodes: tuple[str, ...] = ()


class Schedule(NamedTuple):
    """The start and the end that a job would have had."""

    start: float
    end: float


class Accounted(NamedTuple):
    """Slurm's accounting of a job, all its runs together."""

    runs: int  # 1 + requeues
    run_s: float  # Elapsed, of all runs
    asleep_s: float  # Suspended, of all runs
    state: str  # of the last run, e.g. COMPLETED


class Job(NamedTuple):
    """One job.

    Attributes:
        id: as users name it, ``12`` or ``12_3``.
        account: empty where accounting does not know the job.
        state: ended; never-ran (ended before it started); running, sleeping or waiting at ``until``.
        vms: the number of VMs; ``cpus`` and ``memory_mib`` are of each, or of the larger ones.
        large_vms: the number of VMs, the first ones, that have so many CPUs; the others have ``small_cpus``.
        submit: first submission.
        start: of its first run; null if it never ran.
        end: null if it has not ended.
        wait_s: time in which it neither ran nor slept; run_s: ran; asleep_s: slept. Together its completion.
        completion_s: from submit to end; null if it has not ended, or never ran.
        slowdown: bounded slowdown: completion to run time, which counts as at least 10 s; at least 1.
        slowed_s: by so much it would have run shorter on CPUs of its own, as far as is known; replays subtract it.
        limit_s: the time limit that its user gave; null where unknown.
        slurm: null where accounting does not know the job.
        without: by the name of another schedule; null where nothing can be said of the job.
    """

    id: str
    user: str
    account: str
    partition: str
    state: JobState
    vms: int
    cpus: int
    memory_mib: int
    large_vms: int
    small_cpus: int
    submit: float
    start: float | None
    end: float | None
    wait_s: float
    run_s: float
    asleep_s: float
    completion_s: float | None
    slowdown: float | None
    slowed_s: float
    suspends: int
    resumes: int
    migrations: int
    limit_s: float | None
    slurm: Accounted | None
    intervals: tuple[Interval, ...]
    without: dict[str, Schedule | None]


@dataclass(frozen=True, slots=True)
class Spread:
    """A value of many jobs: mean and percentiles."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of a schedule to the jobs that ended under it; null where there is none.

    Attributes:
        jobs: the number of jobs measured.
        wait_s: for each, the time from submission in which it neither ran nor slept.
        completion_s: from submission to end.
        slowdown: bounded slowdown.
        longest_s: the longest completion.
    """

    jobs: int
    wait_s: Spread | None
    completion_s: Spread | None
    slowdown: Spread | None
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Another schedule, and the gain of the report's own schedule over it, for the jobs that ended under both.

    Attributes:
        worth: of the other schedule.
        own: of the report's own schedule, for the same jobs.
        gained_s: the sum of their completions there, minus that here: above 0, context switches were worth it.
        sooner: jobs that ended sooner here than there, by a second or more; later: the other way round.
        paid_s: the sum of the delays of the jobs that ended later here.
    """

    worth: Worth
    own: Worth
    gained_s: float
    sooner: int
    later: int
    paid_s: float


@dataclass(frozen=True, slots=True)
class Total:
    """Jobs of one user, account, partition, week (that of their submission; name: its Monday) or class, or all jobs."""

    name: str
    jobs: int
    ended: int
    wait_s: float  # sums of all jobs
    run_s: float
    asleep_s: float
    cpu_s: float  # run time times requested CPUs
    suspends: int
    resumes: int
    migrations: int
    worth: Worth
    without: dict[str, Compared]


@dataclass(frozen=True, slots=True)
class Point:
    """The cluster from ``t`` on for a step, as means over the step; null: unknown.

    Attributes:
        t: when it begins.
        cpu_used: the observed demand of running VMs; where nothing was observed, their request.
        cpu_booked: the request of running jobs.
        cpu_demanded: the request of all jobs that were there, whether they ran, slept or waited.
        cpu_total: of all nodes.
        without: booked under the other schedules.
        mem_booked_mib: the memory that running jobs had requested.
        mem_total_mib: of all nodes.
        waiting: the number of jobs that waited; asleep: that were paused, saved, or on the way there or back.
        store_mib: the saved states of jobs that slept, by what their suspends wrote.
    """

    t: float
    cpu_used: float
    cpu_booked: float
    cpu_demanded: float
    cpu_total: float
    without: dict[str, float]
    mem_booked_mib: float | None = None
    mem_total_mib: float | None = None
    waiting: float | None = None
    asleep: float | None = None
    store_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """One cluster-wide context switch.

    Attributes:
        number: as in `rmsplugin cycles`.
        at: the time of the decision.
        state: running, done or failed.
        cost_mib: the cost of the plan, by the cost model.
        seconds: from the decision to the end; null while it runs.
        start: the number of vjobs that it started; the others alike. A vjob that goes on after a pause counts as
            unpause.
    """

    number: int
    at: float
    state: str
    cost_mib: int
    seconds: float | None
    start: int
    suspend: int
    resume: int
    migrate: int
    pause: int
    unpause: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of all actions of one kind: their number, the seconds they took VMs, and the bytes they moved."""

    actions: int
    vm_seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Loss:
    """The VMs of a job were lost.

    Attributes:
        at: the time at which that was recorded.
        id: of the job, as in ``Job``.
        kind: ``lost`` (it began anew) or ``went-back`` (it went on from a checkpoint).
        sentence: what was lost, why, and how much is repeated.
    """

    at: float
    id: str
    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Share:
    """The kilowatt-hours of one node, user or account; an empty name: of nobody, as those of nodes without VMs.

    Attributes:
        name: whose they are.
        kwh: kilowatt-hours.
        cost, co2_kg: of ``kwh``, by time of day; null where no tariff, or no CO2, is known.
    """

    name: str
    kwh: float
    cost: float | None = None
    co2_kg: float | None = None


@dataclass(frozen=True, slots=True)
class Consumed:
    """The kilowatt-hours of all nodes together under a schedule, by the watts of their classes.

    Attributes:
        policy: the name of the schedule.
        kwh: with nodes switched as they were.
        kwh_all_on: with all of them on.
        kwh_not_emptied: with no node emptied so that it could be switched off; null where that is not known.
        kwh_oracle: with nodes off in each period without VMs in which that saves.
        cost, co2_kg: of ``kwh``, by time of day; null where no tariff, or no CO2, is known.
        switched_off: how often nodes were switched off.
        nodes, users, accounts: ``kwh`` divided among them; empty where they are not told.
    """

    policy: str
    kwh: float
    kwh_all_on: float
    kwh_not_emptied: float | None
    kwh_oracle: float
    cost: float | None
    co2_kg: float | None
    switched_off: int
    nodes: tuple[Share, ...] = ()
    users: tuple[Share, ...] = ()
    accounts: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A fact that the report cannot know, or an assumption.

    Attributes:
        code: one word, for programs.
        count: the number of jobs, nodes, ... that it concerns.
        sentence: for a person.
    """

    code: str
    count: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Head:
    """All of a document but its jobs, which may be too many to be held at once.

    Attributes:
        made: when the document was made.
        since, until: the jobs are those that were there in that time.
        selection: the selected users, accounts, partitions and jobs; an empty list: all.
        others: the schedules beside ``policy``.
        nodes: the nodes of the other schedules; empty where unknown.
        totals: ``all`` (one), and by each of GROUPS.
        costs: by kind of action: suspend, resume, migrate.
        energy: of ``policy``, and then of others as far as it is known; empty where no watts are known.
        losses: of the jobs of the document, in the order of time; a simulation loses nothing.
    """

    kind: Kind
    policy: str
    others: tuple[str, ...]
    made: float
    since: float
    until: float
    selection: dict[str, list[str]]
    nodes: tuple[Node, ...]
    totals: dict[str, tuple[Total, ...]]
    utilisation_step_s: float
    utilisation: tuple[Point, ...]
    switches: tuple[Switch, ...]
    costs: dict[str, Cost]
    notes: tuple[Note, ...] = field(default=())
    energy: tuple[Consumed, ...] = field(default=())
    losses: tuple[Loss, ...] = field(default=())
