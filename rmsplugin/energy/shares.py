"""Shares: the energy of a cluster by node, and by whose VMs were there.

A VM takes what its CPUs take; where VMs have more CPUs together than their node, each has so much less of them. What
its node takes besides is divided among all that are there, by their CPUs. What a node takes while it has nothing, or
goes off, is off and comes on, is nobody's: so all shares together are what the cluster took.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
    there = _by_node(cpus, uses)
    off: dict[str, list[OffTime]] = {name: [] for name in cpus}
    for each in off_times:
        off[each.node].append(each)
    found = {}
    for name in cpus:
        own = EnergyParameters({name: parameters.classes[name]}, price=parameters.price, co2=parameters.co2)
        span = (period.begin_s, period.end_s, period.clock)
        spans = [Span(name, use.begin_s, use.end_s, use.cpus) for use in there[name]]
        found[name] = account(own, cpus[name], spans, off[name], *span)
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
    for name, found in _by_node(cpus, uses).items():
        power = parameters.classes[name]
        for use in found:
            busy_w = (power.busy_w - power.idle_w) * use.cpus / cpus[name]
            meters[use.owner].add(busy_w, use.begin_s, use.end_s)
        _divide(meters, found, power.idle_w, period)
    for each in off_times:
        switch_off(meters[NOBODY], parameters.classes[each.node], each.begin_s, each.on_s)
    return {owner: meter.read() for owner, meter in sorted(meters.items())}


def _by_node(cpus: Mapping[str, int], uses: Iterable[Use]) -> dict[str, list[Use]]:
    """The uses of each node, of no more CPUs together than it has."""
    there: dict[str, list[Use]] = {name: [] for name in cpus}
    for use in uses:
        there[use.node].append(use)
    return {
        name: [part for use in found for part in _parts(use, *_had(found, cpus[name]))] for name, found in there.items()
    }


def _had(uses: Sequence[Use], cpus: int) -> tuple[list[float], list[float]]:
    """The part of their CPUs that these have together: the times at which it changes, and what it is from each on."""
    changes: defaultdict[float, float] = defaultdict(float)
    for use in uses:
        changes[use.begin_s] += use.cpus
        changes[use.end_s] -= use.cpus
    times, parts, wanted = [-math.inf], [1.0], 0.0
    for at_s, more in sorted(changes.items()):
        wanted += more
        part = cpus / wanted if wanted > cpus else 1.0
        if part != parts[-1]:
            times.append(at_s)
            parts.append(part)
    return times, parts


def _parts(use: Use, times: Sequence[float], parts: Sequence[float]) -> Iterator[Use]:
    """A use with the CPUs that it had, split where these change."""
    begin_s, place = use.begin_s, bisect_right(times, use.begin_s)
    for until_s, part in zip([*times[place:], math.inf], parts[place - 1 :], strict=True):
        end_s = min(until_s, use.end_s)
        if end_s > begin_s:
            yield replace(use, begin_s=begin_s, end_s=end_s, cpus=use.cpus * part)
            begin_s = end_s


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
