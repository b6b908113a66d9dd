"""Local: engines of one host on one directory. The kernel frees the lock of an engine that ends, however it ends."""

from __future__ import annotations

import fcntl
import math
import os
from pathlib import Path

from rmsplugin.adapters.coordination.base import NEVER
from rmsplugin.errors import UnavailableError
from rmsplugin.model.epochs import FIRST_EPOCH


class Local:
    """A ``Coordination`` of the process that has locked ``lock`` in a directory."""

    def __init__(self, directory: Path) -> None:
        """Lead nothing yet; ``directory`` has to exist, and is the engine's own."""
        self._directory = directory
        self._descriptor: int | None = None

    def campaign(self) -> None:
        """See ``Coordination``."""
        if self._descriptor is not None:
            return
        descriptor = os.open(self._directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise UnavailableError(f"another engine runs on {self._directory}; stop it first") from None
        self._descriptor = descriptor

    @property
    def epoch(self) -> int:
        """See ``Coordination``: the first, for each leader has ended before the next begins. The ledger counts them."""
        if self._descriptor is None:
            raise UnavailableError(f"this engine does not hold {self._directory}")
        return FIRST_EPOCH

    def valid_until(self) -> float:
        """See ``Coordination``: until the process ends."""
        return NEVER if self._descriptor is None else math.inf

    def members(self) -> tuple[str, ...]:
        """See ``Coordination``: a lock tells nobody who waits for it."""
        return () if self._descriptor is None else (str(self._directory),)

    def resign(self, *, at_rest: bool) -> None:
        """See ``Coordination``."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
