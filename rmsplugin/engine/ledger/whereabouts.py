"""Whereabouts: where the ledger is: in the engine's state directory, or on the directory that controllers share."""

from __future__ import annotations

from pathlib import Path

from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME
from rmsplugin.engine.ledger.shared_files import ledgers_in, name_of
from rmsplugin.errors import LedgerError
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.settings import GROUPS_DIR, Settings

#: The name of the directory of the ledgers of an engine that leads all groups.
ALL = "all"
#: In the state directory of an engine that has led with a shared ledger: where that is.
_SHARED = "shared-ledgers"


def shared_ledgers(settings: Settings) -> Path | None:
    """The directory with a ledger for each epoch; None if the engine has one ledger, in its state directory."""
    shared = settings.cluster.shared_dir
    return None if shared is None else shared / GROUPS_DIR / (settings.territory or ALL)


def ledger_path(settings: Settings) -> Path:
    """The ledger, or the one of the newest epoch; there may be none at this path, or it may not be ours to read."""
    directory = shared_ledgers(settings)
    if directory is None:
        return settings.engine.state_dir / LEDGER_NAME
    try:
        return ledgers_in(directory)[-1]
    except (OSError, IndexError):
        return directory / name_of(FIRST_EPOCH)


def note_shared(state_dir: Path, directory: Path) -> None:
    """Note in this host's state directory that the ledger is in the shared one."""
    (state_dir / _SHARED).write_text(f"{directory}\n", encoding="utf-8")


def require_taken_back(state_dir: Path, key: str) -> None:
    """See that an engine that is alone again has what it shared before: the ledger, and the file ``key``.

    Raises:
        LedgerError: one of them is not there. The engine would begin with nothing, and know none of the VMs.
    """
    note = state_dir / _SHARED
    if not note.exists():
        return
    if missing := [name for name in (LEDGER_NAME, key) if not (state_dir / name).exists()]:
        raise LedgerError(
            f"this host has shared its ledger ({note.read_text(encoding='utf-8').strip()}), and is alone now: "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in {state_dir}. "
            f"docs/operator/several-engines.md says how to take them back; to begin with nothing, remove {note}"
        )
    note.unlink()
