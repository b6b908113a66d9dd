"""Account: the energy of a schedule: with nodes switched as they were, with all on, and as an oracle would switch them.

An oracle knows each idle period of a node beforehand: it switches the node off where that saves energy, and has it on
again in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.meter import Energy, Meter, switch_off
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass


@dataclass(frozen=True, slots=True)
class OffTime:
    """A time of a node: it goes off from ``begin_s``, and comes on from ``on_s`` (None: it stays off)."""

    node: str
    begin_s: float
    on_s: float | None


@dataclass(frozen=True, slots=True)
class Span:
    """A time for which something is on a node: VMs, or their saved states, which use so many CPUs meanwhile."""

    node: str
    begin_s: float
    end_s: float
    cpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    """The energy of a schedule, with nodes as they were, all on, and switched by an oracle."""

    switched: Energy
    all_on: Energy
    oracle: Energy


def account(
    parameters: EnergyParameters,
    cpus_per_node: int,
    spans: Iterable[Span],
    off_times: Sequence[OffTime],
    begin_s: float,
    end_s: float,
    clock: LocalClock,
) -> Account:
    """Add up a schedule.

    Args:
        parameters: watts, tariff, CO2.
        cpus_per_node: of each node.
        spans: what was on the nodes.
        off_times: when nodes were off.
        begin_s: of the schedule.
        end_s: of the schedule.
        clock: that the tariff goes by.
    """
    on = Meter(parameters, begin_s, end_s, clock)
    used: dict[str, list[tuple[float, float]]] = {name: [] for name in parameters.classes}
    for span in spans:
        used[span.node].append((span.begin_s, span.end_s))
        power = parameters.classes[span.node]
        if span.cpus:
            on.add((power.busy_w - power.idle_w) * span.cpus / cpus_per_node, span.begin_s, span.end_s)
    for power in parameters.classes.values():
        on.add(power.idle_w, begin_s, end_s)
    switched, oracle = on.copy(), on.copy()
    for each in off_times:
        switch_off(switched, parameters.classes[each.node], each.begin_s, each.on_s)
    for name, power in parameters.classes.items():
        for idle_from_s, idle_to_s in _gaps(used[name], begin_s, end_s):
            _off_by_oracle(oracle, power, idle_from_s, idle_to_s)
    return Account(switched.read(), on.read(), oracle.read())


def _off_by_oracle(meter: Meter, power: PowerClass, begin_s: float, end_s: float) -> None:
    """Count a node as off for an idle period if that saves energy; at the end of all it need not come on again."""
    comes_on = end_s < meter.end_s
    rest_s = end_s - begin_s - power.off_s - (power.on_s if comes_on else 0.0)
    in_transition_s = end_s - begin_s - rest_s
    saved_j = rest_s * (power.idle_w - power.off_w) - in_transition_s * (power.transition_w - power.idle_w)
    if rest_s >= 0 and saved_j > 0:
        switch_off(meter, power, begin_s, end_s - power.on_s if comes_on else None)


def _gaps(used: list[tuple[float, float]], begin_s: float, end_s: float) -> Iterable[tuple[float, float]]:
    """The times between begin and end in which a node has nothing."""
    free_from_s = begin_s
    for begin, end in sorted(used):
        if begin > free_from_s:
            yield free_from_s, min(begin, end_s)
        free_from_s = max(free_from_s, end)
    if free_from_s < end_s:
        yield free_from_s, end_s


def saved_share(found: Account) -> float | None:
    """The part of what an oracle saves that is saved; None if an oracle saves nothing."""
    most = found.all_on.kwh - found.oracle.kwh
    return (found.all_on.kwh - found.switched.kwh) / most if most > 0 else None
