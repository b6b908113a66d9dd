"""Epochs: the turns of engines, counted. An act of a lower epoch than one that was seen is that of a deposed engine."""

from __future__ import annotations

#: The epoch of a single engine; of what says none, as engines and VMs of releases before epochs do, too.
FIRST_EPOCH = 1
