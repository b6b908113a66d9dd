"""aa. Arrivals and ends of VMs: better-fit (RR-7398) beside best-fit, First Fit Decreasing and our packing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import figures, verify
from bench.measure import Report, mean, progress, ratio, timed
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.bounds import fewest
from rmsplugin.packing.classes import classify
from rmsplugin.packing.ffd import first_fit_decreasing
from rmsplugin.packing.item import Item
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, pack
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import place


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    nodes: int = 100
    load: float = 0.7
    events: int = 200
    seeds: int = 2
    time_limit_s: float = 0.25  # of a packing at each event; 20 times that once in a cycle


SIZES = {
    "full": Sizes(),
    "quick": Sizes(events=100, seeds=1, time_limit_s=0.1),
    "tiny": Sizes(nodes=6, load=0.5, events=25, seeds=1, time_limit_s=0.02),
}

#: Packing again and again is done once in so many events: about what happens in a cycle.
_CYCLE = 20

#: An event: a VM that arrives, or the name of one that ends.
_Event = Item | str


_MEMORY_MIB = 3072


def _one_dimension(chance: random.Random) -> Resources:
    return Resources(chance.randint(5, 40) / 100, 0)


def _few_sizes(chance: random.Random) -> Resources:
    return Resources(chance.choice((0.1, 0.25, 0.5)), chance.choice((256, 512, 1024)))


def _any_sizes(chance: random.Random) -> Resources:
    return Resources(chance.randint(5, 50) / 100, chance.randrange(64, 1600, 64))


_FAMILIES: Mapping[str, Callable[[random.Random], Resources]] = {
    "CPU alone, 5 to 40 %": _one_dimension,
    "3 sizes of CPU and memory": _few_sizes,
    "any CPU and memory": _any_sizes,
}


def _generated(
    demand: Callable[[random.Random], Resources], sizes: Sizes, seed: int
) -> tuple[list[Item], list[_Event]]:
    """VMs that fill the nodes up to the load, and the events after that, with which the load stays about the same."""
    chance = random.Random(seed)
    there: dict[str, Item] = {}
    first: list[Item] = []
    events: list[_Event] = []
    number = 0
    while len(events) < sizes.events:
        cpus = sum(each.vm.demand.cpus for each in there.values()) / sizes.nodes
        memory = sum(each.vm.demand.memory_mib for each in there.values()) / (_MEMORY_MIB * sizes.nodes)
        full = max(cpus, memory) >= sizes.load
        if full or (events and there and chance.random() < 0.3):
            events.append(chance.choice(list(there)))
            del there[str(events[-1])]
            continue
        number += 1
        item = there[f"v{number}"] = Item(VM(f"v{number}", demand(chance)))
        (events if events else first).append(item)
    return first, events


# -- contenders --------------------------------------------------------------------------------------------------------

_Places = Mapping[str, str]


@dataclass
class _Site:
    """The nodes and the VMs that are there, by name."""

    nodes: Sequence[Node]
    vms: dict[str, Item]
    fit: BetterFit
    time_limit_s: float
    since: int = 0  # events since all was packed anew

    def see(self, event: _Event) -> None:
        if isinstance(event, str):
            del self.vms[event]
        else:
            self.vms[event.vm.name] = event


def _insert(site: _Site, event: Item) -> None:
    if not site.fit.insert(event):
        raise verify.WrongAnswerError(f"no room for {event.vm.name}, at this load")


def _better_fit(site: _Site, event: _Event) -> _Places:
    if isinstance(event, str):
        site.fit.empty(site.fit.remove(event))
    else:
        _insert(site, event)
    return site.fit.assignment


def _best_fit(site: _Site, event: _Event) -> _Places:
    """Nobody moves."""
    if isinstance(event, str):
        site.fit.remove(event)
    else:
        _insert(site, event)
        node = site.fit.remove(event.vm.name)
        site.fit.put(event, node, stays=True)
    return site.fit.assignment


def _ffd(site: _Site, event: _Event) -> _Places:
    free = {node.name: node.capacity for node in site.nodes}
    return first_fit_decreasing([item.vm for item in site.vms.values()], free) or {}


def _ours(site: _Site, event: _Event) -> _Places:
    search = Search(time_limit_s=site.time_limit_s, workers=1)
    found = pack(list(site.vms.values()), site.nodes, search, site.fit.assignment)
    if isinstance(found, NoPacking):
        raise verify.WrongAnswerError(found.explanation)
    site.fit = _holding(site.nodes, site.vms, found.assignment)
    return found.assignment


def _ours_each_cycle(site: _Site, event: _Event) -> _Places:
    """Best fit; and once in a cycle the cheapest plan that leads to the fewest nodes (``--objective nodes``)."""
    site.since += 1
    now = _best_fit(site, event)
    if site.since % _CYCLE:
        return now
    vjobs = tuple(VJob(name, (item.vm,)) for name, item in site.vms.items())
    source = Configuration(tuple(site.nodes), vjobs, {name: running_on(node) for name, node in now.items()})
    states = dict.fromkeys(site.vms, VJobState.RUNNING)
    limits = Search(time_limit_s=_CYCLE * site.time_limit_s, workers=1)
    found = place(source, states, now, "nodes", limits, clock=time.monotonic)
    if isinstance(found, Unreachable):
        raise verify.WrongAnswerError(found.explanation)
    verify.plan(source, found.target, found.plan)
    hosts = {name: str(at.node) for name, at in found.target.items()}
    site.fit = _holding(site.nodes, site.vms, hosts)
    return hosts


_OURS = f"ours, a plan each {_CYCLE} events"
_CONTENDERS: Mapping[str, Callable[[_Site, _Event], _Places]] = {
    "best-fit, nobody moves": _best_fit,
    "better-fit": _better_fit,
    "FFD at each event": _ffd,
    "ours, packed at each event": _ours,
    _OURS: _ours_each_cycle,
}


def _holding(nodes: Sequence[Node], vms: Mapping[str, Item], places: _Places, *, stay: bool = True) -> BetterFit:
    fit = BetterFit(nodes)
    for name, item in vms.items():
        if name in places:
            fit.put(item, places[name], stays=stay)
    return fit


# -- the benchmark -----------------------------------------------------------------------------------------------------


def run(sizes: Sizes, report: Report) -> None:
    """Let each contender live through the same events."""
    report.title("aa", f"arrivals and ends of VMs on {sizes.nodes} nodes, load {sizes.load:g}")
    figures.run(report)
    rows = []
    for family, demand in _FAMILIES.items():
        for contender in _CONTENDERS:
            for seed in range(sizes.seeds):
                progress(f"aa: {family}, {contender}, {seed}")
                _live_through(family, contender, _generated(demand, sizes, seed), sizes, report, seed)
            rows.append(_row(family, contender, report))
    progress("")
    report.table(["family", "contender", "nodes", "bound", "migrations", "GiB moved", "ms an event"], rows)
    found = {name: report.of(contender=name) for name in _CONTENDERS}
    nodes = {name: sum(float(r["nodes"]) for r in records) for name, records in found.items()}
    report.ratio("nodes of better-fit / ours each cycle", ratio(nodes[_OURS], nodes["better-fit"]))
    report.ratio("nodes of best-fit / better-fit", ratio(nodes["better-fit"], nodes["best-fit, nobody moves"]))


def _live_through(
    family: str, contender: str, given: tuple[list[Item], list[_Event]], sizes: Sizes, report: Report, seed: int
) -> None:
    first, events = given
    nodes = [Node(f"n{i}", Resources(1.0, _MEMORY_MIB)) for i in range(sizes.nodes)]
    start = _Site(nodes, {}, BetterFit(nodes), 0)
    for item in first:
        start.see(item)
        _best_fit(start, item)
    places: _Places = start.fit.assignment
    site = _Site(nodes, dict(start.vms), start.fit, sizes.time_limit_s)
    if contender == "better-fit":
        site.fit = _holding(nodes, site.vms, places, stay=False)
    used, bounds, moved, seconds = [], [], [], 0.0
    for event in events:
        site.see(event)
        after, took_s = timed(lambda event=event: _CONTENDERS[contender](site, event))
        verify.packing([item.vm for item in site.vms.values()], nodes, after, len(set(after.values())))
        seconds += took_s
        moved += [site.vms[name].vm for name, node in after.items() if places.get(name, node) != node]
        used.append(len(set(after.values())))
        bounds.append(fewest(classify(list(site.vms.values()), nodes)))
        places = after
    report.record(
        family=family,
        contender=contender,
        seed=seed,
        events=len(events),
        nodes=mean(used),
        bound=mean(bounds),
        migrations=len(moved),
        moved_mib=sum(vm.demand.memory_mib for vm in moved),
        seconds=seconds,
    )


def _row(family: str, contender: str, report: Report) -> list[Any]:
    found = report.of(family=family, contender=contender)
    migrations = round(mean(r["migrations"] for r in found))
    gib = mean(r["moved_mib"] for r in found) / 1024
    ms = 1000 * sum(r["seconds"] for r in found) / sum(r["events"] for r in found)
    return [family, contender, mean(r["nodes"] for r in found), mean(r["bound"] for r in found), migrations, gib, ms]
