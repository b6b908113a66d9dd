"""ad. Rules: the seconds of a proposal and its check with placement rules, next to those without, and the plans.

Then the CPU seconds of a decision of ``easy``, which reserves a start for one vjob, and of ``conservative``, which does
so for each vjob that waits; and of ``mixed`` and ``slowdown`` for crowded clusters, which search near where all are.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from bench.families import crowded
from bench.measure import Report, mean, progress, ratio, timed
from bench.verify import WrongAnswerError
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, NodeState, VJob, running_on, sleeping_on
from rmsplugin.model.joint import Capacity, Concerning, Gather, Joint, Lonely, Online, Root, Split, Spread, Within
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.item import Item
from rmsplugin.packing.remembered import answers
from rmsplugin.packing.ruled_fit import RuledFit, obeys
from rmsplugin.packing.search import Search
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

_CPUS, _MEMORY_MIB = (0.5, 1, 1, 2), (512, 1024, 2048, 2048)
#: Nodes of a leaf switch; fewer where there would be fewer than four switches.
_SWITCH = 32


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        nodes: so many, with five VMs each where there is room, and fewer where it is scarce.
        configurations: of each kind.
        turns: the number of times that each is measured without rules and with them.
        limit_s: of the search of a proposal, and of all exact checks of a decision.
        full: so many nodes whose CPUs are nearly all taken, and so many vjobs that wait for some.
        near: so many nodes of crowded clusters for decisions that search near where all are.
    """

    nodes: Sequence[int] = (200, 1000)
    configurations: int = 4
    turns: int = 3
    limit_s: float = 6.0
    full: Sequence[tuple[int, int]] = ((200, 40), (1000, 200))
    near: Sequence[int] = (100, 200)


