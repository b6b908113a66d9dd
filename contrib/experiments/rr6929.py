"""RR-6929 section 5.2: 8 vjobs of 9 VMs, submitted together, on 11 nodes of 2 cores: FCFS against context switches."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from experiments import timeline
from experiments.simulated import simulated
from experiments.tables import bars, fenced, minutes, table
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import Outcome, SwitchRun
from rmsplugin.workload.activity import Activity, cpu_s
from rmsplugin.workload.jobs import Job
from rmsplugin.workload.nas_grid import Benchmark, nas_grid

#: 11 nodes of 2 cores; of the 4 GB of each the Domain-0 has 512 MB.
CLUSTER = Cluster(nodes=11, cpus_per_node=2, memory_per_node_mib=4096 - 512)
VMS = 9

#: Which benchmark a vjob runs and the memory of its VMs, in queue order. The paper says that they are "composed of
#: NASGrid tasks", and that VMs have 512 to 2048 MB; the rest is ours.
QUEUE = (
    (Benchmark.ED, 512),
    (Benchmark.HC, 1024),
    (Benchmark.VP, 512),
    (Benchmark.MB, 2048),
    (Benchmark.ED, 512),
    (Benchmark.HC, 1024),
    (Benchmark.VP, 512),
    (Benchmark.MB, 512),
)

#: How long a task takes: with it FCFS takes the paper's 250 minutes. No other number is fitted.
TASK_S = 745.0

#: The time between two decisions (RR-6929, 3.1), and what a VM demands that does not compute (its French version, 5.2).
CYCLE_S, IDLE_CPUS = 30.0, 0.05

POLICIES = ("fcfs", "rjsp", "rjsp-exact", "mixed", "slowdown")
_COLUMNS = 100

_PAPER = {
    "total completion (min)": ("250", "150"),
    "local resumes": ("-", "21 of 28"),
    "context switches": ("-", "19"),
    "their mean duration (s)": ("-", "70"),
    "most CPUs demanded at a time": ("", "29"),
}


@dataclass(frozen=True)
class Queue:
    """The vjobs of one run: jobs, and what their VMs do."""

    jobs: Sequence[Job]
    activity: dict[int, Activity]

    @classmethod
    def of(cls, kinds: Sequence[tuple[Benchmark, int]], task_s: float, idle_cpus: float = IDLE_CPUS) -> Queue:
        """One vjob for each benchmark and memory (MiB of a VM), submitted together in this order."""
        activity = {number: nas_grid(kind, VMS, task_s, idle_cpus) for number, (kind, _) in enumerate(kinds, 1)}
        jobs = []
        for number, (_, memory_mib) in enumerate(kinds, 1):
            run_s = sum(phase.work_s for phase in activity[number])
            jobs.append(Job(number, 0.0, run_s, VMS, run_s, memory_mib, number))
        return cls(jobs, activity)

    def with_busy(self, cpus: float) -> Queue:
        """The same; VMs that compute demand so much, and take as long."""
        activity = {
            number: tuple(
                phase._replace(cpus=tuple(cpus if each == 1.0 else each for each in phase.cpus)) for phase in phases
            )
            for number, phases in self.activity.items()
        }
        return replace(self, activity=activity)

    def under(self, policy: str, cycle_s: float = CYCLE_S, *, cpu_in_plan: bool = False) -> Outcome:
        """What becomes of them."""
        return simulated(self.jobs, CLUSTER, policy, activity=self.activity, cycle_s=cycle_s, cpu_in_plan=cpu_in_plan)

    @property
    def shortest_s(self) -> float:
        """No schedule takes less: all CPUs busy, or the longest vjob alone."""
        work_s = sum(cpu_s(self.activity[job.job_id], VMS) for job in self.jobs)
        return max(work_s / CLUSTER.cpus, max(job.run_s for job in self.jobs))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--quick", action="store_true", help="tasks of a minute, and no other queues")
    parser.add_argument("--queues", type=int, default=20, metavar="N", help="queues in other orders (default: 20)")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DIR",
        help="write the queue to DIR, for `rmsplugin simulate`, and do nothing else",
    )
    parser.add_argument(
        "--cycle", type=float, default=CYCLE_S, metavar="S", help=f"time between two decisions (default: {CYCLE_S:g})"
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=IDLE_CPUS,
        metavar="CPUS",
        help=f"what a VM demands that does not compute (default: {IDLE_CPUS:g})",
    )
    parser.add_argument("--diagrams", action="store_true", help="draw allocation diagrams and utilisation too")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """All tables."""
    queue = Queue.of(QUEUE, 60.0 if arguments.quick else TASK_S, arguments.idle)
    if arguments.write:
        yield from _write(queue, arguments.write)
        return
    outcomes = {policy: queue.under(policy, arguments.cycle) for policy in POLICIES}
    yield from _totals(queue, outcomes)
    yield ""
    if not arguments.quick:
        yield from _otherwise()
        yield ""
        yield from _cpus_at_each_step(queue)
        yield ""
    yield from _switches(outcomes["rjsp"])
    if arguments.diagrams:
        yield ""
        yield from _diagrams(queue, outcomes)
    if not arguments.quick and arguments.queues:
        yield ""
        yield from _other_queues(arguments)


def _write(queue: Queue, directory: Path) -> Iterator[str]:
    """The trace (SWF), and the activity of its jobs."""
    directory.mkdir(parents=True, exist_ok=True)
    trace, doing = directory / "rr6929.swf", directory / "rr6929.json"
    lines = ["; Version: 2.2", "; Note: RR-6929 section 5.2, NAS Grid Benchmarks"]
    for job in queue.jobs:
        run_s, memory_kib = math.ceil(job.run_s), (job.memory_mib or 0) * 1024
        fields = (job.job_id, 0, -1, run_s, VMS, -1, -1, VMS, run_s, memory_kib, 1, *[-1] * 7)
        lines.append(" ".join(map(str, fields)))
    trace.write_text("\n".join([*lines, ""]))
    jobs = {
        job_id: [{"seconds": phase.work_s, "cpus": list(phase.cpus)} for phase in phases]
        for job_id, phases in queue.activity.items()
    }
    doing.write_text(json.dumps({"jobs": jobs}) + "\n")
    yield (
        f"rmsplugin compare --workload {trace} --activity {doing} --nodes {CLUSTER.nodes} --cpus-per-node "
        f"{CLUSTER.cpus_per_node} --memory-per-node {CLUSTER.memory_per_node_mib} --cycle {CYCLE_S:g} "
        f"--policies {','.join(POLICIES)}"
    )


def total_s(outcome: Outcome) -> float:
    """From the submission to the end of the last vjob."""
    return max(run.end_s for run in outcome.jobs)


def _totals(queue: Queue, outcomes: dict[str, Outcome]) -> Iterator[str]:
    half_hour = 1800.0
    measures: dict[str, Callable[[Outcome], str]] = {
        "total completion (min)": lambda each: minutes(total_s(each)),
        "mean completion of a vjob (min)": lambda each: minutes(mean(run.end_s for run in each.jobs)),
        "least possible total (min)": lambda _: minutes(queue.shortest_s),
        "CPUs used, whole run (of 22)": lambda each: _used(each, total_s(each)),
        "CPUs used, first 30 min": lambda each: _used(each, half_hour),
        "most CPUs demanded at a time": lambda each: f"{max(use.demanded_cpus for use in each.usage):g}",
        "VMs that share CPUs, mean": lambda each: f"{timeline.mean(timeline.crowded_vms(each), 0, total_s(each)):.2f}",
        "context switches": lambda each: str(len(each.switches)),
        "their mean duration (s)": _mean_took,
        "suspends of VMs": lambda each: str(each.actions()["suspend"]),
        "local resumes": _local_resumes,
        "migrations": lambda each: str(each.actions()["migrate"]),
    }
    rows = [
        [name, *_PAPER.get(name, ("", "")), *(measure(each) for each in outcomes.values())]
        for name, measure in measures.items()
    ]
    yield from table(["", "paper, FCFS", "paper, switches", *(f"ours, {policy}" for policy in outcomes)], rows)


def _otherwise() -> Iterator[str]:
    """The same queue with other periods, other demands of VMs that do not compute, and VMs that compute with less."""
    rows = []
    for cycle_s in (10.0, CYCLE_S):
        for idle_cpus, busy_cpus in ((0.0, 1.0), (IDLE_CPUS, 1.0), (IDLE_CPUS, 0.9)):
            queue = Queue.of(QUEUE, TASK_S, idle_cpus).with_busy(busy_cpus)
            cells: list[object] = []
            for policy in ("rjsp", "mixed", "slowdown"):
                outcome = queue.under(policy, cycle_s)
                cells += [minutes(total_s(outcome)), outcome.actions()["suspend"]]
            rows.append([f"{cycle_s:g} s, {100 * idle_cpus:g} % and {100 * busy_cpus:g} %", *cells])
    titles = [title for policy in ("rjsp", "mixed", "slowdown") for title in (f"{policy} (min)", "suspends")]
    yield from table(["period, idle and computing VMs", *titles], rows)


def _cpus_at_each_step(queue: Queue) -> Iterator[str]:
    """The queue where CPUs count at a plan's end only, and where VMs come only to CPUs that are free (RR-6929, 4.1)."""
    rows = []
    for cycle_s in (10.0, CYCLE_S):
        for policy in ("rjsp", "mixed", "slowdown"):
            both = [queue.under(policy, cycle_s, cpu_in_plan=at_each_step) for at_each_step in (False, True)]
            cells: list[object] = []
            for outcome in both:
                cells += [minutes(total_s(outcome)), len(outcome.switches), _mean_took(outcome)]
            rows.append([f"{policy}, {cycle_s:g} s", *cells])
    titles = ("min", "switches", "s each")
    kinds = ("in the end", "at each step")
    yield from table(["CPUs count", *(f"{kind}: {title}" for kind in kinds for title in titles)], rows)


