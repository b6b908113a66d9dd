"""f. Decision: seconds from queue to FFD to RJSP, at 500, 5,000 and 30,000 VMs, next to a plain first fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench import verify
from bench.families import scale
from bench.measure import Report, median, progress, ratio, timed
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    #: Nodes and VMs. First room for nearly all, then for about half of them.
    clusters: Sequence[Sequence[tuple[int, int]]] = (
        ((83, 500), (833, 5000), (5000, 30000)),
        ((30, 500), (300, 5000), (1800, 30000)),
    )
    seeds: int = 3
    repeats: int = 3


SIZES = {
    "full": Sizes(),
    "quick": Sizes(clusters=(((83, 500), (833, 5000)), ((30, 500), (300, 5000))), seeds=1),
    "tiny": Sizes(clusters=(((4, 24), (8, 48)),), seeds=1, repeats=1),
}


def plain_first_fit(configuration: Configuration) -> dict[str, VJobState]:
    """RR-6929 section 3.2 word by word: for each VM of each vjob, look through the nodes from the first one on."""
    free = [[node.capacity.centi_cpus, node.capacity.memory_mib] for node in configuration.nodes]
    states = {}
    for vjob in configuration.vjobs:
        placed: list[tuple[int, VM]] = []
        for vm in sorted(vjob.vms, key=lambda vm: (-vm.demand.memory_mib, -vm.demand.cpus, vm.name)):
            cpus, memory = vm.demand.centi_cpus, vm.demand.memory_mib
            for index, room in enumerate(free):
                if room[0] >= cpus and room[1] >= memory:
                    room[0] -= cpus
                    room[1] -= memory
                    placed.append((index, vm))
                    break
            else:
                break
        if len(placed) == len(vjob.vms):
            states[vjob.name] = VJobState.RUNNING
            continue
        for index, vm in placed:
            free[index][0] += vm.demand.centi_cpus
            free[index][1] += vm.demand.memory_mib
        waits = configuration.state(vjob) is VJobState.WAITING
        states[vjob.name] = VJobState.WAITING if waits else VJobState.SLEEPING
    return states


def run(sizes: Sizes, report: Report) -> None:
    """Measure all clusters of the size."""
    report.title("f", "decision (RJSP by FFD): seconds, and what a plain first fit takes for the same")
    for clusters in sizes.clusters:
        _line(clusters, sizes, report)


def _line(clusters: Sequence[tuple[int, int]], sizes: Sizes, report: Report) -> None:
    """Clusters that differ in nothing but their size."""
    rows = [_cluster(nodes, vms, sizes, report) for nodes, vms in clusters]
    smallest = rows[0][3] / clusters[0][1]
    for row, (_, vms) in zip(rows, clusters, strict=True):
        row.append(ratio(smallest, row[3] / vms))
    header = ["cluster", "n", "vjobs running", "median s", "us a VM", "plain s", "plain / ours", "per VM, to the first"]
    report.table(header, rows)
    report.ratio(f"{rows[-1][0]}: plain first fit / ours, seconds", rows[-1][6])
    report.ratio(f"{rows[-1][0]}: seconds a VM, to those at {clusters[0][1]} VMs", rows[-1][7])


def _cluster(nodes: int, vms: int, sizes: Sizes, report: Report) -> list[Any]:
    name = f"{nodes} nodes, {vms} VMs"
    for seed in range(sizes.seeds):
        progress(f"f: {name}, {seed}")
        configuration = scale(nodes, vms, seed)
        ours = []
        for _ in range(sizes.repeats):
            found, seconds = timed(lambda c=configuration: decide("rjsp", c, Parameters()))
            ours.append(seconds)
        plain, plain_s = timed(lambda c=configuration: plain_first_fit(c))
        if not isinstance(found, Decision) or dict(found.states) != plain:
            raise verify.WrongAnswerError(f"{name}, {seed}: the plain first fit decides otherwise")
        verify.placement(configuration, found.states, found.placement)
        running = sum(state is VJobState.RUNNING for state in plain.values())
        report.record(family=name, seed=seed, seconds=median(ours), plain_s=plain_s, running=running, vjobs=len(plain))
    progress("")
    found_here = report.of(family=name)
    seconds = median(r["seconds"] for r in found_here)
    plain_s = median(r["plain_s"] for r in found_here)
    running = f"{sum(r['running'] for r in found_here)}/{sum(r['vjobs'] for r in found_here)}"
    return [name, len(found_here), running, seconds, 1e6 * seconds / vms, plain_s, ratio(seconds, plain_s)]
