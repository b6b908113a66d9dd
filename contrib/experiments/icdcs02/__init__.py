"""ICDCS 2002: dynamic load sharing on 32 workstations, without and with virtual reconfigurations, and ours.

Of the paper's model of page faults, its CPU threshold, and how memory demands grow, nothing is published: what is
assumed instead is varied, with --vary.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from experiments.icdcs02.cluster import NETWORK_MB_PER_S, REMOTE_S, Assumptions, Policy, Result, Simulation
from experiments.icdcs02.policies import BySlowdown, LoadSharing, NoSharing, Ours, Reconfiguring
from experiments.icdcs02.signs import Watched, signs
from experiments.icdcs02.workload import GROUPS, RATES, Arrivals, Group, Rate, trace
from experiments.tables import table
from rmsplugin.decision.reservation import ReservationLimits
from rmsplugin.decision.unblocking import Prices
from rmsplugin.packing.search import Search

POLICIES = ("no sharing", "G-Loadsharing", "V-Reconfiguration", "ours")

#: The rows of each trace.
ROWS = (*POLICIES, "ours, slowdown")

#: What V-Reconfiguration takes off G-Loadsharing in the paper, in %, by group and measure, for traces 1 to 5. Blank:
#: "modest", "small" or "almost the same"; what is in its figures only cannot be read from its text.
PAPER: dict[str, dict[str, Sequence[float | None]]] = {
    "SPEC": {
        "execution": (29.3, 32.4, 32.4, 30.3, 27.4),
        "queuing": (24.8, 35.8, 36.7, 34.0, 38.2),
        "slowdown": (23.4, 27.7, 22.6, 24.6, 28.46),
        "idle memory": (12.9, 24.2, 29.7, 40.9, 50.8),
    },
    "App": {
        "execution": (None, 13.4, 14.0, None, None),
        "queuing": (None, 16.3, 16.8, None, None),
        "slowdown": (None, 16.3, 16.8, 6.8, None),
        "skew": (None, 10.3, 16.5, 6.3, None),
    },
}

MEASURES: dict[str, Callable[[Result], float]] = {
    "execution": lambda each: each.total_s,
    "queuing": lambda each: each.queue_s,
    "slowdown": lambda each: each.slowdown,
    "idle memory": lambda each: each.idle_mb,
    "skew": lambda each: each.skew,
}


#: Who waits for a fifth of its time suffers; the paper bounds neither the number of reserved workstations nor the time.
LIMITS = ReservationLimits(serious_faults_per_s=20.0, most_share=0.5)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run rests on, besides its group and its rate.

    Args:
        given: the workstations.
        estimate: an arrival about which nothing is known is expected to need this share of the user memory.
        limits: of V-Reconfiguration, and of ours.
        arrivals: how submissions are spread.
        seed: of the traces.
        learns: whether ours expects of a job what earlier ones of its program needed.
        compacts: whether ours looks for compactions.
    """

    given: Assumptions = field(default_factory=Assumptions)
    estimate: float = 0.1
    limits: ReservationLimits = LIMITS
    arrivals: Arrivals = "lognormal"
    seed: int = 1
    learns: bool = True
    compacts: bool = True

    def policy(self, name: str, group: Group) -> Policy:
        """A policy, by its name."""
        estimate_mib = max(1, int(self.given.user_mb(group) * self.estimate))
        if name == "no sharing":
            return NoSharing(estimate_mib)
        if name == "G-Loadsharing":
            return LoadSharing(estimate_mib)
        if name == "V-Reconfiguration":
            return Reconfiguring(estimate_mib, self.limits)
        search = Search(time_limit_s=math.inf, deterministic_limit=0.02) if self.compacts else None
        prices = Prices(REMOTE_S, NETWORK_MB_PER_S, self.given.disk_mb_per_s, search, searches=1)
        ours = Ours if name == "ours" else BySlowdown
        return ours(estimate_mib, self.limits, prices, self.learns)

    def run(self, name: str, group: Group, rate: Rate) -> Result:
        """One trace under one policy."""
        submissions = trace(group, rate, self.seed, self.arrivals)
        return Simulation(group, submissions, self.policy(name, group), self.given).run()


