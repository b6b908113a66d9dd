"""Lock file: the lease of engines on one host, on one directory. The kernel frees it when its holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rmsplugin.errors import UnavailableError
from rmsplugin.model.epochs import FIRST_EPOCH


class LockFile:
    """A ``Lease`` of the process that has locked ``lock`` in a directory."""

    def __init__(self, directory: Path) -> None:
        """Hold nothing yet; ``directory`` has to exist, and is the engine's own."""
        self._directory = directory
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """See ``Lease``."""
        if self._descriptor is not None:
            return
        descriptor = os.open(self._directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise UnavailableError(f"another engine runs on {self._directory}; stop it first") from None
        self._descriptor = descriptor

    def renew(self) -> None:
        """See ``Lease``: the kernel keeps it."""
        if self._descriptor is None:
            raise UnavailableError(f"this engine does not hold {self._directory}")

    def held(self) -> bool:
        """See ``Lease``."""
        return self._descriptor is not None

    @property
    def epoch(self) -> int:
        """See ``Lease``."""
        self.renew()
        return FIRST_EPOCH

    def release(self) -> None:
        """See ``Lease``."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
