"""Told: the answer of `rmsplugin simulate` as JSON, as a person reads it, and as a line for each job or event."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from math import isclose
from typing import Any

from rmsplugin.cli.shared.table import Field, duration, plain_table, text_of
from rmsplugin.cli.simulate import energy_told
from rmsplugin.cli.simulate.platforms import PLATFORMS
from rmsplugin.cli.simulate.simulated import Input, Simulated
from rmsplugin.model.wording import counted
from rmsplugin.simulation.capacity import EVERYWHERE
from rmsplugin.simulation.metrics import Distribution
from rmsplugin.simulation.outcome import NoteRun, Outcome, events_of

CSV_TITLES = "job_id,submit,start,end,processors,estimate"
SWITCH_TITLES = "asleep,suspends,migrations"

_METRICS = (
    Field("metric", "what was measured", text_of("metric")),
    *(Field(name, name, text_of(name), right=True) for name in ("mean", "p50", "p95", "p99")),
)


def document(simulated: Simulated) -> dict[str, Any]:
    """The summary as JSON."""
    given = simulated.input
    return {
        **measured(simulated),
        "trace": trace(given),
        "seconds": {"reading": round(given.reading_s, 3), "simulation": round(simulated.simulation_s, 3)},
    }


def trace(given: Input) -> dict[str, Any]:
    """What was read, and what of it was not simulated."""
    workload, faults = given.workload, given.workload.faults
    return {
        "lines": workload.lines,
        "header": {key: "\n".join(values) for key, values in workload.header.items()},
        "partial_executions": workload.partial,
        "with_further_fields": workload.extended,
        "without_requested_time": workload.unestimated,
        "cpu_time_not_believed": workload.disbelieved,
        "naming_a_preceding_job": sum(job.job_id in workload.following for job in given.jobs),
        "submitted_after_it": len(given.links),
        "not_simulated": len(faults),
        "reasons": {code.value: count for code, count in faults.counts.most_common()},
        "named": [{"line": fault.line, "reason": fault.code, "message": fault.message} for fault in faults],
    }


def measured(simulated: Simulated) -> dict[str, Any]:
    """What a policy was worth on the cluster."""
    return {
        "policy": simulated.policy,
        "platform": simulated.platform,
        "rules": number_of_rules(simulated.input),
        "wishes": number_of_wishes(simulated.input),
        "cluster": asdict(simulated.input.cluster),
        **asdict(simulated.metrics),
        "context_switches": switches(simulated),
        **energy_told.document(simulated),
    }


def number_of_rules(given: Input) -> int:
    """The number of placement rules that VMs obey."""
    return 0 if given.rules is None else len(given.rules.names)


def number_of_wishes(given: Input) -> int:
    """The number of jobs whose wishes about VMs beside each other are kept."""
    return sum(job.wishing for job in given.jobs)


def obeyed(given: Input) -> str:
    """What VMs obey, for a sentence; empty: nothing."""
    rules, wishes = number_of_rules(given), number_of_wishes(given)
    found = [counted(rules, "placement rule")] if rules else []
    return " and ".join([*found, f"the wishes of {counted(wishes, 'job')}"] if wishes else found)


def _overbooked(given: Input) -> str:
    """By how much CPUs are overbooked, for a sentence."""
    ratios = given.cluster.cpu_overbooking.items()
    each = [f"{ratio:g}" if name == EVERYWHERE else f"{ratio:g} in partition {name}" for name, ratio in sorted(ratios)]
    return f" with CPUs overbooked by {' and '.join(each)}" if each else ""


def switches(simulated: Simulated) -> dict[str, Any]:
    """Actions on VMs by kind, the remote ones of the resumes, and what the context switches cost and took."""
    replayed = simulated.replayed
    if replayed is None or not simulated.switches:  # fcfs and easy have none
        return {"suspend": 0, "resume": 0, "migrate": 0, "pause": 0, "unpause": 0}
    actions = replayed.actions()
    real = [each for each in replayed.switches if not each.is_start_only]
    return {
        "suspend": actions["suspend"],
        "resume": actions["resume"] + actions["remote_resume"],
        "migrate": actions["migrate"],
        "remote_resumes": actions["remote_resume"],
        "pause": actions["pause"],
        "unpause": actions["unpause"],
        "run": actions["run"],
        "switches": len(real),
        "cost_mib": sum(each.cost_mib for each in real),
        "mean_duration_s": round(sum(each.end_s - each.begin_s for each in real) / len(real), 3) if real else 0.0,
        "failed_steps": sum(each.failed for each in replayed.switches),
        "decisions": replayed.decisions,
        "faults": dict(replayed.faults),
        **_shortages(replayed),
    }


def _shortages(replayed: Outcome) -> dict[str, Any]:
    """How often a node was reserved, served, and so on, where memory is observed."""
    counts = Counter(each.note.what for each in replayed.notes)
    return {"shortages": dict(sorted(counts.items()))} if counts else {}


def csv_text(simulated: Simulated) -> str:
    """A line for each job, in the order of the queue; times as in the trace."""
    if simulated.switches:
        rows = [
            f"{run.job.job_id},{run.job.submit_s},{run.start_s:.15g},{run.end_s:.15g},{run.job.processors},"
            f"{run.job.estimate_s},{run.asleep_s:.15g},{run.suspends},{sum(len(move.moves) for move in run.moves)}"
            for run in simulated.outcome.jobs
        ]
        return "\n".join([f"{CSV_TITLES},{SWITCH_TITLES}", *rows, ""])
    ends = _ends(simulated)
    rows = [
        f"{job.job_id},{job.submit_s},{start_s},{end_s},{job.processors},{job.estimate_s}"
        for job, start_s, end_s in zip(simulated.input.jobs, simulated.started, ends, strict=True)
    ]
    return "\n".join([CSV_TITLES, *rows, ""])


def _ends(simulated: Simulated) -> list[float]:
    """The end of each job; later than its run time says if its VMs shared CPUs."""
    at_full_speed = [start_s + job.run_s for job, start_s in zip(simulated.input.jobs, simulated.started, strict=True)]
    if simulated.replayed is None:
        return at_full_speed
    # A replay sums up times: what differs by a rounding only is told as the trace has it.
    replayed = [float(f"{run.end_s:.15g}") for run in simulated.replayed.jobs]
    return [full if isclose(full, end) else end for full, end in zip(at_full_speed, replayed, strict=True)]


def events_text(simulated: Simulated) -> str:
    """A line of JSON for each event, in the order of time; at one instant what was reserved before what was done."""
    told: list[dict[str, Any]] = [_noted(each) for each in simulated.outcome.notes]
    for event in events_of(simulated.outcome):
        own: dict[str, Any] = {"time": event.time_s, "event": event.event, "job": event.job_id}
        told.append(own | ({"nodes": event.nodes} if event.nodes else {}))
    told.sort(key=lambda each: each["time"])  # stable
    return "\n".join([*map(json.dumps, told), ""])


def _noted(run: NoteRun) -> dict[str, Any]:
    """What became of a node, as an event."""
    vm = {"vm": run.note.numbers["vm"]} if "vm" in run.note.numbers else {}
    return {"time": run.time_s, "event": run.note.what, "node": run.note.node, **vm, "why": run.note.sentence}


def text_lines(simulated: Simulated) -> Iterator[str]:
    """What a person reads."""
    metrics, cluster, workload = simulated.metrics, simulated.input.cluster, simulated.input.workload
    cpus = counted(cluster.cpus_per_node, "CPU")
    memory = "" if cluster.memory_per_node_mib is None else f" and {cluster.memory_per_node_mib} MiB"
    rules, overbooked = obeyed(simulated.input), _overbooked(simulated.input)
    ruled = f" {'and' if overbooked else 'with'} {rules}" if rules else ""
    without = " without VMs" if PLATFORMS[simulated.platform].can.only_pauses else ""
    where = f"{counted(cluster.nodes, 'node')} of {cpus}{memory}{without}{overbooked}{ruled}"
    yield (
        f"{counted(metrics.jobs, 'job')} under {simulated.policy} on {where}: "
        f"makespan {duration(metrics.makespan_s)}, utilisation {100 * metrics.utilisation:.1f} %, "
        f"{_switched(simulated)}{_short(simulated)}."
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
        (
            len(simulated.input.links),
            "jobs that are submitted once the preceding one has ended and their user has thought (fields 17, 18)",
        ),
        (workload.extended, "lines with more than 18 fields, of which the further ones are not read"),
    )
    yield from (f"{note}: {count}" for count, note in notes if count)
    yield from energy_told.text_lines(simulated)


def _switched(simulated: Simulated) -> str:
    if not simulated.switches:
        return "no context switches"
    found = switches(simulated)
    number = f"{found['switches']} context {'switch' if found['switches'] == 1 else 'switches'}"
    if PLATFORMS[simulated.platform].can.only_pauses:
        return f"{number} with {counted(found['pause'], 'pause')} of processes"
    pauses = f"{counted(found['pause'], 'pause')}, " if found["pause"] else ""
    return (
        f"{number} with {pauses}{counted(found['suspend'], 'suspend')}, "
        f"{counted(found['resume'], 'resume')} ({found['remote_resumes']} remote) and "
        f"{counted(found['migrate'], 'migration')} of VMs"
    )


def _short(simulated: Simulated) -> str:
    shortages = switches(simulated).get("shortages", {})
    return "".join(f", {count} {what}" for what, count in shortages.items())


def _row(metric: str, values: Distribution, shown: Any) -> dict[str, str]:
    return {"metric": metric, **{name: shown(value) for name, value in asdict(values).items()}}
