"""What switching idle nodes off saves: the beginnings of workload traces, with arrivals for loads of 0.3 to 0.9.

The watts are an assumption: those of a common server. The threshold is equation 8 of RR-7398, the prediction its
equation 9 behind what is known of the queue.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.simulated import FREE, simulated, switches_of
from experiments.slowdown import counted
from experiments.tables import table
from experiments.traces import DATA, SITES, Site, jobs_of
from rmsplugin.energy.account import saved_share
from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.powered import account_of
from rmsplugin.workload.jobs import Job

POWER = PowerClass(idle_w=120.0, busy_w=300.0, off_w=8.0, transition_w=150.0, off_s=30.0, on_s=120.0)

LOADS = (0.3, 0.5, 0.7, 0.9)
_NAMES = tuple(site.name for site in SITES)

_TITLES = (
    "",
    "all on, kWh",
    "switched, kWh",
    "oracle, kWh",
    "of the oracle's",
    "cycles a node and day",
    "emptied",
    "late, s",
    "completion",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where the traces are, in swf/")
    parser.add_argument("--jobs", type=int, default=400, metavar="N", help="jobs of each trace (default: 400)")
    parser.add_argument("--sites", nargs="+", metavar="NAME", choices=_NAMES, default=_NAMES, help="only these")
    parser.add_argument("--policies", nargs="+", metavar="NAME", default=["easy", "slowdown"], help="only these")
    parser.add_argument("--reserve", type=float, default=0.0, metavar="R", help="this part of the nodes stays on idle")
    parser.add_argument(
        "--late-at-most", type=float, metavar="S", help="nodes stay on where vjobs are later by this share"
    )
    parser.add_argument("--underload", type=float, metavar="U", help="empty nodes of which at most this part is used")
    parser.add_argument(
        "--join", type=int, default=1, metavar="N", help="make one node of N, so that it has N times as much"
    )
    parser.add_argument("--loads", nargs="+", type=float, metavar="L", default=LOADS, help="only these")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """The table."""
    yield from table(_TITLES, _rows(arguments))


def _rows(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    for named in SITES:
        if named.name not in arguments.sites:
            continue
        site, jobs = counted(named, jobs_of(named, arguments.data)[: arguments.jobs])
        site = replace(site, cluster=joined(site.cluster, arguments.join))
        for policy in arguments.policies:
            for load in arguments.loads:
                found = _measured(site, at_load(site, jobs, load), policy, arguments)
                yield [f"{site.name}, {policy}, {load:g}", *found]


def joined(cluster: Cluster, nodes: int) -> Cluster:
    """One node in place of so many."""
    return replace(
        cluster,
        nodes=cluster.nodes // nodes,
        cpus_per_node=cluster.cpus_per_node * nodes,
        memory_per_node_mib=(cluster.memory_per_node_mib or 0) * nodes,
    )


def at_load(site: Site, jobs: Sequence[Job], load: float) -> list[Job]:
    """The jobs with arrivals so far apart that their work is this part of what the CPUs can do meanwhile."""
    first_s, last_s = jobs[0].submit_s, jobs[-1].submit_s
    work_s = sum(job.run_s * job.processors for job in jobs)
    stretch = work_s / (load * site.cluster.cpus * (last_s - first_s))
    return [job._replace(submit_s=round((job.submit_s - first_s) * stretch)) for job in jobs]


def _measured(site: Site, jobs: Sequence[Job], policy: str, arguments: argparse.Namespace) -> Sequence[str]:
    cluster = site.cluster
    emptying = None if arguments.underload is None else Emptying(arguments.underload)
    reserve = math.ceil(arguments.reserve * cluster.nodes)
    energy = EnergyParameters(dict.fromkeys(cluster.node_names, POWER), reserve=reserve, emptying=emptying)
    energy = replace(energy, late_at_most=arguments.late_at_most)
    is_static = policy in ("fcfs", "easy")
    durations, cycle_s = (FREE, 0.0) if is_static else (switches_of(60.0, 60.0), 30.0)
    found = simulated(jobs, cluster, policy, durations=durations, cycle_s=cycle_s, energy=energy)
    all_on = simulated(jobs, cluster, policy, durations=durations, cycle_s=cycle_s)
    told = account_of(found, energy, cluster.cpus_per_node, LocalClock.steady())
    assert found.powered is not None
    late_s = completion_s(found) - completion_s(all_on)
    makespan_s = max(run.end_s for run in found.jobs) - jobs[0].submit_s
    cycles = len(found.powered.off_times) / cluster.nodes / (makespan_s / 86400)
    return [
        *(f"{each.kwh:.0f}" for each in (told.all_on, told.switched, told.oracle)),
        f"{100 * (saved_share(told) or 0.0):.1f} %",
        f"{cycles:.1f}",
        str(found.powered.emptied),
        f"{late_s:.0f}",
        f"{100 * late_s / completion_s(all_on):+.2f} %",
    ]


def completion_s(outcome: Outcome) -> float:
    """The mean time from submission to end."""
    return sum(run.end_s - run.job.submit_s for run in outcome.jobs) / len(outcome.jobs)
