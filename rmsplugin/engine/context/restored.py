"""Restored: how long the last VM that was restored from an image's template took."""

from __future__ import annotations

from typing import NamedTuple


class Restored(NamedTuple):
    """Seconds until the VM's guest answered.

    Attributes:
        whole_s: from the beginning of the restore.
        loaded_s: from the moment when the state was loaded.
    """

    whole_s: float
    loaded_s: float
