"""Energy: `rmsplugin energy`, the kilowatt-hours of VM hosts, and whose they were."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.report.command import add_times, ledgers_of, settings_of
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.bar import bar
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.table import Field, Row, add_table_options, parse_format, table_of, text_of
from rmsplugin.errors import RefusedError, ReportError
from rmsplugin.latency import uncollected

if TYPE_CHECKING:
    import sqlite3

    from rmsplugin.energy.account import Account
    from rmsplugin.energy.meter import Energy
    from rmsplugin.energy.parameters import EnergyParameters
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger
    from rmsplugin.report.document import Job
    from rmsplugin.settings import Settings

_BY = ("all", "node", "user", "account", "partition")
#: The name of what is nobody's.
_NOBODY = "(nobody)"


#: The keys of the JSON of those columns that have other names.
_KEYS = {
    "carbon": "co2_kg",
    "allon": "kwh_all_on",
    "unemptied": "kwh_not_emptied",
    "oracle": "kwh_oracle",
}


def _number(name: str, digits: int) -> Field:
    words = {
        "kwh": "kilowatt-hours",
        "cost": "their cost, by the tariff; - where there is none",
        "carbon": "kilograms of CO2; - where nothing tells them",
        "allon": "kilowatt-hours if all nodes had been on; - for users and others",
        "unemptied": "kilowatt-hours if no node had been emptied to be switched off; - for users and others",
        "oracle": "kilowatt-hours if nodes had been off in each period in which that saves; - for users and others",
    }

    def text(row: Row) -> str:
        value = row.get(_KEYS.get(name, name))
        return "-" if value is None else f"{value:.{digits}f}"

    return Field(name, words[name], text, right=True)


FIELDS = (
    Field("name", "node, user, account or partition", text_of("name")),
    _number("kwh", 3),
    _number("cost", 2),
    _number("carbon", 3),
    _number("allon", 3),
    _number("unemptied", 3),
    _number("oracle", 3),
)
_COLUMNS = "name,kwh,cost,carbon,allon,unemptied,oracle"


def add_command(commands: options.Commands) -> None:
    """Add energy to the command line."""
    parser = options.add_command(
        commands,
        "energy",
        "tell the kilowatt-hours of VM hosts, and whose they were",
        _energy,
        """
        The watts of nodes, tariff and CO2 are those of FILE, the energy file of `rmsplugin simulate`, or, without
        --energy, of [[power.classes]], [[power.tariff]] and [[power.co2]] in the settings; no watt is measured. A VM
        takes what the CPUs take that were requested for it, while it runs. What its node takes besides is divided among
        all VMs there, by their CPUs. What a node takes while it has no VM, or is off, is nobody's. A node is off from
        its BMC's proof until it was ordered on.
        ALLON tells what all nodes had taken on all the time, UNEMPTIED what had been taken if VMs had stayed on
        nodes that were emptied to be switched off, and ORACLE what would be left if each period without VMs were known
        beforehand, and nodes were off where that saves. The last line tells how late vjobs were because nodes were off,
        if an engine has switched nodes in that time; --noheader and --parsable2 leave it out.

        Whose file the ledger is (root, engine.user) may ask, and everybody of a copy (--ledger). Nodes are asked of
        Slurm, accounts of its accounting.

        examples:
          rmsplugin energy --since 30d
          rmsplugin energy --energy energy.toml --since 2025-11-01 --until 2025-12-01 --by user
          rmsplugin energy --energy energy.toml --by node --json
          rmsplugin energy --energy energy.toml --ledger copy.sqlite --without-slurm --cpus-per-node 16
        """,
    )
    parser.add_argument(
        "--energy",
        metavar="FILE",
        help="the watts of nodes, tariff and CO2 (default: those of the settings)",
    )
    add_times(parser)
    parser.add_argument("--by", choices=_BY, default="all", help="what a line stands for (default: all)")
    parser.add_argument("--ledger", metavar="FILE", type=Path, help="a copy of the ledger")
    parser.add_argument("--without-slurm", action="store_true", help="do not ask Slurm: nodes are those of the ledger")
    parser.add_argument(
        "--cpus-per-node", metavar="C", type=options.positive_number, help="CPUs of each node, with --without-slurm"
    )
    add_table_options(parser, FIELDS, _COLUMNS, "all of it as JSON: the whole, and by node, user, account, partition")
    parser.set_defaults(misused=parser.error)


def _energy(arguments: argparse.Namespace) -> int:
    now = time.time()
    arguments.until = now if arguments.until is None else arguments.until
    if arguments.since is not None and arguments.since >= arguments.until:
        arguments.misused("--since has to be before --until")
    if arguments.without_slurm != bool(arguments.cpus_per_node):
        arguments.misused("--without-slurm and --cpus-per-node belong together")
    columns = parse_format(arguments.format, FIELDS)
    settings = settings_of(arguments)
    if arguments.energy is None and not (settings and settings.power.classes):
        arguments.misused("--energy FILE is needed: the settings have no [[power.classes]], which tell watts of nodes")
    ledgers = ledgers_of(arguments, settings)
    if not ledgers:
        raise RefusedError("the ledger is not yours to read: root and engine.user may, or anybody a copy (--ledger)")
    with uncollected(), bar() as show:
        found = _read(arguments, settings, ledgers, now, show)
    if arguments.json:
        print_document(arguments, found.document())
        return 0
    table = table_of(arguments, columns)
    print("\n".join(table.lines(found.rows(arguments.by))))
    if (lateness := found.lateness()) and not (arguments.noheader or arguments.parsable2):
        print(lateness["sentence"])
    return 0


def _read(
    arguments: argparse.Namespace, settings: Settings | None, ledgers: list[SiteLedger], now: float, show: Any
) -> _Accounts:
    """What the ledger tells. Raises RmspluginError."""
    from rmsplugin.engine.ledger.gathering import reading_all
    from rmsplugin.report.build import Question, Site, build
    from rmsplugin.report.ledger import LedgerReader
    from rmsplugin.report.slurm import runs_of

    def runs(since: float) -> Any:
        if settings is None or arguments.without_slurm:
            raise ReportError("Slurm was not asked")
        return runs_of(settings, since, arguments.until, lambda part: show("asking accounting", part))

    with reading_all(ledgers) as connection:
        reader = LedgerReader(connection, arguments.until)
        since = reader.begins() if arguments.since is None else arguments.since
        question = Question(since=since, until=arguments.until, made=round(now, 1), with_lives=True)
        report = build(reader, question, Site([], "", 0, {}, {}, runs), show)
        return _Accounts(arguments, settings, list(report.jobs()), since, connection)


class _Accounts:
    """The energy of the time, added up in each way."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings | None,
        jobs: Sequence[Job],
        since: float,
        connection: sqlite3.Connection,
    ) -> None:
        from rmsplugin.energy.not_emptied import as_if_not_emptied
        from rmsplugin.report.power import emptied_nodes, late_in, off_times, period_of

        self._since, self._until, self._jobs = since, arguments.until, jobs
        self._cpus = _cpus(arguments, settings, jobs)
        self._parameters = _parameters(arguments, settings, list(self._cpus))
        self._off = off_times(connection, self._parameters.classes)
        self._not_emptied = as_if_not_emptied(self._off, emptied_nodes(connection, jobs, arguments.until))
        self._period = period_of(since, arguments.until)
        self._late = late_in(connection, since, arguments.until)
        self._power = settings.power if settings else None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "since": round(self._since, 1),
            "until": round(self._until, 1),
            "energy": self.rows("all")[0],
            "lateness": self.lateness(),
            **{f"{by}s": self.rows(by) for by in _BY[1:]},
        }

    def lateness(self) -> dict[str, Any] | None:
        """How late vjobs were because nodes were off; None: no engine that switches nodes has seen any."""
        from rmsplugin.energy.lateness import sentence, spent

        if not self._late.vjobs_s:
            return None
        share, at_most = self._late.share, self._power.late_at_most if self._power else None
        words = sentence(share, at_most) if self._power else spent(share)
        return {"share": round(share, 6), "at_most": at_most, "sentence": words}

    def rows(self, by: str) -> list[Row]:
        """A row for each node, user, ...; or one for all."""
        from rmsplugin.energy.shares import by_node, by_owner
        from rmsplugin.report.energy import OWNERS, uses_of

        uses = [
            use
            for use in uses_of(self._jobs, OWNERS.get(by, OWNERS["user"]), self._since, self._until)
            if use.node in self._cpus
        ]
        if by in OWNERS:
            found = by_owner(self._parameters, self._cpus, uses, self._off, self._period)
            return [_row(name or _NOBODY, energy) for name, energy in found.items()]
        nodes = by_node(self._parameters, self._cpus, uses, self._off, self._period)
        stay = by_node(self._parameters, self._cpus, uses, self._not_emptied, self._period)
        if by == "node":
            return [_node_row(name, [each], [stay[name]]) for name, each in nodes.items()]
        return [_node_row("all", [*nodes.values()], [*stay.values()])]


