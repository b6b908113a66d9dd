"""Takeover: the ledger of a new epoch, made of that of the last one, on a directory that controllers share.

The new ledger is made whole in a directory of its own, and gets its name at the end. So a process that is killed, or
stopped and let go on, at any instant leaves the ledgers before as they were. An engine that is stopped here until
another one leads gives a name to a ledger of its own epoch, which is not the highest then: nobody reads it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rmsplugin import __version__
from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME, damages, open_database, read_only, schema_steps
from rmsplugin.engine.ledger.parting import Change
from rmsplugin.engine.ledger.shared_files import WAL, copy_ledger, epoch_of, ledgers_in, name_of
from rmsplugin.errors import DeposedError, LedgerError
from rmsplugin.model.epochs import FIRST_EPOCH

#: How many ledgers are kept, the new one included.
KEPT = 3
#: Where an engine has begun something, and where VMs and states are.
_NODES = """
    select source from actions union select destination from actions
    union select host from vms union select destination from vms union select image_node from vms
"""
#: The file that says that there was a ledger in the directory.
_BEGUN = "begun"
#: Directories in which ledgers are made: this, and the epoch.
_MAKING = ".making-"


def take_over(
    directory: Path,
    epoch: int,
    *,
    local: Path | None = None,
    leads: Callable[[], bool],
    change: Change | None = None,
) -> Path:
    """Make the ledger of ``epoch`` from the newest one. Returns its path.

    Args:
        directory: where the ledgers are; made if it is not there.
        epoch: of this engine, which leads.
        local: the ledger with which the engine of this host began before it had a shared directory. It is taken if
            there is no other, and gets another name then.
        leads: whether this engine leads still.
        change: of the new ledger; one that says with what to begin is for the first ledger only.

    Raises:
        LedgerError: the newest ledger is damaged, of a newer release or of a higher epoch, or went away, or somebody
            writes it; or this host has one of its own besides. Nothing was changed.
        DeposedError: another engine leads by now.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        making = _empty(directory, epoch)
        # Only now: having made something there, this host's NFS does not believe what it remembers of the directory.
        source = _source(directory, epoch, local)
        if change is not None and change.begins_with is not None:
            first = source is None
            source = next(iter(ledgers_in(change.begins_with)[::-1]), None) if first else source
            change = change if first and source is not None else None
        _make(source, making / LEDGER_NAME, epoch, change)
        if not leads():
            raise DeposedError(f"the turn of this engine (epoch {epoch}) was over before it had its ledger")
        made = directory / name_of(epoch)
        (making / LEDGER_NAME).rename(made)
        _flush(directory)
        _tidy_up(directory, epoch, local)
        return made
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the ledger of epoch {epoch} cannot be made in {directory}: {error}") from error


def nodes_of_last_turn(directory: Path) -> list[str]:
    """The nodes on which the engine before has acted, or has VMs, as its ledger says; none if it cannot be read."""
    try:
        with closing(read_only(ledgers_in(directory)[-1])) as db:
            return sorted({name for (name,) in db.execute(_NODES)} - {""})
    except (OSError, IndexError, sqlite3.Error):
        return []


def _empty(directory: Path, epoch: int) -> Path:
    """A new directory for the making; those of engines that were killed in it go."""
    for left in directory.glob(f"{_MAKING}*"):
        # An engine that was stopped just before must not disturb a later one.
        if left.name.removeprefix(_MAKING).isdecimal() and int(left.name.removeprefix(_MAKING)) <= epoch:
            shutil.rmtree(left, ignore_errors=True)
    making = directory / f"{_MAKING}{epoch}"
    making.mkdir(mode=0o700)
    return making


