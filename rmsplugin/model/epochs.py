"""Epochs: the numbered turns of engines. An act of a lower epoch than one already seen is that of a deposed engine."""

from __future__ import annotations

#: The epoch of a single engine; also of engines and VMs that give none, as those of releases before epochs.
FIRST_EPOCH = 1
