"""Ledger jobs: backups of the ledger, and the end of what it has kept for long enough."""

from __future__ import annotations

import shutil
from pathlib import Path

from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.ledger_file import stamp
from rmsplugin.errors import OperationFailedError

_DAY_S = 86400.0
_MIB = 1 << 20
#: What a backup leaves free on its disk, which may be the ledger's own.
_LEFT_FREE = 256 * _MIB


def back_up(path: Path, directory: Path, keep: int) -> str:
    """Copy the ledger, check the copy as a whole, and remove the oldest backups. Returns what was done.

    Args:
        path: of the ledger; the engine writes on meanwhile.
        directory: where the backups are; made if it is not there, for the engine alone.
        keep: the number of backups that are kept.

    Raises:
        RmspluginError: there is no backup now; those before it are as they were.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for unfinished in directory.glob("ledger-2*Z.sqlite.new"):  # left by an engine that was killed
            unfinished.unlink()
        size = sum(part.stat().st_size for part in (path, path.with_name(f"{path.name}-wal")) if part.exists())
        free = shutil.disk_usage(directory).free
        if free < size + _LEFT_FREE:
            raise OperationFailedError(
                f"{directory} has {free // _MIB} MiB free: a copy may take {-(-size // _MIB)} MiB, and "
                f"{_LEFT_FREE // _MIB} MiB have to stay free"
            )
        copy = ledger_care.backup(path, directory / f"ledger-{stamp()}.sqlite")
        backups = sorted(directory.glob("ledger-2*Z.sqlite"))
        for old in backups[:-keep]:
            old.unlink()
        return f"{copy}: {copy.stat().st_size / _MIB:.1f} MiB, whole; {min(keep, len(backups))} are kept"
    except OSError as error:
        raise OperationFailedError(f"{error.filename or directory}: {error.strerror}") from error


def retain(ledger: Ledger, path: Path, now: float, keep_days: int) -> str:
    """Forget what ended long ago, give back the room that it took, and check the whole ledger. Returns what was done.

    Raises:
        RmspluginError: the ledger cannot be used now, or is damaged.
    """
    forgotten = ledger.prune(now - keep_days * _DAY_S)
    # A ledger of one engine alone lets no other connection in; its empty pages are filled again.
    given_back = 0 if ledger.exclusive else ledger_care.compact(path)
    health = ledger_care.check(path)
    if not health.whole:
        raise OperationFailedError(health.sentence)
    size = path.stat().st_size
    return f"forgot {forgotten} vjobs, gave back {given_back / _MIB:.1f} MiB; {size / _MIB:.1f} MiB are left, and whole"
