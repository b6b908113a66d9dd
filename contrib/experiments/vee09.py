"""VEE'09 section 5.3: ED, HC and VP in 35 VMs on 35 nodes: no consolidation, by FFD, and by the engine's planner."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import mean

from experiments import timeline
from experiments.simulated import simulated
from experiments.tables import bars, clock, fenced, minutes, table
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import Outcome, SwitchRun
from rmsplugin.workload.activity import Activity, Phase
from rmsplugin.workload.jobs import Job
from rmsplugin.workload.nas_grid import Benchmark, depth_of, nas_grid

#: 35 nodes of one core; of the 2 GB of each the Domain-0 has 200 MB.
CLUSTER = Cluster(nodes=35, cpus_per_node=1, memory_per_node_mib=2048 - 200)

#: Benchmark, VMs, MiB of each, and minutes that it takes by itself. HC: 24.31 node hours on 35 nodes; ED: 53.01 node
#: hours. VP is read off: with Entropy it ends at 70 min, HC at 50 and ED at 101.
BENCHMARKS = (
    (Benchmark.HC, 5, 764, 24.31 / 35 * 60),
    (Benchmark.ED, 10, 512, 53.01 / 35 * 60),
    (Benchmark.VP, 20, 512, 62.0),
)

#: The VMs are up and idle for so long before the benchmarks begin, so that they are packed by their memory at first.
IDLE_S = 1200.0

#: Entropy gathers what VMs use for about 5 s between two decisions.
CYCLE_S = 5.0

_COLUMNS = 100
_PAPER = {
    "node hours until HC ends": ("24.31", "15.34", "11.72"),
    "node hours until all end": ("53.01", "24.53", "23.21"),
    "HC ends (min)": ("41.7", "", "50"),
    "runtimes, longer by (%)": ("0", "19.2", "11.5"),
    "reconfigurations": ("0", "9", "18"),
    "their mean duration": ("-", "6 min 53 s", "1 min 47 s"),
    "VMs that share CPUs, mean": ("0", "1.75", "1.05"),
    "mean response time (s)": ("-", "248", "142"),
    "most nodes beside those before and after": ("-", "4", "1"),
}


@dataclass(frozen=True)
class Way:
    """One way to run it, with what became of it. Times are seconds from the beginning of the benchmarks."""

    outcome: Outcome
    idle_s: float

    @cached_property
    def begin_s(self) -> float:
        """When the benchmarks begin: all VMs were up, and idle for long enough."""
        return min(run.start_s for run in self.outcome.jobs) + self.idle_s

    def ends_s(self, number: int) -> float:
        """When a benchmark ends, by its place in ``BENCHMARKS``."""
        return self.outcome.jobs[number].end_s - self.begin_s

    @property
    def all_end_s(self) -> float:
        """When the last one ends."""
        return max(self.ends_s(number) for number in range(len(BENCHMARKS)))

    @property
    def longer(self) -> float:
        """By what part the benchmarks take longer than by themselves, all together."""
        alone_s = sum(run.job.run_s - self.idle_s for run in self.outcome.jobs)
        return sum(self.ends_s(number) for number in range(len(BENCHMARKS))) / alone_s - 1

    @property
    def switches(self) -> list[SwitchRun]:
        """Reconfigurations since the benchmarks began, before the last one ended."""
        end_s = self.begin_s + self.all_end_s
        return [each for each in self.outcome.switches if self.begin_s < each.begin_s < end_s and each.actions]

    def mean(self, steps: list[timeline.Step], until_s: float) -> float:
        """The mean from the beginning of the benchmarks on."""
        return timeline.mean(steps, self.begin_s, self.begin_s + until_s)

    @property
    def responses_s(self) -> list[float]:
        """The time from when VMs begin to share CPUs until none does, each time."""
        steps = timeline.crowded_vms(self.outcome)
        return timeline.above_nothing(steps, self.begin_s, self.begin_s + self.all_end_s)

    @property
    def most_pivots(self) -> float:
        """The most nodes that a reconfiguration has beyond those that hold VMs before it, or after it."""
        steps = timeline.nodes_used(self.outcome)
        return max((timeline.beyond_both_ends(steps, each.begin_s, each.end_s) for each in self.switches), default=0.0)

    def node_hours(self, until_s: float) -> float:
        """Node hours from the beginning of the benchmarks on."""
        return self.mean(timeline.nodes_used(self.outcome), until_s) * until_s / 3600


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--quick", action="store_true", help="benchmarks 10 times as short")
    parser.add_argument(
        "--cycle", type=float, default=CYCLE_S, metavar="S", help=f"time between two decisions (default: {CYCLE_S:g})"
    )
    parser.add_argument("--diagrams", action="store_true", help="draw the nodes used over time too")
    parser.add_argument(
        "--limit", type=float, default=2.0, metavar="L", help="of each search, about seconds (default: 2)"
    )


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """All tables."""
    ways = ways_of(0.1 if arguments.quick else 1.0, arguments.limit, arguments.cycle)
    yield from _totals(ways)
    del ways["ours, slowdown"]  # under it nobody makes way: all find room
    yield ""
    yield from _reconfigurations(ways)
    if arguments.diagrams:
        yield ""
        yield from _diagram(ways)


def ways_of(scale: float, limit: float, cycle_s: float) -> dict[str, Way]:
    """Without consolidation, with it by First Fit Decreasing and by the planner, and so under slowdown, too."""
    activity: dict[int, Activity] = {}
    jobs = []
    for number, (kind, vms, memory_mib, long_min) in enumerate(BENCHMARKS, 1):
        task_s = scale * long_min * 60 / depth_of(kind, vms)
        activity[number] = (Phase(IDLE_S, (0.0,) * vms), *nas_grid(kind, vms, task_s))
        run_s = sum(phase.work_s for phase in activity[number])
        jobs.append(Job(number, 0.0, run_s, vms, run_s, memory_mib, number))
    static = simulated(jobs, CLUSTER, "fcfs", activity=activity)
    ways = {"static": Way(static, IDLE_S)}
    for name, policy in (("FFD", "rjsp"), ("ours", "rjsp"), ("ours, slowdown", "slowdown")):
        outcome = simulated(
            jobs,
            CLUSTER,
            policy,
            activity=activity,
            cycle_s=cycle_s,
            objective="nodes",
            heuristic="ffd" if name == "FFD" else None,
            limit=limit,
        )
        ways[name] = Way(outcome, IDLE_S)
    return ways


def _totals(ways: dict[str, Way]) -> Iterator[str]:
    measures: dict[str, Callable[[Way], object]] = {
        "node hours until HC ends": lambda way: f"{way.node_hours(way.ends_s(0)):.2f}",
        "nodes until HC ends, mean": lambda way: f"{way.mean(timeline.nodes_used(way.outcome), way.ends_s(0)):.1f}",
        "node hours until all end": lambda way: f"{way.node_hours(way.all_end_s):.2f}",
        "HC ends (min)": lambda way: minutes(way.ends_s(0)),
        "ED ends (min)": lambda way: minutes(way.ends_s(1)),
        "VP ends (min)": lambda way: minutes(way.ends_s(2)),
        "runtimes, longer by (%)": lambda way: f"{100 * way.longer:.1f}",
        "reconfigurations": lambda way: len(way.switches),
        "their mean duration": lambda way: clock(mean(_took(way))) if way.switches else "-",
        "their mean cost (MiB)": lambda way: (
            f"{mean(each.cost_mib for each in way.switches):.0f}" if way.switches else "-"
        ),
        "migrations": lambda way: sum(each.actions.get("migrate", 0) for each in way.switches),
        "mean response time (s)": lambda way: f"{mean(way.responses_s):.0f}" if way.responses_s else "-",
        "most nodes beside those before and after": lambda way: f"{way.most_pivots:g}" if way.switches else "-",
        "VMs that share CPUs, mean": lambda way: f"{way.mean(timeline.crowded_vms(way.outcome), way.all_end_s):.2f}",
    }
    rows = [
        [name, *_PAPER.get(name, ("", "", "")), *(measure(way) for way in ways.values())]
        for name, measure in measures.items()
    ]
    yield from table(["", "paper, static", "paper, FFD", "paper, Entropy", *ways], rows)


def _mean_cost(way: Way) -> str:
    return f"{mean(each.cost_mib for each in way.switches):.0f}" if way.switches else "-"


def _took(way: Way) -> list[float]:
    return [each.end_s - each.begin_s for each in way.switches]


def _reconfigurations(ways: dict[str, Way]) -> Iterator[str]:
    """Fig. 14: cost and duration of each reconfiguration."""
    rows = [
        [
            name,
            minutes(each.begin_s - way.begin_s),
            each.cost_mib,
            each.actions.get("migrate", 0),
            round(each.end_s - each.begin_s),
        ]
        for name, way in ways.items()
        for each in way.switches
    ]
    yield from table(["by", "at (min)", "cost (MiB)", "migrations", "took (s)"], rows)


def _diagram(ways: dict[str, Way]) -> Iterator[str]:
    """Fig. 15 and 16, on one scale of time."""
    end_s = max(way.all_end_s for way in ways.values())
    lines = [f"{minutes(end_s)} min from left to right"]
    for name, way in ways.items():
        span = (way.begin_s, way.begin_s + end_s, _COLUMNS)
        nodes = bars(timeline.means(timeline.nodes_used(way.outcome), *span), CLUSTER.nodes)
        crowded = bars(timeline.means(timeline.crowded_vms(way.outcome), *span), 16)
        lines.append(f"{name:6} nodes used          |{nodes}| of {CLUSTER.nodes}")
        lines.append(f"{name:6} VMs that share CPUs |{crowded}| of 16")
    yield from fenced(lines)
