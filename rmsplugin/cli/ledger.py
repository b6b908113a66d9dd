"""Ledger: the command that checks the engine's ledger, or copies it, whether or not the engine runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rmsplugin.cli import arguments as options
from rmsplugin.cli.connection import read_settings
from rmsplugin.cli.table import printable


def add_command(commands: options.Commands) -> None:
    """Add ledger to the command line."""
    parser = options.add_command(
        commands,
        "ledger",
        "check the engine's ledger, or copy it, on the controller",
        _ledger,
        """
        For root and engine.user, on the engine's host, whether or not the engine runs. Both only read the ledger.

        check reads all of FILE (default: the ledger in engine.state_dir): pages, indexes, references, release of the
        schema. It says in a sentence what it found, and exits with 0 if the ledger is whole, 1 if it is damaged or of
        a newer release, 2 if it cannot be read.

        backup writes a copy, as the ledger is at one moment, to FILE (default: ledger-backup-TIME.sqlite beside it),
        readable for its owner only, for it holds private keys. A file that is there already is not overwritten. What
        is in a backup gets older: the operator guide says what to mind before the engine is started with one.

        examples:
          rmsplugin ledger check
          rmsplugin ledger check /var/backups/rmsplugin.sqlite
          rmsplugin ledger backup
          rmsplugin ledger backup /var/backups/rmsplugin.sqlite
        """,
    )
    parser.add_argument("what", metavar="check|backup", choices=("check", "backup"), help="what to do")
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="what to check, or where to write the copy")


def _ledger(arguments: argparse.Namespace) -> int:
    # The ledger is the engine's: no other command waits for what it imports.
    from rmsplugin.engine.ledger import ledger_care
    from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME

    check = arguments.what == "check"
    if check and arguments.file:
        path = arguments.file
    else:
        path = read_settings(arguments.config).engine.state_dir / LEDGER_NAME
    if not check:
        print(printable(f"{ledger_care.backup(path, arguments.file)} is a copy of {path}"))
        return 0
    health = ledger_care.check(path)
    if health.whole:
        print(printable(health.sentence))
        return 0
    print(printable(f"rmsplugin ledger: {health.sentence}"), file=sys.stderr)
    return 1
