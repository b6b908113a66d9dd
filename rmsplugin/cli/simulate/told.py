"""Told: the answer of `rmsplugin simulate` as JSON, as a person reads it, and as a line for each job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rmsplugin.cli.table import Field, duration, plain_table, text_of
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.metrics import Distribution, Metrics
from rmsplugin.workload.faults import SUMMARIES, Faults
from rmsplugin.workload.jobs import Job, Workload

#: So many lines that are not simulated are named on standard error.
NAMED = 10

CSV_TITLES = "job_id,submit,start,end,processors,estimate"

_METRICS = (
    Field("metric", "what was measured", text_of("metric")),
    *(Field(name, name, text_of(name), right=True) for name in ("mean", "p50", "p95", "p99")),
)


@dataclass(frozen=True, slots=True)
class Simulated:
    """A workload on a cluster under a policy, and what was measured."""

    workload: Workload
    cluster: Cluster
    policy: str
    jobs: Sequence[Job]  # those that fit on the cluster
    started: Sequence[float]  # seconds, by job
    metrics: Metrics
    seconds: dict[str, float]  # what it took, by what was done


def document(simulated: Simulated) -> dict[str, Any]:
    """The summary as JSON."""
    workload, faults = simulated.workload, simulated.workload.faults
    return {
        "policy": simulated.policy,
        "cluster": asdict(simulated.cluster),
        **asdict(simulated.metrics),
        "context_switches": {"suspend": 0, "resume": 0, "migrate": 0},  # fcfs and easy have none
        "trace": {
            "lines": workload.lines,
            "header": {key: "\n".join(values) for key, values in workload.header.items()},
            "partial_executions": workload.partial,
            "with_further_fields": workload.extended,
            "without_requested_time": workload.unestimated,
            "not_simulated": len(faults),
            "reasons": {code.value: count for code, count in faults.counts.most_common()},
            "named": [{"line": fault.line, "reason": fault.code, "message": fault.message} for fault in faults],
        },
        "seconds": {name: round(value, 3) for name, value in simulated.seconds.items()},
    }


def csv_text(simulated: Simulated) -> str:
    """A line for each job, in the order of the queue; times as in the trace."""
    rows = [
        f"{job_id},{submit_s},{start_s},{start_s + run_s},{processors},{estimate_s}"
        for (job_id, submit_s, run_s, processors, estimate_s, _, _), start_s in zip(
            simulated.jobs, simulated.started, strict=True
        )
    ]
    return "\n".join([CSV_TITLES, *rows, ""])


def faulty_lines(file: str, lines: int, faults: Faults) -> Iterator[str]:
    """The first lines of a trace that are not simulated, and how many there are for each reason."""
    yield from (f"{file}:{fault.line}: {fault.message}" for fault, _ in zip(faults, range(NAMED), strict=False))
    if faults:
        reasons = "; ".join(f"{count} {SUMMARIES[code]}" for code, count in faults.counts.most_common())
        yield f"{file}: {len(faults)} of {lines} lines are not simulated: {reasons}"


def text_lines(simulated: Simulated) -> Iterator[str]:
    """What a person reads."""
    metrics, cluster, workload = simulated.metrics, simulated.cluster, simulated.workload
    cpus = _counted(cluster.cpus_per_node, "CPU")
    memory = "" if cluster.memory_per_node_mib is None else f" and {cluster.memory_per_node_mib} MiB"
    where = f"{_counted(cluster.nodes, 'node')} of {cpus}{memory}"
    yield (
        f"{_counted(metrics.jobs, 'job')} under {simulated.policy} on {where}: "
        f"makespan {duration(metrics.makespan_s)}, utilisation {100 * metrics.utilisation:.1f} %, no context switches."
    )
    yield ""
    yield from plain_table(_METRICS).lines(
        [
            _row("wait", metrics.wait_s, duration),
            _row("completion", metrics.completion_s, duration),
            _row("bounded slowdown", metrics.bounded_slowdown, "{:.2f}".format),
        ]
    )
    notes = (
        (workload.partial, "lines of partial executions, whose jobs are simulated as a whole"),
        (workload.unestimated, "jobs without a requested time, for which the run time stands"),
        (workload.extended, "lines with more than 18 fields, of which the further ones are not read"),
    )
    yield from (f"{note}: {count}" for count, note in notes if count)


def _row(metric: str, values: Distribution, shown: Any) -> dict[str, str]:
    return {"metric": metric, **{name: shown(value) for name, value in asdict(values).items()}}


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
