"""CRIU: its settings for a VM, and what it says of its failures, which podman does not pass on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmsplugin.adapters.platform.podman.on_node import acts
from rmsplugin.errors import OperationFailedError, TimedOutError

#: CRIU runs it at each stage of a checkpoint and a restore (hooks/criu).
HOOK = Path("/etc/criu/rmsplugin")
#: Files that are open and have no name any more are part of a state, up to this size.
_GHOST_BYTES = 1 << 30
_ERROR = "Error ("
_ERRORS_MOST = 3


def settings_of(name: str) -> Path:
    """The file of CRIU's settings for a VM, which the container names (annotation ``org.criu.config``)."""
    return acts.DIRECTORY / f"{name}.criu"


def _log_of(name: str) -> Path:
    return acts.DIRECTORY / f"{name}.criu-log"


def write_settings(name: str) -> None:
    """Write them, before the VM's container is made, saved or restored here; older words of CRIU's are dropped."""
    acts.make_directory()
    _drop(_log_of(name))
    lines = [f"action-script {HOOK}", f"log-file {_log_of(name)}"]
    lines += [f"ghost-limit {_GHOST_BYTES}", "link-remap", "skip-in-flight"]
    new = settings_of(name).with_suffix(f".{os.getpid()}")
    new.write_text("\n".join([*lines, ""]))
    new.rename(settings_of(name))


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Add what CRIU says to podman's failure."""
    try:
        yield
    except OperationFailedError as error:
        said = "" if isinstance(error, TimedOutError) else _errors_of(name)
        if not said:
            raise
        raise OperationFailedError(f"CRIU: {said} ({error})") from None


def _errors_of(name: str) -> str:
    """The first errors that CRIU has told of; "" for none."""
    try:
        lines = _log_of(name).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    errors = [line[line.index(_ERROR) + len(_ERROR) :].partition("): ")[2] for line in lines if _ERROR in line]
    return "; ".join(each.strip() for each in errors[:_ERRORS_MOST])[:400]


def forget(name: str) -> None:
    """Drop what is here of a VM that is not."""
    _drop(settings_of(name))
    _drop(_log_of(name))


def _drop(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
