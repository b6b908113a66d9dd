"""Where the papers stop: workload traces under every policy, EASY with wrong and with good time limits.

Policies are replayed on windows of consecutive jobs, evenly spread over each trace. A window begins with the jobs that
run or wait at its first submission if EASY schedules the whole trace; they are not measured. Nor is the time after the
last submission, when the cluster empties, as far as its utilisation goes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from experiments import timeline
from experiments.bootstrap import Mean, mean_of
from experiments.simulated import FREE, simulated
from experiments.tables import table
from rmsplugin.cli.simulate import trace_file
from rmsplugin.errors import WorkloadError
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.metrics import SLOWDOWN_THRESHOLD_S, Metrics, measure
from rmsplugin.simulation.outcome import JobRun, Outcome
from rmsplugin.simulation.short_way import start_times
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job, MemoryUnit

#: Memory of a VM of one CPU, and of its share of a node, where the trace has none: it is never what is short.
MEMORY_MIB = 1024

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

#: Of each search for a plan: there are thousands.
_LIMIT = 0.05

POLICIES = (
    "fcfs",
    "easy",
    "easy, good limits",
    "conservative",
    "easy-preempt",
    "rjsp",
    "rjsp-exact",
    "mixed",
    "slowdown",
)
_BASE = "easy"


@dataclass(frozen=True)
class Site:
    """A trace and its machine."""

    name: str
    file: str
    cluster: Cluster
    memory_unit: MemoryUnit = MemoryUnit.KIB_PER_PROCESSOR

    def starts(self, jobs: Sequence[Job], *, backfill: bool) -> Sequence[float]:
        """When each job starts if VMs are only counted, whatever their memory, and nothing takes time but the jobs."""
        counted = [job._replace(processors=self.cluster.vms_of(job)) for job in jobs]
        return start_times(counted, self.cluster.room_for(0, self.cluster.cpus_per_vm), backfill=backfill)


@dataclass(frozen=True)
class Window:
    """Consecutive jobs of a trace, behind those that run or wait when the first of them is submitted."""

    before: Sequence[Job]
    jobs: Sequence[Job]

    @property
    def begin_s(self) -> float:
        """The first submission."""
        return self.jobs[0].submit_s

    @property
    def end_s(self) -> float:
        """The last submission."""
        return self.jobs[-1].submit_s


def _alike(nodes: int, cpus: int) -> Cluster:
    return Cluster(nodes, cpus, memory_per_node_mib=MEMORY_MIB * cpus, memory_per_vm_mib=MEMORY_MIB)


SITES = (
    Site("KTH SP2", "kth_sp2_full.swf.gz", _alike(100, 1)),
    Site("SDSC SP2", "sdsc_sp2_5k.swf", _alike(128, 1)),
    Site("CTC SP2", "ctc_sp2_full.swf.gz", _alike(338, 1)),
    Site("Lublin 256", "lublin256_5k_fmodel.swf", _alike(256, 1)),
    Site("HPC2N", "hpc2n_full.swf.gz", _alike(120, 2)),
    # Whole nodes are allocated there.
    Site("SDSC Blue", "sdsc_blue_full.swf.gz", Cluster(144, 8, 8 * MEMORY_MIB, 8 * MEMORY_MIB, cpus_per_vm=8)),
    # 20 nodes of 80 cores and 12 of 48: as many nodes of the larger kind as have their cores.
    Site("MetaCentrum", "metacentrum-wagap-2013.swf.gz", Cluster(27, 80, 517_018), MemoryUnit.BYTES_PER_JOB),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where the traces are, in swf/")
    parser.add_argument("--quick", action="store_true", help="one window of 60 jobs of each trace, and no whole traces")
    parser.add_argument("--jobs", type=int, default=200, metavar="N", help="jobs of a window (default: 200)")
    parser.add_argument("--windows", type=int, default=3, metavar="N", help="windows of each trace (default: 3)")
    parser.add_argument("--sites", nargs="+", metavar="NAME", choices=[site.name for site in SITES], help="only these")
    parser.add_argument(
        "--policies", nargs="+", metavar="NAME", choices=POLICIES, default=POLICIES, help=f"only these, and {_BASE}"
    )
    parser.add_argument(
        "--free", action="store_true", help="context switches take no time: tells their part in the results"
    )
    parser.add_argument("--whole", action="store_true", help="fcfs and easy on the whole traces, and nothing else")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """All tables."""
    sites = [site for site in SITES if arguments.sites is None or site.name in arguments.sites]
    if arguments.whole:
        yield from _whole(sites, arguments.data)
        return
    windows, size = (1, 60) if arguments.quick else (arguments.windows, arguments.jobs)
    gains = []
    for site in sites:
        jobs = jobs_of(site, arguments.data)
        policies = [policy for policy in POLICIES if policy in (_BASE, *arguments.policies)]
        found = Compared.of(site, spread(site, jobs, windows, size), policies, free=arguments.free)
        yield f"### {site.name}"
        yield ""
        yield found.about()
        yield ""
        yield from found.table()
        yield ""
        gains += found.gains()
    yield "### Which sites gain"
    yield ""
    titles = ["site, policy", "completion, h", "95 %", "in %", "bounded slowdown", "95 %", "jobs sooner", "later"]
    yield from table(titles, gains)


def jobs_of(site: Site, data: Path) -> list[Job]:
    """The jobs of a trace that fit on the machine.

    Raises:
        WorkloadError: the trace cannot be read.
    """
    path = data / "swf" / site.file
    workload = trace_file.read(str(path), memory_unit=site.memory_unit)
    jobs = [job for job in fitting(workload.jobs, site.cluster, Faults()) if job.run_s > 0]
    if site.memory_unit is MemoryUnit.BYTES_PER_JOB:  # that trace has 1 where others have the CPU time that was used
        jobs = [job._replace(average_cpu_s=None) for job in jobs]
    if not jobs:
        raise WorkloadError(f"{path}: has no job that fits on the machine")
    return jobs


def spread(site: Site, jobs: Sequence[Job], windows: int, size: int) -> list[Window]:
    """Windows of so many jobs: in the middle of each of so many equal parts of a trace."""
    size = min(size, len(jobs) // windows)
    part = len(jobs) // windows
    starts = site.starts(jobs, backfill=True)
    begins = [number * part + (part - size) // 2 for number in range(windows)]
    return [Window(_before(jobs[:begin], starts, jobs[begin].submit_s), jobs[begin : begin + size]) for begin in begins]


def _before(jobs: Sequence[Job], starts: Sequence[float], now: float) -> list[Job]:
    """What is left of the jobs that have not ended by a time: first those that run, then those that wait."""
    runs, waits = [], []
    for job, start_s in zip(jobs, starts, strict=False):
        if start_s >= now:
            waits.append(job._replace(submit_s=now))
        elif (left_s := start_s + job.run_s - now) > 0:
            limit_s = max(left_s, start_s + job.estimate_s - now)
            runs.append(job._replace(submit_s=now, run_s=left_s, estimate_s=limit_s))
    return runs + waits


@dataclass(frozen=True)
class Compared:
    """Windows of one trace under all policies: for each policy the outcomes of its windows."""

    site: Site
    windows: Sequence[Window]
    outcomes: dict[str, list[Outcome]]

    @classmethod
    def of(cls, site: Site, windows: Sequence[Window], policies: Sequence[str], *, free: bool) -> Compared:
        """Replay all."""
        return cls(
            site, windows, {policy: [_under(policy, each, site, free) for each in windows] for policy in policies}
        )

    def about(self) -> str:
        """What is replayed, and what the trace is like."""
        jobs = [job for window in self.windows for job in window.jobs]
        wrong = median(job.estimate_s / job.run_s for job in jobs)
        loads = ", ".join(f"{_load(window.jobs, self.site.cluster):.2f}" for window in self.windows)
        before = ", ".join(str(len(window.before)) for window in self.windows)
        return (
            f"{len(jobs)} jobs in {len(self.windows)} windows, with offered loads of {loads}, behind {before} jobs "
            f"that run or wait already. Half of the time limits are more than {wrong:.1f} times the run time; half of "
            "the jobs run for more than "
            f"{median(job.run_s for job in jobs) / 60:.1f} min, and have more than "
            f"{median(job.processors for job in jobs):g} processors."
        )

    def table(self) -> Iterator[str]:
        """A row for each policy."""
        titles = ["", "wait, h", "95 %", "p95", "completion, h", "95 %", "bounded slowdown", "95 %", "utilisation"]
        yield from table([*titles, "suspends of a job"], [self._row(policy) for policy in self.outcomes])

    def _row(self, policy: str) -> list[object]:
        outcomes = self.outcomes[policy]
        wait, completion = ([_hours(each, kind) for each in self._measured(policy)] for kind in ("wait", "completion"))
        slow = [slowdowns(each) for each in self._measured(policy)]
        jobs = sum(len(each) for each in slow)
        suspends = sum(run.suspends for runs in self._measured(policy) for run in runs)
        used = sum(_used_cpu_s(outcome, each) for outcome, each in zip(outcomes, self.windows, strict=True))
        used /= self.site.cluster.cpus * sum(each.end_s - each.begin_s for each in self.windows)
        p95 = np.percentile(np.concatenate(wait), 95)
        return [
            policy,
            *told(mean_of(wait)),
            f"{p95:.2f}",
            *told(mean_of(completion)),
            *told(mean_of(slow)),
            f"{100 * used:.1f} %",
            f"{suspends / jobs:.2f}",
        ]

    def _measured(self, policy: str) -> list[Sequence[JobRun]]:
        """The jobs of each window itself."""
        return [
            outcome.jobs[-len(each.jobs) :] for outcome, each in zip(self.outcomes[policy], self.windows, strict=True)
        ]

    def gains(self) -> list[list[object]]:
        """Each policy beside EASY with wrong limits, job by job: below 0 is sooner."""
        rows: list[list[object]] = []
        base = self._measured(_BASE)
        for policy in self.outcomes:
            if policy in (_BASE, "fcfs"):
                continue
            pairs = list(zip(self._measured(policy), base, strict=True))
            hours = [_hours(one, "completion") - _hours(other, "completion") for one, other in pairs]
            slow = [slowdowns(one) - slowdowns(other) for one, other in pairs]
            part = np.concatenate(hours).sum() / sum(_hours(each, "completion").sum() for each in base)
            all_hours = np.concatenate(hours)
            rows.append(
                [
                    f"{self.site.name}, {policy}",
                    *told(mean_of(hours)),
                    f"{100 * part:+.0f}",
                    *told(mean_of(slow)),
                    f"{100 * np.mean(all_hours < -_SAME_H):.0f} %",
                    f"{100 * np.mean(all_hours > _SAME_H):.0f} %",
                ]
            )
        return rows


#: Two cycles: a job that ends by less sooner or later ends at the same time.
_SAME_H = 60 / 3600


def _under(policy: str, window: Window, site: Site, free: bool) -> Outcome:
    """A policy on one window; good limits are the run times."""
    name, _, limits = policy.partition(", ")
    jobs = [*window.before, *window.jobs]
    if limits:
        jobs = [job._replace(estimate_s=job.run_s) for job in jobs]
    return simulated(jobs, site.cluster, name, limit=_LIMIT, durations=FREE if free else DEFAULTS)


def _used_cpu_s(outcome: Outcome, window: Window) -> float:
    """CPU seconds between the first and the last submission."""
    return timeline.mean(timeline.used_cpus(outcome), window.begin_s, window.end_s) * (window.end_s - window.begin_s)


def _hours(runs: Sequence[JobRun], kind: str) -> NDArray[np.float64]:
    """Of each job: how long it waited for its start, or took from its submission to its end."""
    return np.array([(_end(run, kind) - run.job.submit_s) / 3600 for run in runs])


def _end(run: JobRun, kind: str) -> float:
    return run.start_s if kind == "wait" else run.end_s


def slowdowns(runs: Sequence[JobRun]) -> NDArray[np.float64]:
    """The bounded slowdown of each job."""
    took_s = np.array([run.end_s - run.job.submit_s for run in runs])
    return slowdowns_of(took_s, [run.job.run_s for run in runs])


def slowdowns_of(took_s: NDArray[np.float64], runs_s: Sequence[float]) -> NDArray[np.float64]:
    """The same of jobs that took, and run for, so long."""
    return np.maximum(took_s / np.maximum(runs_s, SLOWDOWN_THRESHOLD_S), 1.0)


def _load(jobs: Sequence[Job], cluster: Cluster) -> float:
    """The CPU time that is asked for to what there is between the first and the last submission."""
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    return sum(job.run_s * job.processors for job in jobs) / (span_s * cluster.cpus) if span_s else float("inf")


def told(found: Mean) -> tuple[str, str]:
    """A mean and its interval, as two cells of a table."""
    return f"{found.value:.2f}", f"{found.low:.2f} to {found.high:.2f}"


def _whole(sites: Sequence[Site], data: Path) -> Iterator[str]:
    """FCFS and EASY on the whole traces, over counted processors: nothing boots, and nothing is switched."""
    rows = []
    for site in sites:
        jobs = jobs_of(site, data)
        good = [job._replace(estimate_s=job.run_s) for job in jobs]
        for policy, each in (("fcfs", jobs), ("easy", jobs), ("easy, good limits", good)):
            starts = site.starts(each, backfill=policy != "fcfs")
            found = measure(each, starts, site.cluster.cpus)
            rows.append([f"{site.name}, {policy}", len(jobs), *_whole_row(found, each, starts)])
    titles = ["", "jobs", "wait, h", "95 %", "p95", "completion, h", "bounded slowdown", "utilisation"]
    yield from table(titles, rows)


def _whole_row(found: Metrics, jobs: Sequence[Job], starts: Sequence[float]) -> list[object]:
    waits = [[(start_s - job.submit_s) / 3600 for job, start_s in zip(jobs, starts, strict=True)]]
    return [
        *told(mean_of(waits)),
        f"{found.wait_s.p95 / 3600:.2f}",
        f"{found.completion_s.mean / 3600:.2f}",
        f"{found.bounded_slowdown.mean:.1f}",
        f"{100 * found.utilisation:.1f} %",
    ]
