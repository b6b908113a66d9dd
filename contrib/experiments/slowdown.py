"""What `slowdown` brings: whole workload traces under it and under EASY, as ratios, with the users' time limits.

A suspend takes a minute, and so does a resume. VMs are counted, as EASY's are: memory is never what is short, unless
it is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.bootstrap import Mean, ratio_of
from experiments.simulated import simulated, switches_of
from experiments.tables import table
from experiments.traces import DATA, MEMORY_MIB, SITES, Site, jobs_of, slowdowns_of
from rmsplugin.decision.parameters import SlowdownParameters
from rmsplugin.workload.jobs import Job

#: Of the longest traces so many jobs from their beginning, as policy.md has them.
JOBS = {
    "KTH SP2": 28_481,
    "SDSC SP2": 5_000,
    "CTC SP2": 10_000,
    "Lublin 256": 5_000,
    "HPC2N": 20_000,
    "SDSC Blue": 20_000,
    "MetaCentrum": 17_898,
}

#: Completions by how long a job runs and how wide it is: the four classes of the field.
LONG_S, WIDE = 3600, 8

#: Of the figure: so many characters are EASY.
_BAR = 40

_NO_BOUND = SlowdownParameters(max_delay=0.0, max_delay_s=1e12)


@dataclass(frozen=True)
class Case:
    """What is asked: how long switches take, what is known, how dense jobs come, and the policy's tunables."""

    name: str = "as it is"
    switch_s: float = 60.0
    limits: str = "users'"
    stretch: float = 1.0
    tunables: SlowdownParameters = field(default_factory=SlowdownParameters)


_LONGER = (
    Case("switches of 120 + 120 s", switch_s=120.0),
    Case("switches of 240 + 240 s", switch_s=240.0),
)