def _changed(**fields: object) -> Callable[[Setup], Setup]:
    return lambda setup: replace(setup, given=replace(setup.given, **fields))  # type: ignore[arg-type]


def _paging(**fields: object) -> Callable[[Setup], Setup]:
    return lambda setup: replace(setup, given=replace(setup.given, paging=replace(setup.given.paging, **fields)))  # type: ignore[arg-type]


#: What is not published, changed one by one.
VARIANTS: dict[str, Callable[[Setup], Setup]] = {
    "as assumed": lambda setup: setup,
    "pages visited in 5 s": _paging(sweep_s=5.0),
    "pages visited in 30 s": _paging(sweep_s=30.0),
    "pages visited in 100 s": _paging(sweep_s=100.0),
    "the largest are short first": _paging(memory="equal"),
    "nobody computes during a fault": _paging(overlaps=False),
    "submissions evenly spread": lambda setup: replace(setup, arrivals="uniform"),
    "ours learns nothing": lambda setup: replace(setup, learns=False),
    "CPU threshold 3": _changed(slots=3),
    "CPU threshold 6": _changed(slots=6),
    "memory grows in 10 % of the life": _changed(growth=0.1),
    "unknown jobs need 40 % of a node": lambda setup: replace(setup, estimate=0.4),
    "at most 1/8 of the nodes reserved": lambda setup: replace(setup, limits=replace(setup.limits, most_share=0.125)),
    "states are written at 1 MB/s": _changed(disk_mb_per_s=1.0),
    "ours does not compact": lambda setup: replace(setup, compacts=False),
    "another seed": lambda setup: replace(setup, seed=setup.seed + 1),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--traces", type=int, nargs="+", choices=range(1, 6), default=range(1, 6), metavar="N")
    parser.add_argument("--groups", nargs="+", choices=[group.name for group in GROUPS], default=["SPEC", "App"])
    parser.add_argument("--seed", type=int, default=1, help="of the traces (default: 1)")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        metavar="N",
        help="ours in both orders under each of these seeds, in place of all tables",
    )
    parser.add_argument(
        "--policies", nargs="+", choices=ROWS, default=ROWS, metavar="NAME", help=f"of the tables: {'; '.join(ROWS)}"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="take only this many jobs of each trace, to try it")
    parser.add_argument(
        "--signs", action="store_true", help="idle memory and skew while jobs are submitted, in place of all tables"
    )
    parser.add_argument(
        "--vary", action="store_true", help="change what is assumed one by one, instead of the tables of all traces"
    )


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """All tables."""
    setup = Setup(seed=arguments.seed)
    for group in (group for group in GROUPS if group.name in arguments.groups):
        rates = {number: _rate(number, arguments.jobs) for number in arguments.traces}
        if arguments.signs:
            yield from _signs(setup, group, rates)
        elif arguments.seeds:
            yield from _seeds(setup, group, rates, arguments.seeds)
        else:
            varied = _varied(setup, group, rates)
            yield from varied if arguments.vary else _traces(setup, group, rates, arguments.policies)
        yield ""


def _rate(number: int, jobs: int | None) -> Rate:
    rate = RATES[number - 1]
    return rate if jobs is None else replace(rate, jobs=min(jobs, rate.jobs))


def _traces(setup: Setup, group: Group, rates: dict[int, Rate], policies: Sequence[str]) -> Iterator[str]:
    """A line for each trace and policy; then what it takes off G-Loadsharing, if that is one, beside the paper."""
    results: dict[tuple[int, str], Result] = {}

    def lines() -> Iterator[list[object]]:
        for number, rate in rates.items():
            for name in policies:
                results[number, name] = setup.run(name, group, rate)
                yield _line(group, number, name, results[number, name])

    titles = ["trace, policy", "execution (h)", "queuing (h)", "faults (h)", "moves (h)", "slowdown", "idle (MB)"]
    titles += ["skew", "last end (h)", "reserved", "migrations", "suspends"]
    yield from table(titles, lines())
    compared = [name for name in ROWS[2:] if name in policies and POLICIES[1] in policies]
    if not compared:
        return
    yield ""
    yield from table(
        ["trace", "measure", "paper", *compared],
        [
            [
                *(f"{group.name}-Trace-{number}", measure, _paper(group, measure, number)),
                *_reductions(results, number, of, compared),
            ]
            for number in rates
            for measure, of in MEASURES.items()
        ],
    )


