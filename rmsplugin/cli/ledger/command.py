"""Ledger: the commands that check the engine's ledger, copy it, or ask it, whether or not the engine runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rmsplugin.cli.ledger import query as querying
from rmsplugin.cli.ledger import whose
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import LedgerError


def add_command(commands: options.Commands) -> None:
    """Add ledger to the command line."""
    group = options.add_group(
        commands,
        "ledger",
        "check the engine's ledger, copy it, or ask it, on the controller",
        """
        For root and engine.user, on the engine's host, whether or not the engine runs. All three commands only read the
        ledger. Where groups have engines of their own, all commands are about the ledgers of all groups. `rmsplugin
        ledger COMMAND --help` describes each.

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
        release, 2 if it cannot be read, or FILE is no database of SQLite's. Where groups have engines of their own,
        each ledger of the site has a sentence, and the worst one counts; also those from before that no engine goes on
        with, which reports read.

        examples:
          rmsplugin ledger check
          rmsplugin ledger check /var/backups/rmsplugin.sqlite
          rmsplugin ledger check --group west
        """,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="what to check")
    whose.add_option(parser)


def _add_backup(commands: options.Commands) -> None:
    parser = options.add_command(
        commands,
        "backup",
        "copy the engine's ledger, on the controller",
        _backup,
        """
        Writes a copy of the ledger as it is at one moment to FILE (default: ledger-backup-TIME.sqlite beside the
        ledger). Only its owner can read the copy, since it holds private keys. An existing file is not overwritten. A
        backup ages: docs/operator/restoring.md says what to mind before the engine is started with one. Where groups
        have engines of their own, the ledger of each is copied, each beside itself; a FILE needs --group.

        examples:
          rmsplugin ledger backup
          rmsplugin ledger backup /var/backups/rmsplugin.sqlite
          rmsplugin ledger backup --group west /var/backups/west.sqlite
        """,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="where to write the copy")
    whose.add_option(parser)


# The ledger is the engine's: no other command waits for what it imports.


def _check(arguments: argparse.Namespace) -> int:
    from rmsplugin.engine.ledger import ledger_care

    if arguments.file is not None:
        whose.refuse_both(arguments)
        ledger_care.require_database(arguments.file)
        paths = [arguments.file]
    else:
        paths = [each.path for each in whose.chosen(arguments, left=True)]
    worst = 0
    for path in paths:
        try:
            health = ledger_care.check(path)
        except LedgerError as error:
            if len(paths) == 1:
                raise
            print(printable(f"rmsplugin ledger: {error}"), file=sys.stderr)
            worst = 2
            continue
        if health.whole:
            print(printable(health.sentence))
        else:
            print(printable(f"rmsplugin ledger: {health.sentence}"), file=sys.stderr)
            worst = max(worst, 1)
    return worst


def _backup(arguments: argparse.Namespace) -> int:
    from rmsplugin.engine.ledger import ledger_care

    ledgers = whose.chosen(arguments, left=False)
    if len(ledgers) > 1 and arguments.file is not None:
        names = ", ".join(each.group for each in ledgers)
        arguments.misused(f"{arguments.file} is one file, and groups {names} have a ledger each: say --group NAME")
    for each in ledgers:
        print(printable(f"{ledger_care.backup(each.path, arguments.file)} is a copy of {each.path}"))
    return 0
