"""What happened over time in a replay: means of steps, where the VMs were, and what each vjob did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.outcome import JobRun, Outcome

#: From a time on, until the next one.
Step = tuple[float, float]

_LETTERS = {
    VJobState.WAITING: " ",
    VJobState.STARTING: "b",
    VJobState.RUNNING: "#",
    VJobState.SUSPENDING: "s",
    VJobState.SLEEPING: ".",
    VJobState.RESUMING: "r",
    VJobState.STOPPING: "x",
}

#: What the letters of an allocation diagram are.
LEGEND = "# runs, . sleeps, s is suspended, r is resumed, b boots, x is stopped; blank: waits, or has ended"


def mean(steps: Sequence[Step], begin_s: float, end_s: float) -> float:
    """The mean of a step function over a time; before its first step it is 0."""
    if end_s <= begin_s:
        return 0.0
    ends = [*(time_s for time_s, _ in steps[1:]), float("inf")]
    area = sum(
        value * max(0.0, min(until_s, end_s) - max(time_s, begin_s))
        for (time_s, value), until_s in zip(steps, ends, strict=False)
    )
    return area / (end_s - begin_s)


def means(steps: Sequence[Step], begin_s: float, end_s: float, parts: int) -> list[float]:
    """The mean of each of so many equal parts of a time."""
    long_s = (end_s - begin_s) / parts
    return [mean(steps, begin_s + part * long_s, begin_s + (part + 1) * long_s) for part in range(parts)]


def above_nothing(steps: Sequence[Step], begin_s: float, end_s: float) -> list[float]:
    """The seconds of each time, between two moments, in which a step function is above 0."""
    found: list[float] = []
    since_s: float | None = None
    for time_s, value in [(begin_s, _at(steps, begin_s)), *(s for s in steps if begin_s < s[0] < end_s), (end_s, 0.0)]:
        if value > 0 and since_s is None:
            since_s = time_s
        elif value <= 0 and since_s is not None:
            found.append(time_s - since_s)
            since_s = None
    return found


def beyond_both_ends(steps: Sequence[Step], begin_s: float, end_s: float) -> float:
    """How far a step function rises between two moments above what it is just before the first and at the second."""
    ends = max(_at(steps, begin_s, before=True), _at(steps, end_s))
    between = [value for time_s, value in steps if begin_s <= time_s < end_s]
    return max(0.0, max(between, default=0.0) - ends)


def _at(steps: Sequence[Step], time_s: float, *, before: bool = False) -> float:
    """The value at a moment, or just before it; before the first step it is 0."""
    return next((value for each_s, value in reversed(steps) if each_s < time_s or (each_s == time_s and not before)), 0)


def used_cpus(outcome: Outcome) -> list[Step]:
    """CPUs that VMs use."""
    return [(each.time_s, each.used_cpus) for each in outcome.usage]


def crowded_vms(outcome: Outcome) -> list[Step]:
    """VMs that share their CPUs with too many others."""
    return [(each.time_s, float(each.crowded_vms)) for each in outcome.usage]


def nodes_used(outcome: Outcome) -> list[Step]:
    """Nodes that hold the memory of a VM, of one that comes or goes too."""
    changes: dict[float, Counter[str]] = {}
    for run in outcome.jobs:
        for node, begin_s, end_s in _stays(run):
            changes.setdefault(begin_s, Counter())[node] += 1
            changes.setdefault(end_s, Counter())[node] -= 1
    held: Counter[str] = Counter()
    steps = []
    for time_s in sorted(changes):
        held.update(changes[time_s])
        steps.append((time_s, float(sum(count > 0 for count in held.values()))))
    return steps


def _stays(run: JobRun) -> list[tuple[str, float, float]]:
    """Each stay of a VM on a node: from the start or resume, or the beginning of the migration there, to its end."""
    found: list[tuple[str, float, float]] = []
    since: list[tuple[str, float]] = []
    for each in run.intervals:
        if each.state in (VJobState.STARTING, VJobState.RESUMING):
            since = [(node, each.begin_s) for node in each.nodes]
        for move in run.moves:
            if not each.begin_s < move.end_s <= each.end_s or not since:
                continue
            for vm, (source, destination) in move.moves.items():
                found.append(
                    (destination if move.failed else source, move.begin_s if move.failed else since[vm][1], move.end_s)
                )
                if not move.failed:
                    since[vm] = (destination, move.begin_s)
        comes = each.state in (VJobState.STARTING, VJobState.RESUMING)
        if (each.failed and comes) or (each.state in (VJobState.SUSPENDING, VJobState.STOPPING) and not each.failed):
            found += [(node, begin_s, each.end_s) for node, begin_s in since]
            since = []
    return found


def diagram(outcome: Outcome, end_s: float, columns: int) -> list[str]:
    """An allocation diagram: a line for each vjob, a letter for what it did most in each part of the time."""
    begin_s = outcome.jobs[0].job.submit_s
    part_s = (end_s - begin_s) / columns
    return [
        "".join(_letter(run, begin_s + part * part_s, begin_s + (part + 1) * part_s) for part in range(columns))
        for run in outcome.jobs
    ]


def _letter(run: JobRun, begin_s: float, end_s: float) -> str:
    spent: Counter[str] = Counter()
    for each in run.intervals:
        overlap_s = min(each.end_s, end_s) - max(each.begin_s, begin_s)
        if overlap_s > 0:
            spent[_LETTERS[each.state]] += round(1000 * overlap_s)
    return spent.most_common(1)[0][0] if spent else " "