def _signs(setup: Setup, group: Group, rates: dict[int, Rate]) -> Iterator[str]:
    """Of all policies that share load."""
    runs = []
    for number, rate in rates.items():
        for name in ROWS[1:]:
            submissions = trace(group, rate, setup.seed, setup.arrivals)
            watched = Watched(group, submissions, setup.policy(name, group), setup.given)
            watched.run()
            runs.append((f"{group.name}-Trace-{number}, {name}", watched))
    yield from signs(runs, setup.given, group)


def _seeds(setup: Setup, group: Group, rates: dict[int, Rate], seeds: Sequence[int]) -> Iterator[str]:
    """For each trace and seed: ours in the order of submissions, and what the order of ``slowdown`` changes of it.

    The last line of a trace has the sums over all seeds.
    """
    measures = [MEASURES[name] for name in ("execution", "queuing", "slowdown")]

    def lines() -> Iterator[list[object]]:
        for number, rate in rates.items():
            pairs = []
            for seed in seeds:
                seeded = replace(setup, seed=seed)
                pairs.append((seeded.run("ours", group, rate), seeded.run("ours, slowdown", group, rate)))
                yield [f"{group.name}-Trace-{number}, seed {seed}", *in_both_orders(pairs[-1:], measures)]
            if len(seeds) > 1:
                yield [f"{group.name}-Trace-{number}, all {len(seeds)}", *in_both_orders(pairs, measures)]

    columns = [f"slowdown: {what}" for what in ("execution", "queuing", "slowdown")]
    yield from table(["trace, seed", "ours: execution (h)", *columns], lines())


def in_both_orders(pairs: Sequence[tuple[Result, Result]], measures: Sequence[Callable[[Result], float]]) -> list[str]:
    """Hours of execution in the order of submissions, and what the other order adds to each measure."""
    sums = [[sum(map(of, side)) for side in zip(*pairs, strict=True)] for of in measures]
    hours = f"{sum(one.total_s for one, _ in pairs) / 3600:.1f}"
    return [hours, *(f"{100 * (other / one - 1):+.1f} %" for one, other in sums)]


def _line(group: Group, number: int, name: str, each: Result) -> list[object]:
    hours = [f"{value / 3600:.1f}" for value in (each.total_s, each.queue_s, each.paging_s, each.moving_s)]
    means = [f"{each.slowdown:.2f}", f"{each.idle_mb:.0f}", f"{each.skew:.2f}", f"{each.end_s / 3600:.2f}"]
    return [f"{group.name}-Trace-{number}, {name}", *hours, *means, f"{each.reserved:.1f}", each.moves, each.suspends]


def _paper(group: Group, measure: str, number: int) -> str:
    value = PAPER[group.name].get(measure, (None,) * len(RATES))[number - 1]
    return "" if value is None else f"{-value:.1f} %"


def _reductions(
    results: dict[tuple[int, str], Result], number: int, of: Callable[[Result], float], compared: Sequence[str]
) -> list[str]:
    base = of(results[number, POLICIES[1]])
    return [f"{100 * (of(results[number, name]) / base - 1):+.1f} %" for name in compared]


def _varied(setup: Setup, group: Group, rates: dict[int, Rate]) -> Iterator[str]:
    """For each change of what is assumed: what V-Reconfiguration and ours, in both orders, take off G-Loadsharing."""
    measures = [MEASURES[name] for name in ("execution", "queuing", "slowdown")]

    def lines() -> Iterator[list[object]]:
        for name, change in VARIANTS.items():
            for number, rate in rates.items():
                base, *others = (change(setup).run(policy, group, rate) for policy in ROWS[1:])
                parts = [f"{100 * (of(each) / of(base) - 1):+.1f} %" for each in others for of in measures]
                yield [f"{group.name}-Trace-{number}, {name}", f"{base.total_s / 3600:.0f}", *parts]

    columns = [f"{policy}: {what}" for policy in ("V", *ROWS[3:]) for what in ("execution", "queuing", "slowdown")]
    yield from table(["trace, assumption", "G: execution (h)", *columns], lines())