CASES = {
    "plain": (Case(),),
    "switches": _LONGER,
    "vary": (
        Case(),
        *_LONGER,
        Case("limits as long as jobs run", limits="good"),
        Case("limits of 24 h for all", limits="a day"),
        Case("arrivals 0.9 times as far apart", stretch=0.9),
        Case("arrivals 1.2 times as far apart", stretch=1.2),
    ),
    "ablation": (
        Case(),
        Case("no bound", tunables=_NO_BOUND),
        Case("a factor of 2", tunables=SlowdownParameters(factor=2.0)),
        Case("a factor of 4", tunables=SlowdownParameters(factor=4.0)),
        Case("exempt for 300 s", tunables=SlowdownParameters(switches=0.0)),
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    names = list(JOBS)
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where the traces are, in swf/")
    parser.add_argument("--sites", nargs="+", metavar="NAME", choices=names, default=names, help="only these")
    parser.add_argument("--jobs", type=int, metavar="N", help="take at most this many jobs of each trace")
    parser.add_argument(
        "--cases", choices=list(CASES), default="plain", help="also with other switches, limits, loads; or tunables"
    )
    parser.add_argument("--memory", action="store_true", help="nodes and VMs have the memory that the trace says")
    parser.add_argument("--classes", action="store_true", help="also by how long and how wide jobs are")
    parser.add_argument("--figure", action="store_true", help="also as a figure: a bar for each ratio")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """The table, a row for each trace and case."""
    titles = [
        "",
        "load",
        "completion",
        "95 %",
        "bounded slowdown",
        "95 %",
        "EASY's",
        "p99",
        "longest",
        "suspends",
    ]
    rows, classes, bars = [], [], []
    for site in (site for site in SITES if site.name in arguments.sites):
        jobs = jobs_of(site, arguments.data)[: JOBS[site.name]][: arguments.jobs]
        if not arguments.memory:
            site, jobs = counted(site, jobs)
        for case in CASES[arguments.cases]:
            found = Compared.of(site, asked(jobs, case), case, memory=arguments.memory)
            rows.append([f"{site.name}, {case.name}", *found.row()])
            bars += figure_of(f"{site.name}, {case.name}", *found.ratios())
            classes += (
                [[f"{site.name}, {name}", *cells] for name, cells in found.classes()] if arguments.classes else []
            )
    yield from table(titles, rows)
    if classes:
        yield ""
        yield from table(["", "jobs", "completion", "bounded slowdown", "longest"], classes)
    if arguments.figure:
        yield from ("", "```", f"{'':53}0{'EASY':>{_BAR}}", *bars, "```")


def figure_of(name: str, completion: float, slowdown: float) -> list[str]:
    """Two bars, as wide as the ratios to EASY are."""
    return [
        f"{title:34} {kind:16}  {bar(ratio)} {ratio:.2f}"
        for title, kind, ratio in ((name, "completion", completion), ("", "bounded slowdown", slowdown))
    ]


def bar(ratio: float) -> str:
    """A bar in eighths of a character, and a mark where EASY is."""
    eighths = min(round(ratio * _BAR * 8), _BAR * 8)
    drawn = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    return f"{drawn:{_BAR}}|"


def counted(site: Site, jobs: Sequence[Job]) -> tuple[Site, list[Job]]:
    """The same where each VM takes as much memory as CPUs of a node, whatever the trace says: nodes hold so many."""
    cluster = site.cluster
    cluster = replace(cluster, memory_per_node_mib=MEMORY_MIB * cluster.cpus_per_node)
    cluster = replace(cluster, memory_per_vm_mib=MEMORY_MIB * cluster.cpus_per_vm)
    return replace(site, cluster=cluster), [job._replace(memory_mib=None) for job in jobs]


def asked(jobs: Sequence[Job], case: Case) -> list[Job]:
    """The jobs with the limits and the arrivals of a case."""
    first_s, found = jobs[0].submit_s, []
    for job in jobs:
        limit_s = {"users'": job.estimate_s, "good": job.run_s, "a day": max(job.run_s, 86400)}[case.limits]
        submit_s = first_s + (job.submit_s - first_s) * case.stretch
        found.append(job._replace(estimate_s=limit_s, submit_s=submit_s))
    return found


@dataclass(frozen=True)
class Compared:
    """Jobs, and in seconds how long each took from its submission to its end, under slowdown and under EASY."""

    jobs: Sequence[Job]
    load: float
    ours_s: NDArray[np.float64]
    easy_s: NDArray[np.float64]
    suspends: float

    @classmethod
    def of(cls, site: Site, jobs: Sequence[Job], case: Case, *, memory: bool = False) -> Compared:
        """Replay them; under EASY, too, if memory may be short."""
        durations = switches_of(case.switch_s, case.switch_s)
        if memory:
            ends = [each.end_s for each in simulated(jobs, site.cluster, "easy", durations=durations).jobs]
        else:
            starts = site.starts(jobs, backfill=True)
            ends = [start_s + job.run_s for job, start_s in zip(jobs, starts, strict=True)]
        easy = [end_s - job.submit_s for job, end_s in zip(jobs, ends, strict=True)]
        runs = simulated(jobs, site.cluster, "slowdown", durations=durations, slowdown=case.tunables).jobs
        span_s = jobs[-1].submit_s - jobs[0].submit_s
        load = sum(job.run_s * job.processors for job in jobs) / (span_s * site.cluster.cpus)
        ours = np.array([each.end_s - each.job.submit_s for each in runs])
        return cls(jobs, load, ours, np.array(easy), sum(each.suspends for each in runs) / len(jobs))

    @cached_property
    def _completion(self) -> Mean:
        return ratio_of(self.ours_s, self.easy_s)

    @cached_property
    def _slowdown(self) -> Mean:
        return ratio_of(self._slowdowns(self.ours_s), self._slowdowns(self.easy_s))

    def ratios(self) -> tuple[float, float]:
        """Mean completion and mean bounded slowdown, as ratios to EASY."""
        return self._completion.value, self._slowdown.value

    def row(self) -> list[object]:
        """All of them, as ratios to EASY."""
        easy = self._slowdowns(self.easy_s)
        p99, longest = (np.percentile(self.ours_s, part) / np.percentile(self.easy_s, part) for part in (99, 100))
        return [
            f"{self.load:.2f}",
            *_told(self._completion),
            *_told(self._slowdown),
            f"{easy.mean():.1f}",
            *(f"{ratio:.2f}" for ratio in (p99, longest)),
            f"{self.suspends:.2f}",
        ]

    def _slowdowns(self, took_s: NDArray[np.float64]) -> NDArray[np.float64]:
        return slowdowns_of(took_s, [job.run_s for job in self.jobs])

    def classes(self) -> Iterator[tuple[str, list[object]]]:
        """The four classes: who gained, and who paid."""
        is_long = np.array([job.run_s > LONG_S for job in self.jobs])
        is_wide = np.array([job.processors > WIDE for job in self.jobs])
        ours, easy = self._slowdowns(self.ours_s), self._slowdowns(self.easy_s)
        for name, chosen in (
            ("short and narrow", ~is_long & ~is_wide),
            ("short and wide", ~is_long & is_wide),
            ("long and narrow", is_long & ~is_wide),
            ("long and wide", is_long & is_wide),
        ):
            if not chosen.any():
                continue
            yield (
                name,
                [
                    int(chosen.sum()),
                    f"{self.ours_s[chosen].mean() / self.easy_s[chosen].mean():.2f}",
                    f"{ours[chosen].mean() / easy[chosen].mean():.2f}",
                    f"{self.ours_s[chosen].max() / self.easy_s[chosen].max():.2f}",
                ],
            )


def _told(found: Mean) -> tuple[str, str]:
    return f"{found.value:.2f}", f"{found.low:.2f} to {found.high:.2f}"
