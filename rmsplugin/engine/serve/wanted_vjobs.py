"""Wanted vjobs: the words of a query that choose among vjobs, so that an answer has only those. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class WantedVJobs:
    """For each property the values that are wanted; none: all are. A vjob has to fit all of them.

    Attributes:
        state: states.
        partition: names of partitions.
        user: names of users.
        account: Slurm's accounts.
        node: nodes of which one has a VM of it.
        name: names of jobs.
    """

    state: frozenset[str] = frozenset()
    partition: frozenset[str] = frozenset()
    user: frozenset[str] = frozenset()
    account: frozenset[str] = frozenset()
    node: frozenset[str] = frozenset()
    name: frozenset[str] = frozenset()

    def takes(self, view: Mapping[str, Any]) -> bool:
        """Whether the vjob with this view is wanted."""
        for each in fields(self):
            wanted = getattr(self, each.name)
            if each.name == "node":
                if wanted and wanted.isdisjoint(view["nodes"]):
                    return False
            elif wanted and view[each.name] not in wanted:
                return False
        return True

    @property
    def takes_all(self) -> bool:
        """Whether no vjob is left out."""
        return not any(getattr(self, each.name) for each in fields(self))


#: No vjob is left out.
ALL = WantedVJobs()
#: The keys of a query that choose.
KEYS = tuple(each.name for each in fields(WantedVJobs))
