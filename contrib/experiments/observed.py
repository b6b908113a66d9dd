"""Memory by observation on MetaCentrum's trace: what users request is real, what they use of it is assumed.

No trace at hand tells both: of HPC2N's jobs what was used is what was requested but for a few in a hundred, and
MetaCentrum's field says the same for all. So each kind of job (user and request) uses a share of its request that is
drawn at random, its jobs scatter about it, and the tables show how much depends on the range of these shares. Nodes
have so little memory that it is what is short.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import timeline
from experiments.bootstrap import mean_of
from experiments.simulated import simulated
from experiments.tables import table
from experiments.traces import SITES, Site, Window, slowdowns, spread, told
from rmsplugin.cli.simulate import trace_file
from rmsplugin.decision.unblocking import Prices
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.capacity import fitting
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

#: Memory of a node, MiB: an eighth of what MetaCentrum's have, so that it is what is short.
_NODE_MIB = 65_536

#: Ranges of the shares that kinds of jobs use of their requests.
_SHARES = ((0.1, 0.5), (0.5, 1.0))

#: The standard deviation of the logarithm of what a job uses, about what its kind does.
_SCATTER = 0.2

_POLICIES = ("load-sharing", "v-reconfiguration", "mixed", "slowdown")

#: Of each search for a plan.
_LIMIT = 0.05

_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--data", type=Path, default=_DATA, metavar="DIR", help="where the traces are, in swf/")
    parser.add_argument("--jobs", type=int, default=60, metavar="N", help="jobs of a window (default: 60)")
    parser.add_argument("--windows", type=int, default=3, metavar="N", help="windows of the trace (default: 3)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what jobs use (default: 0)")
    parser.add_argument("--policies", nargs="+", choices=_POLICIES, default=_POLICIES, help="only these")
    parser.add_argument("--node-mib", type=int, default=_NODE_MIB, metavar="MIB", help="memory of a node")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """A table: requested, then observed for each range of shares."""
    (metacentrum,) = (site for site in SITES if site.name == "MetaCentrum")
    site = replace(metacentrum, cluster=replace(metacentrum.cluster, memory_per_node_mib=arguments.node_mib))
    windows = _windows(site, arguments)
    rows = [_row(f"{policy}, requested", policy, site, windows, None) for policy in arguments.policies]
    memory = MemoryParameters(prices=Prices.from_values(DEFAULTS))
    for low, high in _SHARES:
        used = [
            Window(*(_using(jobs, low, high, arguments.seed) for jobs in (each.before, each.jobs))) for each in windows
        ]
        label = f"observed, {100 * low:.0f} to {100 * high:.0f} % used"
        rows += [_row(f"{policy}, {label}", policy, site, used, memory) for policy in arguments.policies]
    titles = ["", "VMs together", "bounded slowdown", "95 %", "suspends of a job", "migrations", "nodes reserved"]
    yield from table(titles, rows)


def _windows(site: Site, arguments: argparse.Namespace) -> list[Window]:
    """Windows of jobs that fit on the machine whether or not memory is observed."""
    path = arguments.data / "swf" / site.file
    workload = trace_file.read(str(path), memory_unit=site.memory_unit)
    most_mib = MemoryParameters().planned_mib(arguments.node_mib)
    fit = fitting(workload.jobs, site.cluster, Faults(), most_mib)
    jobs = [job._replace(average_cpu_s=None) for job in fit if job.run_s > 0]
    return spread(site, jobs, arguments.windows, arguments.jobs)


def _using(jobs: Sequence[Job], low: float, high: float, seed: int) -> list[Job]:
    """The jobs with what they use of their memory."""
    found = []
    for job in jobs:
        size_mib = job.memory_mib or 1
        share = random.Random(f"{seed} {job.user} {size_mib}").uniform(low, high)
        scatter = random.Random(f"{seed} {job.job_id}").lognormvariate(0, _SCATTER)
        found.append(job._replace(used_mib=max(1, min(size_mib, round(size_mib * share * scatter)))))
    return found


@dataclass(frozen=True)
class _Measured:
    """A window under a policy: its outcome, and the jobs that count."""

    window: Window
    outcome: Outcome

    @property
    def together(self) -> float:
        """How many VMs run at a time, on average between the first and the last submission."""
        changes: dict[float, int] = {}
        for each in self.outcome.jobs:
            for one in each.intervals:
                if one.state is VJobState.RUNNING:
                    changes[one.begin_s] = changes.get(one.begin_s, 0) + each.vms
                    changes[one.end_s] = changes.get(one.end_s, 0) - each.vms
        vms, steps = 0, []
        for time_s in sorted(changes):
            vms += changes[time_s]
            steps.append((time_s, float(vms)))
        return timeline.mean(steps, self.window.begin_s, self.window.end_s)


def _row(
    title: str, policy: str, site: Site, windows: Sequence[Window], memory: MemoryParameters | None
) -> list[object]:
    found = [
        _Measured(each, simulated([*each.before, *each.jobs], site.cluster, policy, limit=_LIMIT, memory=memory))
        for each in windows
    ]
    runs = [run for each in found for run in each.outcome.jobs]
    slow = [slowdowns(each.outcome.jobs[-len(each.window.jobs) :]) for each in found]
    together = sum(each.together for each in found) / len(found)
    reserved = sum(each.note.what == "reserved" for one in found for each in one.outcome.notes)
    return [
        title,
        f"{together:.0f}",
        *told(mean_of(slow)),
        f"{sum(run.suspends for run in runs) / len(runs):.2f}",
        sum(len(move.moves) for run in runs for move in run.moves),
        reserved,
    ]
