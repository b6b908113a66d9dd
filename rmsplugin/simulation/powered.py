"""Powered: what was on each node of a replay, and when, for the account of energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rmsplugin.energy.account import Account, Span, account
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.outcome import Interval, JobRun, Outcome


def account_of(outcome: Outcome, parameters: EnergyParameters, cpus_per_node: int, clock: LocalClock) -> Account:
    """The energy from the first submission to the end of all; ``clock``: that the tariff goes by."""
    begin_s = min(run.job.submit_s for run in outcome.jobs)
    end_s = max(run.intervals[-1].end_s for run in outcome.jobs)
    off_times = () if outcome.powered is None else outcome.powered.off_times
    spans = (span for run in outcome.jobs for span in spans_of(run))
    return account(parameters, cpus_per_node, spans, off_times, begin_s, end_s, clock)


def spans_of(run: JobRun) -> Iterator[Span]:
    """What a job had on nodes: its VMs and, while it sleeps and resumes, their saved states.

    Its VMs use equal parts of its CPU seconds, evenly over the time for which it ran.
    """
    running_s = sum(each.end_s - each.begin_s for each in run.intervals if each.state is VJobState.RUNNING)
    cpus = run.cpu_s / run.vms / running_s if running_s else 0.0
    images: Sequence[str] = ()
    for each in run.intervals:
        used = cpus if each.state is VJobState.RUNNING else 0.0
        if each.end_s > each.begin_s:
            for node, begin_s, end_s, vms in _places(run, each):
                yield Span(node, begin_s, end_s, used * vms)
            if each.state is VJobState.RESUMING:
                yield from (Span(node, each.begin_s, each.end_s) for node in dict.fromkeys(images))
        images = each.nodes if each.state in (VJobState.SLEEPING, VJobState.RESUMING) else ()


def _places(run: JobRun, interval: Interval) -> Iterator[tuple[str, float, float, int]]:
    """The nodes of an interval, each with its part of it and the number of VMs there."""
    moves = [each for each in run.moves if interval.begin_s <= each.begin_s and each.end_s <= interval.end_s]
    if not moves:
        for node, vms in Counter(interval.nodes).items():
            yield node, interval.begin_s, interval.end_s, vms
        return
    for index, last in enumerate(interval.nodes):
        since_s, here = interval.begin_s, last
        for move in moves:
            if index not in move.moves:
                continue
            source, here = move.moves[index]
            yield source, since_s, move.end_s, 1
            yield here, move.begin_s, move.end_s, 0
            if move.failed:
                here = source
            since_s = move.end_s
        yield here, since_s, interval.end_s, 1
