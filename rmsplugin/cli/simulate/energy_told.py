"""Energy told: the kilowatt-hours of a simulation, as JSON and as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmsplugin.cli.shared.table import Field, duration, plain_table, text_of
from rmsplugin.cli.simulate.simulated import Energized, Simulated
from rmsplugin.energy.account import saved_share
from rmsplugin.energy.meter import Energy
from rmsplugin.model.wording import counted


def document(simulated: Simulated) -> dict[str, Any]:
    """The energy as JSON; empty where nothing is told of it."""
    energy = simulated.energy
    if energy is None:
        return {}
    found, delays_s = energy.account, energy.powered.delays_s
    return {
        "energy": {
            "kwh": round(found.switched.kwh, 6),
            "kwh_all_on": round(found.all_on.kwh, 6),
            "kwh_oracle": round(found.oracle.kwh, 6),
            "saved_of_oracle": _rounded(saved_share(found)),
            "switched_off": len(energy.powered.off_times),
            "emptied": energy.powered.emptied,
            "delayed": len(delays_s),
            "delayed_s_mean": round(sum(delays_s) / _starts(simulated), 3),
            "completion_s_mean": simulated.metrics.completion_s.mean,
            "completion_s_mean_all_on": energy.completion_all_on_s,
            **_by_time_of_day("cost", [each.cost for each in _three(energy)]),
            **_by_time_of_day("co2_kg", [each.co2_kg for each in _three(energy)]),
            **_not_emptied(energy),
        }
    }


def _not_emptied(energy: Energized) -> dict[str, float | None]:
    """The same without a node that is emptied; nothing if none was."""
    if energy.not_emptied is None:
        return {}
    found, completion_s = energy.not_emptied
    values = {"kwh": found.kwh, "cost": found.cost, "co2_kg": found.co2_kg, "completion_s_mean": completion_s}
    return {f"{name}_not_emptied": _rounded(value) for name, value in values.items() if value is not None}


def _three(energy: Energized) -> tuple[Energy, Energy, Energy]:
    return energy.account.switched, energy.account.all_on, energy.account.oracle


def _by_time_of_day(name: str, values: list[float | None]) -> dict[str, float | None]:
    """A value of all three accounts, if it is known."""
    if None in values:
        return {}
    return {f"{name}{end}": _rounded(value) for end, value in zip(("", "_all_on", "_oracle"), values, strict=True)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _starts(simulated: Simulated) -> int:
    """How often a job began to run or went on: at least once each."""
    return sum(1 + run.suspends for run in simulated.outcome.jobs)


_FIELDS = (
    Field("nodes", "how nodes are switched", text_of("nodes")),
    *(
        Field(name, words, text_of(name), right=True)
        for name, words in (
            ("kwh", "kilowatt-hours"),
            ("cost", "their cost, by the tariff"),
            ("co2_kg", "kilograms of CO2"),
            ("completion", "mean completion"),
        )
    ),
)


def text_lines(simulated: Simulated) -> Iterator[str]:
    """What a person reads of the energy; nothing where nothing is told of it."""
    energy = simulated.energy
    if energy is None:
        return
    yield ""
    own, all_on = duration(simulated.metrics.completion_s.mean), duration(energy.completion_all_on_s)
    told = [*zip(("switched", "all on", "by an oracle"), _three(energy), (own, all_on, own), strict=True)]
    if energy.not_emptied is not None:
        found, completion_s = energy.not_emptied
        told.insert(1, ("none emptied", found, duration(completion_s)))
    rows = [
        {
            "nodes": name,
            "kwh": f"{each.kwh:.1f}",
            "cost": _shown(each.cost),
            "co2_kg": _shown(each.co2_kg),
            "completion": completion,
        }
        for name, each, completion in told
    ]
    known = {"cost": energy.account.switched.cost, "co2_kg": energy.account.switched.co2_kg}
    fields = tuple(field for field in _FIELDS if known.get(field.name, 0.0) is not None)
    yield from plain_table(fields).lines(rows)
    share = saved_share(energy.account)
    part = "an oracle would save nothing" if share is None else f"{100 * share:.1f} % of what an oracle saves"
    delays_s = energy.powered.delays_s
    late = f", for {duration(sum(delays_s) / len(delays_s))} on average" if delays_s else ""
    yield (
        f"nodes were switched off {counted(len(energy.powered.off_times), 'time')}: {part}; "
        f"{counted(len(delays_s), 'start')} waited for nodes{late}"
    )
    if energy.powered.emptied:
        yield f"nodes were emptied {counted(energy.powered.emptied, 'time')}, so that they could be switched off"


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
