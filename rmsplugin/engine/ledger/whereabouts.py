"""Whereabouts: where the ledger is: in the engine's state directory, or on the directory that controllers share."""

from __future__ import annotations

from pathlib import Path

from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME
from rmsplugin.engine.ledger.shared_files import ledgers_in, name_of
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.settings import Settings

#: The directory of the ledgers of an engine that leads all groups, in the shared one.
_LEDGERS = Path("groups", "all")


def shared_ledgers(settings: Settings) -> Path | None:
    """The directory with a ledger for each epoch; None if the engine has one ledger, in its state directory."""
    shared = settings.cluster.shared_dir
    return None if shared is None else shared / _LEDGERS


def ledger_path(settings: Settings) -> Path:
    """The ledger, or the one of the newest epoch; there may be none at this path, or it may not be ours to read."""
    directory = shared_ledgers(settings)
    if directory is None:
        return settings.engine.state_dir / LEDGER_NAME
    try:
        return ledgers_in(directory)[-1]
    except (OSError, IndexError):
        return directory / name_of(FIRST_EPOCH)