def _source(directory: Path, epoch: int, local: Path | None) -> Path | None:
    """The ledger to begin with; None for a cluster that never had one."""
    there = ledgers_in(directory)
    own = local is not None and local.exists() and local.stat().st_size > 0
    if there:
        newest = there[-1]
        if (highest := epoch_of(newest) or 0) >= epoch:
            raise LedgerError(_not_above(epoch, highest))
        if own:
            raise LedgerError(
                f"this host has a ledger of its own, {local}, and the controllers share {newest}: keep the right one. "
                f"If that is the shared one, give {local} another name"
            )
        return newest
    if (directory / _BEGUN).exists():
        raise LedgerError(
            f"there was a ledger in {directory}, and there is none now: the engine does not begin with an empty one. "
            "docs/operator/restoring.md says how to go back to a backup"
        )
    return local if own else None


def _make(source: Path | None, new: Path, epoch: int, change: Change | None) -> None:
    """Make the ledger ``new``, of the schema of this release."""
    if source is not None:
        copy_ledger(source, new, at_rest=True)
        _check(source, new, epoch)
    with closing(open_database(new, exclusive=True)) as db, db.atomic():
        if change is not None:
            change.adapt(db)
        db.execute("insert or replace into epoch (id, epoch) values (1, ?)", [epoch])
    if new.with_name(new.name + WAL).exists():
        raise LedgerError(f"the log of changes of {new} did not go into it")
    _flush(new)


def _check(source: Path, copy: Path, epoch: int) -> None:
    """Raise LedgerError if the copy is damaged, no ledger of this release or an older one, or of another epoch."""
    if not copy.stat().st_size:
        raise LedgerError(f"{source} is empty: {_WAY_OUT.format(source=source)}")
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("pragma locking_mode = exclusive")
        found = damages(connection)
        if found:
            raise LedgerError(f"{source} is damaged ({'; '.join(found)}): {_WAY_OUT.format(source=source)}")
        applied, known = schema_steps(connection)
        if not applied:
            raise LedgerError(f"{source} is no ledger of rmsplugin's: {_WAY_OUT.format(source=source)}")
        if unknown := ", ".join(sorted(applied - known)):
            raise LedgerError(
                f"{source} was made by a newer release of rmsplugin ({__version__} does not know its {unknown}): "
                "install that release on this host, too"
            )
        highest = _highest(connection)
    if epoch_of(source) not in (None, highest):
        raise LedgerError(f"{source} says that it is of epoch {highest}: {_WAY_OUT.format(source=source)}")
    if highest >= epoch:
        raise LedgerError(_not_above(epoch, highest))


_WAY_OUT = (
    "the engine does not start with it, and leaves it and those before it as they are. "
    "docs/operator/several-engines.md says how to go back to the one before"
)


def _highest(connection: sqlite3.Connection) -> int:
    try:
        row = connection.execute("select epoch from epoch").fetchone()
    except sqlite3.OperationalError:
        return FIRST_EPOCH  # of a release that knew no epochs
    return int(row[0]) if row else FIRST_EPOCH


def _not_above(epoch: int, highest: int) -> str:
    return (
        f"the ensemble gives epoch {epoch}, but engines have led with epoch {highest} already: it is a new one, or was "
        f"set back. Restart its servers one by one: each new leader of theirs adds {1 << 32}"
    )


def _tidy_up(directory: Path, epoch: int, local: Path | None) -> None:
    """Note that there is a ledger, and remove what is older than those that are kept."""
    shutil.rmtree(directory / f"{_MAKING}{epoch}", ignore_errors=True)
    (directory / _BEGUN).touch(mode=0o600)
    if local is not None and local.exists():
        kept = local.with_name(f"{local.stem}-before-sharing{local.suffix}")
        local.rename(kept)
        with contextlib.suppress(FileNotFoundError):
            local.with_name(local.name + WAL).rename(kept.with_name(kept.name + WAL))
        local.with_name(f"{local.name}-shm").unlink(missing_ok=True)
    for old in ledgers_in(directory)[:-KEPT]:
        old.unlink()
        old.with_name(old.name + WAL).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
