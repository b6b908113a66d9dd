"""Restored: how long the last VM of an image took that was restored from a template."""

from __future__ import annotations

from typing import NamedTuple


class Restored(NamedTuple):
    """Seconds until its guest answered.

    Attributes:
        whole_s: from the beginning of its restore.
        loaded_s: from the moment when its state was loaded.
    """

    whole_s: float
    loaded_s: float