def _used(outcome: Outcome, until_s: float) -> str:
    return f"{timeline.mean(timeline.used_cpus(outcome), 0.0, until_s):.1f}"


def _local_resumes(outcome: Outcome) -> str:
    actions = outcome.actions()
    resumes = actions["resume"] + actions["remote_resume"]
    return f"{actions['resume']} of {resumes}" if resumes else "-"


def _switches(outcome: Outcome) -> Iterator[str]:
    """Fig. 11: cost and duration of each context switch."""
    kinds = ("run", "migrate", "suspend", "resume", "remote_resume")
    rows = [
        [
            number,
            minutes(each.begin_s),
            each.cost_mib,
            f"{each.end_s - each.begin_s:.0f}",
            f"{each.expected_s:.0f}",
            *(each.actions.get(kind, 0) for kind in kinds),
        ]
        for number, each in enumerate(outcome.switches, 1)
    ]
    titles = ["switch", "at (min)", "cost (MiB)", "took (s)", "expected (s)", "run", "migrate", "suspend"]
    yield from table([*titles, "resume, local", "resume, remote"], rows)
    free = [took(each) for each in outcome.switches if not each.cost_mib]
    costly = [took(each) for each in outcome.switches if each.cost_mib]
    if free and costly:
        yield ""
        yield f"Those of no cost took {max(free):.0f} s at most; the others {min(costly):.0f} to {max(costly):.0f} s."


