"""Power: when nodes were off, and which were emptied for that, from the ledger, and what all of them took."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rmsplugin.energy.account import OffTime
from rmsplugin.energy.daily import Daily
from rmsplugin.energy.lateness import LateSums
from rmsplugin.energy.meter import Energy
from rmsplugin.energy.not_emptied import EmptiedNode, as_if_not_emptied
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.shares import Period, Use, by_node, by_owner, total
from rmsplugin.engine.power.classes import power_class
from rmsplugin.report.document import Consumed, Job, Share
from rmsplugin.report.energy import OWNERS, uses_of
from rmsplugin.report.local_time import local_clock
from rmsplugin.settings import Settings

_OFF = "select node, ended from power_acts where kind = 'power-off' and ended > 0 and error = '' order by ended"
_LATE = """
    select began, ended, late_s, vjobs_s, off_s, kept_s, seen_s from power_late where began < ? and ended > ?"""
#: A node comes on by an order of the engine's, or somebody else switched it on.
_ON = """
    select node, began as at from power_acts where kind = 'power-on'
    union select node, time from events where kind = 'power-on' order by at"""


def off_times(connection: sqlite3.Connection, classes: Mapping[str, PowerClass]) -> list[OffTime]:
    """The times in which these nodes were off, as their BMCs proved it.

    Args:
        connection: to the ledger.
        classes: of nodes, by name; others are left out.
    """
    comes_on: dict[str, list[float]] = {}
    for node, at in connection.execute(_ON):
        comes_on.setdefault(node, []).append(at)
    found: list[OffTime] = []
    for node, proved in connection.execute(_OFF):
        if node in classes:
            on_s = next((at for at in comes_on.get(node, ()) if at >= proved), None)
            found.append(OffTime(node, proved - classes[node].off_s, on_s))
    return found


def late_in(connection: sqlite3.Connection, since: float, until: float) -> LateSums:
    """How late vjobs were in this time because nodes were off.

    Of what an engine saw from before it, or until after it, as large a part counts as there was time in it.
    """
    found = LateSums()
    for began, ended, *sums in connection.execute(_LATE, [until, since]):
        within_s = min(ended, until) - max(began, since)
        found = found.plus(LateSums(*sums), within_s / (ended - began) if ended > began else 0.0)
    return found


def emptied_nodes(connection: sqlite3.Connection, jobs: Iterable[Job], until: float) -> list[EmptiedNode]:
    """The nodes that were emptied, each until the last of the jobs ended that were there.

    Args:
        connection: to the ledger.
        jobs: with their lives.
        until: a job that has not ended counts until then.
    """
    emptied = [tuple(row) for row in connection.execute("select node, time from events where kind = 'node-emptied'")]
    if not emptied:
        return []
    known = list(jobs)
    return [EmptiedNode(node, at, max(_ends(known, node, at, until), default=at)) for node, at in emptied]


def _ends(jobs: Iterable[Job], node: str, at: float, until: float) -> Iterator[float]:
    """When the jobs ended that had VMs on the node at that time."""
    for job in jobs:
        if any(each.begin <= at < each.until and node in each.nodes for each in job.intervals):
            yield until if job.end is None else job.end


def parameters_of(settings: Settings, nodes: Iterable[str]) -> EnergyParameters:
    """The watts of these nodes, tariff and CO2, by the settings; a node without a class is left out."""
    power = settings.power
    watts = {name: power.watts_of(name) for name in nodes}
    return EnergyParameters(
        {name: power_class(each) for name, each in watts.items() if each is not None},
        price=Daily.of((each.begin, each.price) for each in power.tariff),
        co2=Daily.of((each.begin, each.grams) for each in power.co2),
    )


def period_of(since: float, until: float) -> Period:
    """The time that is looked at; tariffs go by local time."""
    return Period(since, until, local_clock(since, until))


def consumed(
    connection: sqlite3.Connection,
    parameters: EnergyParameters,
    cpus: Mapping[str, int],
    jobs: Sequence[Job],
    since: float,
    until: float,
) -> Consumed:
    """What nodes with a class took.

    Args:
        connection: to the ledger.
        parameters: the watts of nodes by name, tariff and CO2.
        cpus: of nodes, by name.
        jobs: all that were there, with their lives.
        since: begin of the time.
        until: its end.
    """
    known = {name: cpus[name] for name in parameters.classes if name in cpus}
    off = [each for each in off_times(connection, parameters.classes) if each.node in known]
    period = period_of(since, until)
    not_emptied = as_if_not_emptied(off, emptied_nodes(connection, jobs, until))

    def uses(owner: Callable[[Job], str]) -> list[Use]:
        return [use for use in uses_of(jobs, owner, since, until) if use.node in known]

    def shares(owner: Callable[[Job], str]) -> tuple[Share, ...]:
        divided = by_owner(parameters, known, uses(owner), off, period)
        return tuple(_share(name, each) for name, each in divided.items())

    everybody = uses(lambda _: "")
    nodes = by_node(parameters, known, everybody, off, period)
    stay = by_node(parameters, known, everybody, not_emptied, period).values()
    took = _share("", total(each.switched for each in nodes.values()))
    return Consumed(
        policy="live",
        kwh=took.kwh,
        kwh_all_on=round(sum(each.all_on.kwh for each in nodes.values()), 6),
        kwh_not_emptied=round(sum(each.switched.kwh for each in stay), 6),
        kwh_oracle=round(sum(each.oracle.kwh for each in nodes.values()), 6),
        cost=took.cost,
        co2_kg=took.co2_kg,
        switched_off=sum(since <= each.begin_s < until for each in off),
        nodes=tuple(_share(name, each.switched) for name, each in nodes.items()),
        users=shares(OWNERS["user"]),
        accounts=shares(OWNERS["account"]),
    )


def _share(name: str, energy: Energy) -> Share:
    cost, co2_kg = (None if each is None else round(each, 6) for each in (energy.cost, energy.co2_kg))
    return Share(name, round(energy.kwh, 6), cost, co2_kg)
