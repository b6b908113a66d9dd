"""The figures of RR-7398 (section 2.1.2), with the shares that its text tells, by better-fit and by our planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench import verify
from bench.measure import Report, timed
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.ffd import first_fit_decreasing
from rmsplugin.packing.item import Item
from rmsplugin.packing.search import Search
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import place

#: The report has one dimension: memory is never short here. VMs have equal memory, so all migrations cost the same.
_NODE_MIB, _VM_MIB = 1 << 20, 1024

_Hosts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Figure:
    """Nodes with workloads of so many per cents of one, and the event that the figure shows."""

    shows: str
    there: Mapping[str, Mapping[str, int]]
    arrives: Mapping[str, int] = field(default_factory=dict)
    ends: str = ""
    spare: tuple[str, ...] = ()  # nodes that have nothing


FIGURES = {
    1: Figure(
        "a workload arrives",
        {"PM1": {"WL1": 10, "WL2": 40, "WL3": 40}, "PM2": {"WL4": 30, "WL5": 30, "WL6": 20, "WL7": 10}},
        arrives={"WL8": 20},
        spare=("PM3",),
    ),
    2: Figure(
        "a workload ends",
        {"PM1": {"WL1": 40, "WL2": 30, "WL3": 15, "WL4": 5}, "PM2": {"WL5": 10, "WL6": 90}},
        ends="WL6",
    ),
    3: Figure("a node is little used", {"PM1": {"WL1": 40, "WL2": 30}, "PM2": {"WL3": 10, "WL4": 10}}),
}


def _vms(figure: Figure) -> dict[str, VM]:
    """All workloads that are there after the event."""
    percents = {
        name: percent for hosted in (*figure.there.values(), figure.arrives) for name, percent in hosted.items()
    }
    return {
        name: VM(name, Resources(percent / 100, _VM_MIB)) for name, percent in percents.items() if name != figure.ends
    }


def _nodes(figure: Figure) -> list[Node]:
    return [Node(name, Resources(1.0, _NODE_MIB)) for name in (*figure.there, *figure.spare)]


def _before(figure: Figure) -> dict[str, str]:
    """The nodes of those that stay."""
    return {name: node for node, hosted in figure.there.items() for name in hosted if name != figure.ends}


def _better_fit(figure: Figure) -> _Hosts:
    fit, vms, before = BetterFit(_nodes(figure)), _vms(figure), _before(figure)
    for name, node in before.items():
        fit.put(Item(vms[name]), node)
    for name in figure.arrives:
        fit.insert(Item(vms[name]))
    left = [node for node, hosted in figure.there.items() if figure.ends in hosted] or fit.underloaded()
    if not figure.arrives:
        for node in left:
            fit.empty(node)
    return fit.assignment


def _ours(figure: Figure) -> _Hosts:
    """The cheapest plan that leads to the fewest nodes, as with ``--objective nodes``."""
    vms, before, nodes = _vms(figure), _before(figure), _nodes(figure)
    vjobs = tuple(VJob(name, (vm,)) for name, vm in vms.items())
    locations = {name: running_on(before[name]) if name in before else WAITING for name in vms}
    source = Configuration(tuple(nodes), vjobs, locations)
    sample = first_fit_decreasing(list(vms.values()), {node.name: node.capacity for node in nodes})
    if sample is None:
        raise verify.WrongAnswerError("the figure's workloads have room")
    states = dict.fromkeys(vms, VJobState.RUNNING)
    found = place(source, states, sample, "nodes", Search(time_limit_s=5.0, workers=1))
    if isinstance(found, Unreachable):
        raise verify.WrongAnswerError(found.explanation)
    verify.plan(source, found.target, found.plan)
    return {name: str(at.node) for name, at in found.target.items()}


_CONTENDERS: Mapping[str, Callable[[Figure], _Hosts]] = {"better-fit": _better_fit, "ours": _ours}


def run(report: Report) -> None:
    """Let both do what each figure shows."""
    rows = []
    for number, figure in FIGURES.items():
        before, vms = _before(figure), _vms(figure)
        for who, act in _CONTENDERS.items():
            after, seconds = timed(lambda act=act, figure=figure: act(figure))
            used = len(set(after.values()))
            verify.packing(vms.values(), _nodes(figure), after, used)
            moved = sum(before[name] != after[name] for name in before)
            report.record(figure=number, who=who, after=used, moved=moved, seconds=seconds)
            rows.append([f"{number}: {figure.shows}", who, len(figure.there), used, moved, 1000 * seconds])
    report.table(["figure of RR-7398", "who", "nodes before", "nodes", "migrations", "ms"], rows)
