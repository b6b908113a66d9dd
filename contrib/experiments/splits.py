"""What users gain who split long jobs into short ones, and whom it costs; likewise arrays of short elements.

The first jobs of KTH SP2's trace, under EASY, under `slowdown`, and under `slowdown` with a share for each user. A
suspend takes a minute, and so does a resume.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.simulated import simulated, switches_of
from experiments.slowdown import LONG_S, counted
from experiments.tables import table
from experiments.traces import DATA, SITES, Site, jobs_of, slowdowns_of
from rmsplugin.decision.parameters import SlowdownParameters
from rmsplugin.workload.jobs import Job

#: The user, and what of his is split: jobs that run for longer.
_USER, _SPLIT_S = "1", 4 * 3600

#: Into pieces of an hour, for which he asks.
_PIECE_S = 3600

#: An array of so many elements of ten minutes on one processor, which comes when the middle job does.
_ELEMENTS, _ELEMENT_S = 2000, 600

#: Jobs that are submitted by so much sooner or later than an array are asked what it costs.
_AROUND_S = 3.5 * 86400

_NEW = 1_000_000  # numbers of jobs that the trace does not have

_SHARES = SlowdownParameters(user_share=0.25, user_share_s=600)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where the traces are, in swf/")
    parser.add_argument("--jobs", type=int, default=3000, metavar="N", help="of the trace (default: 3000)")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """The table: as it is, and then."""
    site = next(site for site in SITES if site.name == "KTH SP2")
    site, jobs = counted(site, jobs_of(site, arguments.data)[: arguments.jobs])
    policies: dict[str, Callable[[Sequence[Job]], Sequence[float]]] = {
        "EASY": lambda each: easy(site, each),
        "slowdown": lambda each: ours(site, each, None),
        "slowdown, a share of 1/4 after 600 s": lambda each: ours(site, each, _SHARES),
    }
    pieces, array, middle_s = split(jobs), with_array(jobs), jobs[len(jobs) // 2].submit_s
    owned = {owner for _, owner in pieces}
    whole: list[Owned] = [(job, job.job_id if job.job_id in owned else None) for job in jobs]
    rows = []
    for name, ends in policies.items():
        as_it_is = ends(jobs)
        before, after = Seen.of(whole, as_it_is), Seen.of(pieces, ends([job for job, _ in pieces]))
        rows.append([f"pieces of an hour, {name}", *before.beside(after)])
        before, after = (
            Seen.of([(job, None) for job in jobs], as_it_is),
            Seen.of(array, ends([job for job, _ in array])),
        )
        rows.append([f"an array, {name}", *before.around(middle_s).beside(after.around(middle_s))])
    yield from table(
        [
            "",
            "his own, h",
            "others' short jobs, h",
            "their bounded slowdown",
            "others' long jobs, h",
        ],
        rows,
    )


def easy(site: Site, jobs: Sequence[Job]) -> list[float]:
    """When each ends under EASY."""
    return [start_s + job.run_s for job, start_s in zip(jobs, site.starts(jobs, backfill=True), strict=True)]


def ours(site: Site, jobs: Sequence[Job], tunables: SlowdownParameters | None) -> list[float]:
    """When each ends under slowdown."""
    runs = simulated(jobs, site.cluster, "slowdown", durations=switches_of(60, 60), slowdown=tunables).jobs
    return [each.end_s for each in runs]


#: A job, and the one of whose user it is a part that is asked about; None: it is another one's.
Owned = tuple[Job, int | None]


def split(jobs: Sequence[Job]) -> list[Owned]:
    """The long jobs of the user in pieces, all submitted at once."""
    found: list[Owned] = []
    for job in jobs:
        if job.user != _USER or job.run_s <= _SPLIT_S:
            found.append((job, None))
            continue
        left_s = job.run_s
        while left_s > 0:
            run_s = min(_PIECE_S, left_s)
            found.append((job._replace(job_id=_NEW + len(found), run_s=run_s, estimate_s=_PIECE_S), job.job_id))
            left_s -= run_s
    return found


def with_array(jobs: Sequence[Job]) -> list[Owned]:
    """The jobs with an array in their middle."""
    place = len(jobs) // 2
    like = jobs[place]._replace(run_s=_ELEMENT_S, processors=1, estimate_s=_ELEMENT_S, user="of the array")
    elements = [(like._replace(job_id=_NEW + number), 0) for number in range(_ELEMENTS)]
    return [*((job, None) for job in jobs[:place]), *elements, *((job, None) for job in jobs[place:])]


@dataclass(frozen=True)
class Seen:
    """Jobs, each with whose it is, and how long it took."""

    jobs: Sequence[Owned]
    took_s: NDArray[np.float64]

    @classmethod
    def of(cls, jobs: Sequence[Owned], ends_s: Sequence[float]) -> Seen:
        """As they end."""
        return cls(jobs, np.array([end_s - job.submit_s for (job, _), end_s in zip(jobs, ends_s, strict=True)]))

    def around(self, time_s: float) -> Seen:
        """Only what is submitted then, or by a few days sooner or later."""
        chosen = [place for place, (job, _) in enumerate(self.jobs) if abs(job.submit_s - time_s) <= _AROUND_S]
        return Seen([self.jobs[place] for place in chosen], self.took_s[chosen])

    def beside(self, then: Seen) -> list[str]:
        """Cells: as it is, and then."""
        return [f"{one} -> {other}" if one else other for one, other in zip(self._told(), then._told(), strict=True)]

    def _told(self) -> list[str]:
        done: dict[int, float] = {}  # when the last piece of each has ended
        for (_, owner), took_s in zip(self.jobs, self.took_s.tolist(), strict=True):
            if owner is not None:
                done[owner] = max(done.get(owner, 0.0), took_s)
        others = np.array([owner is None for _, owner in self.jobs])
        is_long = np.array([job.run_s > LONG_S for job, _ in self.jobs])
        short, long = others & ~is_long, others & is_long
        bounded = slowdowns_of(self.took_s, [job.run_s for job, _ in self.jobs])
        own = f"{np.mean(list(done.values())) / 3600:.1f}" if done else ""
        return [
            own,
            f"{self.took_s[short].mean() / 3600:.2f}",
            f"{bounded[short].mean():.1f}",
            f"{self.took_s[long].mean() / 3600:.1f}",
        ]
