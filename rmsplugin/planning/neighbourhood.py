"""Neighbourhood: improve an answer part by part, where the cluster is too large for one integer program."""

from __future__ import annotations

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.incumbent import Incumbent
from rmsplugin.planning.replacement import Replacement


def search_neighbourhoods(problem: Replacement, incumbent: Incumbent, budget: Budget, search: Search) -> None:
    """Improve the incumbent until the limits."""
