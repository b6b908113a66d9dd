"""Whose: which of the site's ledgers a command is about: that of one engine, or those of the engines of groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.errors import LedgerError

if TYPE_CHECKING:
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses one group."""
    parser.set_defaults(misused=parser.error)
    parser.add_argument("--group", metavar="NAME", help="only the ledger of this group, which has an engine of its own")


def chosen(arguments: argparse.Namespace, *, left: bool) -> list[SiteLedger]:
    """The ledgers that are meant, those that engines have first.

    Args:
        arguments: of the command.
        left: whether those are meant, too, that no engine goes on with.

    Raises:
        LedgerError: the group has none.
        SettingsError: the settings cannot be read.
    """
    # The ledger is the engine's: no other command waits for what it imports.
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger, site_ledgers
    from rmsplugin.engine.ledger.whereabouts import ledger_path

    settings = read_settings(arguments.config)
    found = [each for each in site_ledgers(settings) if left or not each.left]
    if arguments.group is not None:
        found = [each for each in found if each.group == arguments.group]
        if not found:
            raise LedgerError(f"there is no ledger of a group {arguments.group}, or none that may be read")
    return found or [SiteLedger(ledger_path(settings))]


def refuse_both(arguments: argparse.Namespace) -> None:
    """End with status 2 if a file is named, and a group, too."""
    if arguments.group is not None:
        arguments.misused("--group is about the site's ledgers: it does not go together with a FILE")
