"""Shares: the energy of a cluster by node, and by whose VMs were there.

A VM takes what its CPUs take. What its node takes besides is divided among all that are there, by their CPUs. What a
node takes while it has nothing, or goes off, is off and comes on, is nobody's: so all shares together are what the
cluster took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.energy.account import Account, OffTime, Span, account
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.meter import Energy, Meter, switch_off
from rmsplugin.energy.parameters import EnergyParameters

#: The owner of what is nobody's.
NOBODY = ""


@dataclass(frozen=True, slots=True)
class Use:
    """VMs of one owner on a node, which use so many CPUs meanwhile."""

    owner: str
    node: str
    begin_s: float
    end_s: float
    cpus: float


@dataclass(frozen=True, slots=True)
class Period:
    """The time that is looked at, and the clock that the tariff goes by."""

    begin_s: float
    end_s: float
    clock: LocalClock


def by_node(
    parameters: EnergyParameters,
    cpus: Mapping[str, int],
    uses: Iterable[Use],
    off_times: Iterable[OffTime],
    period: Period,
) -> dict[str, Account]:
    """The account of each node.

    Args:
        parameters: watts, tariff, CO2.
        cpus: of each node, by its name.
        uses: what was on the nodes.
        off_times: when nodes were off.
        period: what counts.
    """
    spans: dict[str, list[Span]] = {name: [] for name in cpus}
    for use in uses:
        spans[use.node].append(Span(use.node, use.begin_s, use.end_s, use.cpus))
    off: dict[str, list[OffTime]] = {name: [] for name in cpus}
    for each in off_times:
        off[each.node].append(each)
    found = {}
    for name in cpus:
        own = EnergyParameters({name: parameters.classes[name]}, price=parameters.price, co2=parameters.co2)
        span = (period.begin_s, period.end_s, period.clock)
        found[name] = account(own, cpus[name], spans[name], off[name], *span)
    return found


def by_owner(
    parameters: EnergyParameters,
    cpus: Mapping[str, int],
    uses: Iterable[Use],
    off_times: Iterable[OffTime],
    period: Period,
) -> dict[str, Energy]:
    """The energy of each owner, and of NOBODY; arguments as of ``by_node``."""
    meters: defaultdict[str, Meter] = defaultdict(lambda: Meter(parameters, period.begin_s, period.end_s, period.clock))
    there: dict[str, list[Use]] = {name: [] for name in cpus}
    for use in uses:
        there[use.node].append(use)
    for name, found in there.items():
        power = parameters.classes[name]
        for use in found:
            busy_w = (power.busy_w - power.idle_w) * use.cpus / cpus[name]
            meters[use.owner].add(busy_w, use.begin_s, use.end_s)
        _divide(meters, found, power.idle_w, period)
    for each in off_times:
        switch_off(meters[NOBODY], parameters.classes[each.node], each.begin_s, each.on_s)
    return {owner: meter.read() for owner, meter in sorted(meters.items())}


def _divide(meters: Mapping[str, Meter], uses: Sequence[Use], idle_w: float, period: Period) -> None:
    """Divide what a node takes when nothing computes among those that are there, by their CPUs."""
    changes = sorted(
        [(use.begin_s, 1, place) for place, use in enumerate(uses)]
        + [(use.end_s, 0, place) for place, use in enumerate(uses)]
    )
    present: set[int] = set()
    since_s = period.begin_s
    for at_s, comes, place in [*changes, (period.end_s, 0, -1)]:
        if at_s > since_s:
            _share(meters, [uses[each] for each in present], idle_w, since_s, at_s)
            since_s = at_s
        if comes:
            present.add(place)
        else:
            present.discard(place)


def _share(meters: Mapping[str, Meter], present: Sequence[Use], idle_w: float, begin_s: float, end_s: float) -> None:
    if not present:
        meters[NOBODY].add(idle_w, begin_s, end_s)
    total = sum(use.cpus for use in present)
    for use in present:
        meters[use.owner].add(idle_w * (use.cpus / total if total else 1 / len(present)), begin_s, end_s)


def total(energies: Iterable[Energy]) -> Energy:
    """The sum."""
    found = list(energies)
    costs, grams = [each.cost for each in found], [each.co2_kg for each in found]
    return Energy(
        sum(each.kwh for each in found),
        None if None in costs else sum(cost for cost in costs if cost is not None),
        None if None in grams else sum(kg for kg in grams if kg is not None),
    )