def took(switch: SwitchRun) -> float:
    """Seconds that a context switch took."""
    return switch.end_s - switch.begin_s


def _mean_took(outcome: Outcome) -> str:
    return f"{mean(took(switch) for switch in outcome.switches):.0f}"


def _diagrams(queue: Queue, outcomes: dict[str, Outcome]) -> Iterator[str]:
    """Fig. 12 and 13, on one scale of time."""
    end_s = max(total_s(each) for each in outcomes.values()) + 60
    names = [f"{kind.value} {memory_mib:4} MiB" for kind, memory_mib in QUEUE]
    lines = [f"{timeline.LEGEND}; {minutes(end_s)} min from left to right"]
    for policy in ("fcfs", "rjsp"):
        lines.append("")
        lines.append(policy)
        rows = timeline.diagram(outcomes[policy], end_s, _COLUMNS)
        lines += [f"{name:12} |{row}|" for name, row in zip(names, rows, strict=True)]
        used = timeline.means(timeline.used_cpus(outcomes[policy]), 0.0, end_s, _COLUMNS)
        lines.append(f"{'CPUs used':12} |{bars(used, CLUSTER.cpus)}| of {CLUSTER.cpus}")
    yield from fenced(lines)


def _other_queues(arguments: argparse.Namespace) -> Iterator[str]:
    """The same vjobs in other orders, with their memory sizes dealt anew: is the result one of this queue alone?"""
    shuffle = random.Random(6929).sample
    saved: dict[str, list[float]] = {"rjsp": [], "mixed": [], "slowdown": []}
    local = resumes = 0
    totals_s = []
    for _ in range(arguments.queues):
        kinds = shuffle([kind for kind, _ in QUEUE], len(QUEUE))
        sizes = shuffle([memory_mib for _, memory_mib in QUEUE], len(QUEUE))
        queue = Queue.of(list(zip(kinds, sizes, strict=True)), TASK_S, arguments.idle)
        fcfs_s = total_s(queue.under("fcfs", arguments.cycle))
        totals_s.append(fcfs_s)
        for policy, parts in saved.items():
            outcome = queue.under(policy, arguments.cycle)
            parts.append(100 * (1 - total_s(outcome) / fcfs_s))
            if policy == "rjsp":
                local += outcome.actions()["resume"]
                resumes += outcome.actions()["resume"] + outcome.actions()["remote_resume"]
    yield f"The same vjobs in {arguments.queues} random orders, with their sizes dealt anew:"
    yield ""
    rows = [["FCFS: total completion (min)", *(minutes(value) for value in _spread(totals_s))]]
    rows += [
        [f"{policy}: shorter by (%)", *(f"{value:.0f}" for value in _spread(parts))] for policy, parts in saved.items()
    ]
    yield from table(["", "least", "mean", "most"], rows)
    yield ""
    yield f"Of all {resumes} resumes of VMs under rjsp {local} were local."


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), mean(values), max(values)