def _row(name: str, energy: Energy) -> dict[str, Any]:
    return {
        "name": name,
        "kwh": round(energy.kwh, 6),
        "cost": None if energy.cost is None else round(energy.cost, 6),
        "co2_kg": None if energy.co2_kg is None else round(energy.co2_kg, 6),
    }


def _node_row(name: str, accounts: Sequence[Account], not_emptied: Sequence[Account]) -> dict[str, Any]:
    """A row of one node, or of all of them together."""
    from rmsplugin.energy.shares import total

    return {
        **_row(name, total(each.switched for each in accounts)),
        "kwh_all_on": round(sum(each.all_on.kwh for each in accounts), 6),
        "kwh_not_emptied": round(sum(each.switched.kwh for each in not_emptied), 6),
        "kwh_oracle": round(sum(each.oracle.kwh for each in accounts), 6),
    }


def _parameters(arguments: argparse.Namespace, settings: Settings | None, nodes: Sequence[str]) -> EnergyParameters:
    """Of the file, or of the settings. Raises RmspluginError."""
    from rmsplugin.cli.shared.energy_file import read_energy
    from rmsplugin.report.power import parameters_of

    if arguments.energy is not None or settings is None:
        return read_energy(arguments.energy, nodes)
    found = parameters_of(settings, nodes)
    if left := [name for name in nodes if name not in found.classes]:
        raise ReportError(
            f"node {left[0]} has no class in [[power.classes]] of the settings: --energy FILE tells watts"
        )
    return found


def _cpus(arguments: argparse.Namespace, settings: Settings | None, jobs: Sequence[Job]) -> Mapping[str, int]:
    """The CPUs of each node that counts. Raises RmspluginError."""
    from rmsplugin.report.slurm import nodes_of

    if not arguments.without_slurm:
        if settings is None:
            raise ReportError(
                "there are no settings to ask Slurm for nodes by: --without-slurm and --cpus-per-node say what they are"
            )
        return nodes_of(settings)[1]  # a node's watts follow all its CPUs, not only those that VMs may take
    names = sorted({node for job in jobs for each in job.intervals for node in each.nodes if node})
    if not names:
        raise ReportError("no VM ran on any node in this time, and Slurm is not asked what nodes there are")
    return dict.fromkeys(names, arguments.cpus_per_node)