SIZES = {
    "full": Sizes(),
    "quick": Sizes(configurations=1, turns=1),
    "tiny": Sizes(nodes=(12,), configurations=1, turns=1, limit_s=0.5, full=((12, 6),), near=(12,)),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure proposals, decisions that reserve starts, and decisions that search near where all are."""
    _proposals(sizes, report)
    _reservations(sizes, report)
    _crowded(sizes, report)


def _proposals(sizes: Sizes, report: Report) -> None:
    """Measure each kind of cluster, with and without rules."""
    report.title("ad", f"placement rules: seconds of a proposal and its check; limit {sizes.limit_s} s")
    rows = []
    for nodes in sizes.nodes:
        for kind, make in (("roomy", roomy), ("switches", switched), ("crowded", scarce)):
            seeds = range(sizes.configurations)
            for seed in seeds:
                progress(f"ad: {nodes} nodes, {kind}, {seed}")
                source = make(nodes, seed)
                _measure(source, kind, nodes, seed, sizes, report)
            found = report.of(nodes=nodes, kind=kind)
            seconds = {ruled: mean(each["seconds"] for each in found if each["ruled"] is ruled) for ruled in (0, 1)}
            report.ratio(f"{kind}, {nodes} nodes: seconds with rules / without", ratio(seconds[0], seconds[1]))
            most = max(_cpu_ratio([each for each in found if each["seed"] == seed]) for seed in seeds)
            report.ratio(f"{kind}, {nodes} nodes: most CPU s of a cluster with rules / without", most)
            costs = [round(mean(each[key] for each in found if each["ruled"])) for key in ("cost", "lower_bound")]
            barred = mean(each["barred"] for each in found if each["ruled"])
            rows.append([f"{kind}, {nodes} nodes", found[-1]["rules"], seconds[0], seconds[1], *costs, barred])
    progress("")
    report.table(["cluster", "rules", "s without", "s with", "cost", "bound", "vjobs kept out by rules"], rows)


def _measure(source: Configuration, kind: str, nodes: int, seed: int, sizes: Sizes, report: Report) -> None:
    """Measure one cluster without rules and with them, in turn; of each the least CPU time counts."""
    parameters = ProposalParameters("rjsp", search=Search(time_limit_s=sizes.limit_s))
    for ruled in [0, 1] * sizes.turns:
        configuration = replace(source) if ruled else _without_rules(source)
        gc.collect()
        gc.freeze()  # as the proposing process does with each request
        began = time.process_time()
        found, seconds = timed(lambda c=configuration: propose(c, parameters))
        if not isinstance(found, Proposal):
            raise WrongAnswerError(f"no proposal: {found.explanation}")
        faults, check_s = timed(lambda c=configuration, f=found: check(c, f))
        cpu_s = time.process_time() - began
        gc.unfreeze()
        if faults:
            raise WrongAnswerError(faults[0])
        report.record(
            kind=kind,
            nodes=nodes,
            seed=seed,
            ruled=ruled,
            rules=len(source.joint),
            seconds=seconds + check_s,
            cpu_s=cpu_s,
            check_s=check_s,
            cost=found.plan.cost,
            lower_bound=found.lower_bound,
            barred=sum(reason.code == "rule" for reason in found.decision.reasons.values()),
        )


def _cpu_ratio(found: Sequence[dict[str, Any]]) -> float:
    """The least CPU time of one cluster with rules, beside that without."""
    least = [min(each["cpu_s"] for each in found if each["ruled"] is ruled) for ruled in (0, 1)]
    return ratio(least[0], least[1])


def _reservations(sizes: Sizes, report: Report) -> None:
    """Measure decisions that reserve starts for nodes that are full, with and without rules in turn: the least of each.

    ``easy`` reserves for one vjob, and ``conservative`` for each that waits. It is decided once.
    """
    rows = []
    for (nodes, waiting), policy in itertools.product(sizes.full, ("easy", "conservative")):
        progress(f"ad: {policy}, {nodes} nodes")
        source = full(nodes, waiting, 0)
        turns = [
            [_decided(policy, replace(each), sizes, report) for each in (_without_rules(source), source)]
            for _ in range(sizes.turns if policy == "easy" else 1)
        ]
        plain, ruled = (min(kind, key=lambda each: each["cpu_s"]) for kind in zip(*turns, strict=True))
        report.ratio(f"{policy}, {nodes} nodes: CPU s with rules / without", ratio(plain["cpu_s"], ruled["cpu_s"]))
        numbers = [each[key] for key in ("cpu_s", "started") for each in (plain, ruled)]
        rows.append([f"full, {nodes} nodes, {policy}", len(source.vjobs), waiting, ruled["rules"], *numbers])
    progress("")
    report.table(
        ["cluster", "vjobs", "waiting", "rules", "CPU s without", "CPU s with", "started without", "started with"], rows
    )


def _crowded(sizes: Sizes, report: Report) -> None:
    """Measure decisions of ``mixed`` and ``slowdown`` for crowded nodes, without and with rules in turn."""
    rows = []
    for nodes, policy in itertools.product(sizes.near, ("mixed", "slowdown")):
        found: list[tuple[dict[str, float], dict[str, float]]] = []
        for seed in range(sizes.configurations):
            progress(f"ad: {policy}, {nodes} nodes, {seed}")
            source = scarce(nodes, seed)
            plain, ruled = (_decided(policy, each, sizes, report) for each in (_without_rules(source), source))
            found.append((plain, ruled))
        seconds = [mean(each["cpu_s"] for each in kind) for kind in zip(*found, strict=True)]
        runs = [mean(each["run"] for each in kind) for kind in zip(*found, strict=True)]
        report.ratio(f"{policy}, crowded, {nodes} nodes: CPU s with rules / without", ratio(*seconds))
        rows.append([f"crowded, {nodes} nodes, {policy}", *seconds, *runs])
    progress("")
    report.table(["cluster", "CPU s without", "CPU s with", "vjobs run without", "run with"], rows)


def _decided(policy: str, configuration: Configuration, sizes: Sizes, report: Report) -> dict[str, float]:
    """One decision, by a process that remembers no answers: its CPU seconds, who runs, and who of these starts."""
    parameters = Parameters(search=Search(deterministic_limit=sizes.limit_s))
    answers.cache_clear()
    began = time.process_time()
    found = decide_by_rules(policy, configuration, parameters)
    cpu_s = time.process_time() - began
    if not isinstance(found, Decision):
        raise WrongAnswerError(f"no decision: {found.explanation}")
    if not obeys(configuration.concerning, configuration.homes, found.placement):
        raise WrongAnswerError("a rule is broken")
    runs = [vjob for vjob in configuration.vjobs if found.states[vjob.name] is VJobState.RUNNING]
    started = sum(configuration.state(vjob) is VJobState.WAITING for vjob in runs)
    told = {"rules": len(configuration.joint), "cpu_s": cpu_s, "run": len(runs), "started": started}
    report.record(kind="decision", nodes=len(configuration.nodes), policy=policy, **told)
    return told


def _without_rules(source: Configuration) -> Configuration:
    return replace(source, vjobs=tuple(replace(vjob, rules=()) for vjob in source.vjobs))


def scarce(nodes: int, seed: int) -> Configuration:
    """Nodes that are nearly full: VMs of every sixth vjob are to be spread, and of every twelfth do not migrate."""
    source = crowded(nodes, 4.0, seed)
    rules = [Spread(_names([vjob])) for vjob in source.vjobs[::6]]
    return _with_rules(source, [*rules, Root(_names(source.vjobs[3::12]))])


def roomy(nodes: int, seed: int) -> Configuration:
    """Nodes half full of VMs that obey rules of each kind; one in a hundred drains, vjobs sleep and wait."""
    return _half_full(nodes, seed, _rules)


def switched(nodes: int, seed: int) -> Configuration:
    """The same nodes on leaf switches: half of the vjobs with several VMs are on one each, a few more on two.

    That is what users ask for by ``--switches``.
    """
    return _half_full(nodes, seed, _near)


def _half_full(
    nodes: int, seed: int, make: Callable[[Sequence[VJob], Sequence[str]], Iterable[Joint]]
) -> Configuration:
    """Nodes half full of VMs that obey the rules that are made of all vjobs and the names of the nodes."""
    chance = Random(seed)
    cluster = [Node(f"n{i}", Resources(8, 16384)) for i in range(nodes)]
    vjobs = list(_vjobs(chance, 5 * nodes))
    rules = list(make(vjobs, [node.name for node in cluster]))
    fit = RuledFit(cluster, Concerning(rules), {})
    locations: dict[str, Location] = {}
    for vjob in vjobs:
        prefer = {vm.name: chance.choice(cluster).name for vm in vjob.vms}
        state = chance.choice(["running"] * 6 + ["sleeping", "waiting"])
        found = fit.place([Item(vm) for vm in vjob.vms], prefer) if state == "running" else None
        if isinstance(found, dict):
            locations |= {name: running_on(node) for name, node in found.items()}
        elif state == "sleeping":
            locations |= {name: sleeping_on(node) for name, node in prefer.items()}
        else:
            locations |= dict.fromkeys(prefer, WAITING)
    leaving = {node.name for node in chance.sample(cluster, max(1, nodes // 100))}
    chance.shuffle(vjobs)
    nodes_now = [replace(each, state=NodeState.DRAINING) if each.name in leaving else each for each in cluster]
    return _with_rules(Configuration(tuple(nodes_now), tuple(vjobs), locations), rules)


def full(nodes: int, waiting: int, seed: int) -> Configuration:
    """Nodes full of VMs that obey rules of each kind, and so many vjobs that find no place; each ends in an hour or 24.

    Vjobs come in random order, and run if capacity and rules allow it.
    """
    chance = Random(seed)
    cluster = tuple(Node(f"n{i}", Resources(8, 16384)) for i in range(nodes))
    vjobs = [replace(each, time_limit_s=chance.uniform(3600, 86400)) for each in _vjobs(chance, 12 * nodes)]
    rules = list(_rules(vjobs, [node.name for node in cluster]))
    fit, locations = RuledFit(cluster, Concerning(rules), {}), dict[str, Location]()
    came: list[VJob] = []
    left = waiting
    for vjob in chance.sample(vjobs, len(vjobs)):
        found = fit.place([Item(vm) for vm in vjob.vms], {})
        if isinstance(found, dict):
            locations |= {name: running_on(node) for name, node in found.items()}
        elif left:
            locations |= dict.fromkeys((vm.name for vm in vjob.vms), WAITING)
            left -= 1
        else:
            break
        came.append(vjob)
    return _with_rules(Configuration(cluster, tuple(came), locations), rules)


def _vjobs(chance: Random, vms: int) -> Iterator[VJob]:
    number = 0
    while vms > 0:
        count = min(vms, chance.choice([1, 2, 4, 8, 9]))
        demand = Resources(chance.choice(_CPUS), chance.choice(_MEMORY_MIB))
        yield VJob(f"j{number}", tuple(VM(f"j{number}-{i}", demand) for i in range(count)))
        vms, number = vms - count, number + 1


def _rules(vjobs: Sequence[VJob], nodes: Sequence[str]) -> Iterator[Joint]:
    yield from (Spread(_names([vjob])) for vjob in [each for each in vjobs if len(each.vms) >= 4][::2])
    yield from (Gather(_names([vjob])) for vjob in [each for each in vjobs if len(each.vms) == 2][::3])
    yield Capacity(frozenset(nodes[: len(nodes) // 10]), _names(vjobs[::7]), len(nodes) // 4)
    yield Split((_names(vjobs[1::50]), _names(vjobs[2::50])))
    yield Lonely(_names(vjobs[5:7]))
    yield Root(_names(vjobs[3::20]))
    yield Online(frozenset(nodes), len(nodes) - len(nodes) // 50)


def _near(vjobs: Sequence[VJob], nodes: Sequence[str]) -> Iterator[Joint]:
    """Rules about leaf switches of equal size; none for a vjob that could not break it."""
    size = max(1, min(_SWITCH, len(nodes) // 4))
    switches = tuple(frozenset(nodes[at : at + size]) for at in range(0, len(nodes), size))
    several = [each for each in vjobs if len(each.vms) > 1]
    yield from (Within(switches, _names([vjob]), 1) for vjob in several[::2])
    wider = [each for each in several[1::2] if len(each.vms) > 2]
    yield from (Within(switches, _names([vjob]), 2) for vjob in wider[::2])


def _names(vjobs: Sequence[VJob]) -> frozenset[str]:
    return frozenset(vm.name for vjob in vjobs for vm in vjob.vms)


def _with_rules(source: Configuration, rules: Sequence[Joint]) -> Configuration:
    vjobs = []
    for vjob in source.vjobs:
        own = tuple(rule for rule in rules if any(rule.concerns(vm.name) for vm in vjob.vms))
        vjobs.append(replace(vjob, rules=own))
    return replace(source, vjobs=tuple(vjobs))
