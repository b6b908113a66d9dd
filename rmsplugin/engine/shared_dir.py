"""Shared directory: the one of ``cluster.shared_dir``. It has a name of its own, by which controllers agree on it.

A path tells little: on a host where the file system is not mounted, an empty directory has the same one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path

from rmsplugin.errors import SettingsError

_NAME = "identity"
#: The file name of the engine's own private key, there or in its state directory; the public one is beside it.
ROOT_KEY = "guest_root_key"


def identity_of(path: Path) -> str:
    """The name of the shared directory, checked: it is the engine's own. It gets its name at the first call.

    Raises:
        SettingsError: it is not there, not the engine's alone, or cannot be used.
    """
    try:
        found = path.stat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise SettingsError(f"cluster.shared_dir {path} holds keys: it has to be a directory of engine.user alone")
        return _identity(path)
    except OSError as error:
        raise SettingsError(
            f"cluster.shared_dir {path}: {error.strerror}. Is it mounted? It is made once, for engine.user and with "
            "mode 700, on the file system that all controllers have"
        ) from None


def _identity(path: Path) -> str:
    name = path / _NAME
    if not name.exists():
        new = path / f".{_NAME}-{uuid.uuid4().hex}"
        try:
            with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(f"{uuid.uuid4().hex}\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another controller was faster
                os.link(new, name)
        finally:
            new.unlink(missing_ok=True)
    text = name.read_text(encoding="ascii", errors="replace").strip()
    if not text.isalnum():
        raise SettingsError(f"{name} holds no name of a shared directory: {text[:40]!r}")
    return text
