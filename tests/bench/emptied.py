"""aj. Nodes that are emptied to be switched off: what a plan costs and saves, beside one for the fewest nodes.

A plan has to be repaid within half an hour, and to be found within 5 s.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench import verify
from bench.measure import Report, mean, progress, ratio, timed
from rmsplugin.energy.emptying import REPAID_S, Emptying, expected_rest_s, idle_after_s
from rmsplugin.energy.power import PowerClass
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.target.placement import place
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.terms import Terms


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    nodes: int = 1000
    plans: int = 20  # one after the other, as cycles make them
    seeds: int = 3
    time_limit_s: float = 60.0  # of the plan onto the fewest nodes


SIZES = {
    "full": Sizes(),
    "quick": Sizes(plans=5, seeds=1, time_limit_s=20.0),
    "tiny": Sizes(nodes=12, plans=2, seeds=1, time_limit_s=0.2),
}

#: A plan is to be found within so many seconds.
_SOON_S = 5.0
#: The watts and times of RR-7398's experiment, as in docs/reproduction.md.
_POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)
_NODE = Resources(16, 65536)
_MIB = (2048, 4096, 8192)
_UNDERLOAD = 0.2
_ONE, _ALL = "one node at a time", "the fewest nodes at once"


def _site(nodes: int, seed: int) -> Configuration:
    """All run, viable: nodes with up to nine tenths of their memory used, vjobs of 1 to 8 VMs of any nodes."""
    chance = random.Random(f"emptied/{nodes}/{seed}")
    cluster = tuple(Node(f"n{number:04}", _NODE) for number in range(nodes))
    there: list[tuple[Resources, str]] = []
    for node in cluster:
        left = Resources(_NODE.cpus, round(_NODE.memory_mib * chance.uniform(0.0, 0.9)))
        while left.holds(demand := Resources(chance.choice((0.5, 1, 2)), chance.choice(_MIB))):
            left -= demand
            there.append((demand, node.name))
    chance.shuffle(there)
    queue: list[VJob] = []
    locations: dict[str, Location] = {}
    while there:
        name = f"vjob{len(queue)}"
        members = [there.pop() for _ in range(min(len(there), chance.choice((1, 1, 2, 4, 8))))]
        vms = tuple(VM(f"{name}-{number}", demand) for number, (demand, _) in enumerate(members))
        queue.append(VJob(name, vms, ran_s=chance.uniform(600.0, 86400.0)))
        locations |= {vm.name: running_on(node) for vm, (_, node) in zip(vms, members, strict=True)}
    return Configuration(cluster, tuple(queue), locations)


def _terms(source: Configuration) -> Terms:
    """As the engine has them where no idle period has ended yet: a node has something until its last vjob ends."""
    rests_s: dict[str, list[float]] = {}
    for vjob in source.vjobs:
        rest_s = expected_rest_s(vjob.ran_s, vjob.time_limit_s)
        for vm in vjob.vms:
            rests_s.setdefault(str(source.locations[vm.name].node), []).append(rest_s)
    idle_s = {name: idle_after_s(rests, None, 0.0) for name, rests in rests_s.items()}
    return Terms(Emptying(_UNDERLOAD), dict.fromkeys((node.name for node in source.nodes), _POWER), idle_s)


# -- what a plan costs, and saves --------------------------------------------------------------------------------------


def _saves_j(emptied: int) -> float:
    """What nodes that are off take less in half an hour than idle ones, if going off and coming on took nothing."""
    return emptied * REPAID_S * (_POWER.idle_w - _POWER.off_w)


def _costs_j(emptied: int, actions: Iterable[Action]) -> float:
    """What nodes take more while they go off and come on, and migrations, which keep a CPU busy at both ends."""
    switching_j = (_POWER.transition_w - _POWER.off_w) * _POWER.off_s + _POWER.transition_w * _POWER.on_s
    cpu_w = (_POWER.busy_w - _POWER.idle_w) / _NODE.cpus
    durations = Durations()
    moving_s = sum(durations.of(each).seconds(each.vm.demand.memory_mib) for each in actions)
    return emptied * switching_j + 2 * cpu_w * moving_s


def _used(locations: Mapping[str, Location]) -> set[str]:
    return {str(at.node) for at in locations.values()}


# -- the benchmark -----------------------------------------------------------------------------------------------------


def run(sizes: Sizes, report: Report) -> None:
    """Empty nodes of the same sites in both ways."""
    report.title("aj", f"nodes emptied to be switched off, {sizes.nodes} nodes")
    for seed in range(sizes.seeds):
        source = _site(sizes.nodes, seed)
        progress(f"aj: {_ONE}, {seed}")
        _one_by_one(source, sizes.plans, seed, report)
        progress(f"aj: {_ALL}, {seed}")
        _all_at_once(source, sizes.time_limit_s, seed, report)
    progress("")
    headers = ["plans", "n", "VMs", "nodes emptied", "migrations", "cost / saved in 30 min", "worst", "s", "worst s"]
    report.table(headers, [_row(contender, report) for contender in (_ONE, _ALL)])
    one, everything = report.of(contender=_ONE), report.of(contender=_ALL)
    report.ratio(f"saved in 30 min / cost, the worst plan of {_ONE}", min(r["saves_j"] / r["costs_j"] for r in one))
    report.ratio(f"saved in 30 min / cost, {_ALL}", ratio(_sum(everything, "costs_j"), _sum(everything, "saves_j")))
    report.ratio(f"{_SOON_S:g} s / the longest search of {_ONE}", ratio(max(r["seconds"] for r in one), _SOON_S))


def _one_by_one(source: Configuration, plans: int, seed: int, report: Report) -> None:
    """As cycles do: the next plan begins where the last one has led."""
    for _ in range(plans):
        found, seconds = timed(lambda source=source: empty_one(source, _terms(source), ProposalParameters("slowdown")))
        if found is None:
            raise verify.WrongAnswerError("no node is worth to be emptied")
        proposal = found.prepared.proposal
        assert proposal is not None
        target = {**source.locations, **proposal.target}
        _record(_ONE, source, target, proposal.plan, seconds, seed, report)
        if found.node in _used(target):
            raise verify.WrongAnswerError(f"{found.node} is not empty")
        last = report.of(contender=_ONE)[-1]
        if last["costs_j"] > last["saves_j"]:
            raise verify.WrongAnswerError(f"{found.node} costs more than it saves in half an hour")
        source = Configuration(source.nodes, source.vjobs, target)


def _all_at_once(source: Configuration, time_limit_s: float, seed: int, report: Report) -> None:
    """``--objective nodes``."""
    states = {vjob.name: VJobState.RUNNING for vjob in source.vjobs}
    now = {name: str(at.node) for name, at in source.locations.items()}
    limits = Search(time_limit_s=time_limit_s, workers=1)
    found, seconds = timed(lambda: place(source, states, now, "nodes", limits, clock=time.monotonic))
    if isinstance(found, Unreachable):
        raise verify.WrongAnswerError(found.explanation)
    _record(_ALL, source, {**source.locations, **found.target}, found.plan, seconds, seed, report)


def _record(
    contender: str,
    source: Configuration,
    target: Mapping[str, Location],
    plan: Plan,
    seconds: float,
    seed: int,
    report: Report,
) -> None:
    verify.plan(source, target, plan)
    actions = list(plan.actions())
    if contender == _ONE and any(each.kind is not ActionKind.MIGRATE for each in actions):
        raise verify.WrongAnswerError("more is done than to migrate")
    emptied = len(_used(source.locations) - _used(target)) - len(_used(target) - _used(source.locations))
    report.record(
        contender=contender,
        seed=seed,
        vms=len(source.locations),
        emptied=emptied,
        migrations=len(actions),
        costs_j=_costs_j(emptied, actions),
        saves_j=_saves_j(emptied),
        seconds=seconds,
    )


def _row(contender: str, report: Report) -> list[object]:
    found = report.of(contender=contender)
    return [
        contender,
        len(found),
        round(mean(r["vms"] for r in found)),
        mean(r["emptied"] for r in found),
        mean(r["migrations"] for r in found),
        ratio(_sum(found, "saves_j"), _sum(found, "costs_j")),
        max(ratio(r["saves_j"], r["costs_j"]) for r in found),
        mean(r["seconds"] for r in found),
        max(r["seconds"] for r in found),
    ]


def _sum(found: Iterable[Mapping[str, float]], name: str) -> float:
    return sum(each[name] for each in found)
