"""Signs: idle memory and job balance skew while jobs are submitted, and over the whole run, beside what is demanded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.icdcs02.cluster import Assumptions, Policy, Simulation
from experiments.icdcs02.workload import WORKSTATIONS, Group, Submission
from experiments.tables import table

#: Other intervals at which the paper measures, in seconds.
_INTERVALS = (10, 30, 60)

#: Of one second: idle memory, demanded memory, skew.
_Second = tuple[float, float, float]


class Watched(Simulation):
    """A simulation that remembers each second."""

    def __init__(self, group: Group, submissions: Sequence[Submission], policy: Policy, given: Assumptions) -> None:
        super().__init__(group, submissions, policy, given)
        self.seconds: list[_Second] = []

    def _measure(self) -> None:
        super()._measure()
        self.seconds.append((self._idle_mb, sum(node.demand_mb for node in self.nodes), self._skew))


def signs(runs: Sequence[tuple[str, Watched]], given: Assumptions, group: Group) -> Iterator[str]:
    """A line for each run, which has ended: means until the last submission, and until the last end."""
    whole_mb = WORKSTATIONS * given.user_mb(group)

    def cells(seconds: Sequence[_Second]) -> list[str]:
        idle_mb, demand_mb, skew = (sum(each) / len(seconds) for each in zip(*seconds, strict=True))
        return [f"{100 * demand_mb / whole_mb:.0f} %", f"{idle_mb:.0f}", f"{skew:.2f}"]

    rows = []
    for name, watched in runs:
        last = max(1, int(watched.jobs[-1].submission.at_s))
        rows.append([name, *cells(watched.seconds[:last]), *cells(watched.seconds)])
    titles = ["memory demanded, while submitted", "idle (MB)", "skew", "demanded, whole run", "idle (MB)", "skew"]
    yield from table(["trace, policy", *titles], rows)
    most = max(_difference(watched.seconds, every) for _, watched in runs for every in _INTERVALS)
    listed = ", ".join(map(str, _INTERVALS))
    yield ""
    differ = f"the means of the whole run differ by {100 * most:.1f} % at most"
    yield f"Measured each {listed} s in place of each second, {differ}."


def _difference(seconds: Sequence[_Second], every: int) -> float:
    """By what part the means of idle memory and skew differ if they are measured each so many seconds."""
    some = seconds[::every]
    pairs = [
        (sum(each[k] for each in seconds) / len(seconds), sum(each[k] for each in some) / len(some)) for k in (0, 2)
    ]
    return max(abs(other / one - 1) for one, other in pairs if one)
