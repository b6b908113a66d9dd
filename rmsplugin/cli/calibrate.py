"""Calibrating: the command that fits section [durations] of the settings to what the ledger has measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Field, Row, local_time, plain_table, text_of
from rmsplugin.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmsplugin.calibration.fit import Fitted
    from rmsplugin.engine.ledger.power_book import Took
    from rmsplugin.settings import Settings


def _seconds_of(key: str) -> Any:
    def text(row: Row) -> str:
        return f"{row[key]:.2f}" if row["count"] else ""

    return text


_FIELDS = (
    Field("action", "what was done", text_of("action")),
    Field("count", "how often it was measured", text_of("count"), right=True),
    Field("median", "seconds that it took", _seconds_of("median_s"), right=True),
    Field("p95", "95 of 100 took no longer", _seconds_of("p95_s"), right=True),
    Field("error", "median error of the present model", _seconds_of("error_s"), right=True),
    Field("fitted", "median error of the fitted model", _seconds_of("fitted_error_s"), right=True),
    Field("note", "why it was not fitted", text_of("note")),
)


def add_command(commands: options.Commands) -> None:
    """Add calibrate to the command line."""
    parser = options.add_command(
        commands,
        "calibrate",
        "fit section [durations] of the settings to what the ledger has measured, on the controller",
        _calibrate,
        """
        For root and engine.user, on the engine's host, whether or not the engine runs. It only reads FILE (default: the
        ledger in engine.state_dir; where groups have engines of their own, the ledgers of all).

        It prints the section, which takes the place of the present one in the settings. Comments above it say how often
        each action was measured, the median and the 95th percentile of its seconds, and the median ERROR of the present
        model and of the FITTED one, in seconds.
        An action is an operation on a vjob from its record to its end, with all that belongs to it: Slurm, digests, the
        guest. Memory of other VMs that moved through the same node at the same time counts as its own. The fit is by
        least absolute deviations: single measurements, however wrong, do not matter. An action that was measured fewer
        than 10 times (--least) keeps its present values. Where all VMs are of one size, the part that grows with memory
        cannot be told from the constant part, and both values are scaled. A comment for each class of nodes
        ([[power.classes]]) says how long the engine's own orders to switch off and on took: once there are 10 of them
        the engine uses their median in place of off_s and on_s. Exit status 1: nothing was measured often enough.

        examples:
          rmsplugin calibrate
          rmsplugin calibrate --since 7d
          rmsplugin calibrate --since 2025-11-01 --json
          rmsplugin calibrate /var/backups/rmsplugin.sqlite
        """,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="the ledger, or a copy of it")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=options.past_time,
        default=0.0,
        help="only what began since then: YYYY-MM-DD[THH:MM[:SS]], or that long ago: 7d, 12h, 30m (default: all)",
    )
    parser.add_argument(
        "--least",
        metavar="N",
        type=options.positive_number,
        default=10,
        help="fit an action that was measured at least N times (default: 10)",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def _calibrate(arguments: argparse.Namespace) -> int:
    # No other command waits for what these import.
    from rmsplugin.calibration.fit import fit
    from rmsplugin.calibration.samples import samples_of
    from rmsplugin.engine.ledger.gathering import reading_all
    from rmsplugin.engine.ledger.history import history_in
    from rmsplugin.engine.ledger.power_book import took_in
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger, site_ledgers

    settings = read_settings(arguments.config)
    ledgers = [SiteLedger(arguments.file)] if arguments.file else site_ledgers(settings)
    path = ", ".join(str(each.path) for each in ledgers)
    with reading_all(ledgers) as connection:
        history = history_in(connection, arguments.since)
        power = _power_rows(settings, took_in(connection, arguments.since))
    fitted = fit(samples_of(history.operations, history.actions), settings.durations.model_dump(), arguments.least)
    if not any(each.is_fitted for each in fitted) and not any(each["measured_s"] for each in power):
        counts = ", ".join(f"{each.action} {each.count}" for each in fitted if each.count) or "nothing"
        raise OperationFailedError(
            f"too little is measured in {path}{_since(arguments)}: {counts}; {arguments.least} of an action are needed"
        )
    rows = [_row(each) for each in fitted]
    values = {key: value for each in fitted for key, value in each.values().items()}
    if arguments.json:
        found = {"ledger": path, "since": arguments.since, "actions": rows, "durations": values, "power": power}
        print_document(arguments, found)
        return 0
    print(printable(f"# what {path} has measured{_since(arguments)}, in seconds"))
    for line in plain_table(_FIELDS).lines(rows):
        print(f"# {line}")
    for each_class in power:
        print(printable(f"# {_power_line(each_class)}"))
    print("[durations]")
    for each in fitted:
        for key, value in each.values().items():
            print(f"{key} = {value}{f'  # {each.note}' if each.note else ''}")
    return 0


def _power_rows(settings: Settings, took: Sequence[Took]) -> list[Row]:
    """By class of nodes and kind of switch: what was measured, and what the engine uses."""
    from rmsplugin.engine.power.classes import class_name, times_of
    from rmsplugin.model.node_action import NodeActionKind

    times = times_of(settings, took)
    rows: list[Row] = []
    for watts in settings.power.classes:
        name = class_name(watts)
        for kind, set_s in ((NodeActionKind.POWER_OFF, watts.off_s), (NodeActionKind.POWER_ON, watts.on_s)):
            each = times.get(name, {}).get(kind)
            count, measured_s = (each.count, each.seconds) if each is not None else (0, None)
            row = {"nodes": name, "action": str(kind), "count": count, "set_s": set_s, "measured_s": measured_s}
            rows.append(row)
    return rows


def _power_line(row: Row) -> str:
    from rmsplugin.energy.measured import ENOUGH

    key = "off_s" if row["action"] == "power-off" else "on_s"
    if row["measured_s"] is None:
        few = f"({row['count']} measured, {ENOUGH} are needed)"
        uses = f"the engine uses {key} = {row['set_s']:g} of the settings {few}"
    else:
        measured = f"{row['measured_s']:.0f} s, the median of {row['count']} measured"
        uses = f"the engine uses {measured}, in place of {key} = {row['set_s']:g}"
    return f"{row['action']} of nodes {row['nodes']}: {uses}"


def _since(arguments: argparse.Namespace) -> str:
    return f" since {local_time(arguments.since)}" if arguments.since else ""


def _row(each: Fitted) -> Row:
    return {
        "action": each.action,
        "count": each.count,
        "median_s": round(each.median_s, 3),
        "p95_s": round(each.p95_s, 3),
        "error_s": round(each.error_s, 3),
        "fitted_error_s": round(each.fitted_error_s, 3),
        "fitted": each.is_fitted,
        "note": each.note,
    }
