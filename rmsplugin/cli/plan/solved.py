"""Solved: what `rmsplugin plan` found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.model.configuration import Configuration
from rmsplugin.proposing.proposal import Proposal


@dataclass(frozen=True)
class Solved:
    """A proposal that was checked, what it is for, and what it took."""

    source: Configuration
    proposal: Proposal
    seconds: Mapping[str, float]  # of the clock, by step
