"""Ledger: the commands that check the engine's ledger, copy it, or ask it, whether or not the engine runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rmsplugin.cli.ledger import query as querying
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.cli.shared.table import printable


def add_command(commands: options.Commands) -> None:
    """Add ledger to the command line."""
    group = options.add_group(
        commands,
        "ledger",
        "check the engine's ledger, copy it, or ask it, on the controller",
        """
        For root and engine.user, on the engine's host, whether or not the engine runs. All three commands only read the
        ledger. `rmsplugin ledger COMMAND --help` describes each.

        examples:
          rmsplugin ledger check
          rmsplugin ledger backup
          rmsplugin ledger query --tables
          rmsplugin ledger query "select state, count(*) as vjobs from vjobs group by state"
        """,
    )
    _add_check(group)
    _add_backup(group)
    querying.add_command(group)


def _add_check(commands: options.Commands) -> None:
    parser = options.add_command(
        commands,
        "check",
        "check the engine's ledger, on the controller",
        _check,
        """
        Reads all of FILE (default: the engine's ledger): pages, indexes, references, release of the schema. One
        sentence says what was found. The exit status is 0 if the ledger is whole, 1 if it is damaged or of a newer
        release, 2 if it cannot be read.

        examples:
          rmsplugin ledger check
          rmsplugin ledger check /var/backups/rmsplugin.sqlite
        """,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="what to check")


def _add_backup(commands: options.Commands) -> None:
    parser = options.add_command(
        commands,
        "backup",
        "copy the engine's ledger, on the controller",
        _backup,
        """
        Writes a copy of the ledger as it is at one moment to FILE (default: ledger-backup-TIME.sqlite beside the
        ledger). Only its owner can read the copy, since it holds private keys. An existing file is not overwritten. A
        backup ages: the operator guide says what to mind before the engine is started with one.

        examples:
          rmsplugin ledger backup
          rmsplugin ledger backup /var/backups/rmsplugin.sqlite
        """,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="where to write the copy")


def _path(arguments: argparse.Namespace) -> Path:
    from rmsplugin.engine.ledger.whereabouts import ledger_path

    return ledger_path(read_settings(arguments.config))


# The ledger is the engine's: no other command waits for what it imports.


def _check(arguments: argparse.Namespace) -> int:
    from rmsplugin.engine.ledger import ledger_care

    health = ledger_care.check(arguments.file or _path(arguments))
    if health.whole:
        print(printable(health.sentence))
        return 0
    print(printable(f"rmsplugin ledger: {health.sentence}"), file=sys.stderr)
    return 1


def _backup(arguments: argparse.Namespace) -> int:
    from rmsplugin.engine.ledger import ledger_care

    path = _path(arguments)
    print(printable(f"{ledger_care.backup(path, arguments.file)} is a copy of {path}"))
    return 0
