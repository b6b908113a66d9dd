"""Event cursor: up to which event of each ledger a reader has been told. One word, for the next question. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NUMBER = "(0|[1-9][0-9]{0,15})"
_GROUP = "[A-Za-z0-9_.+-]{1,64}"
PATTERN = f"{_NUMBER}(,{_GROUP}:{_NUMBER})*"
#: The most characters of one.
LONGEST = 4096


@dataclass(frozen=True, slots=True)
class EventCursor:
    """A place in the events of one engine, or in those of all groups.

    Attributes:
        number: of the last event, where one engine answers. Where a manager does: a time in microseconds, from which
            events of groups are told that have no number here.
        groups: by group, the number of the last event in its ledger.
    """

    number: int = 0
    groups: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """Read the word. Raises ValueError."""
        if len(text) > LONGEST or not re.fullmatch(PATTERN, text):
            raise ValueError("it has to be the cursor of an answer")
        number, *groups = text.split(",")
        pairs = (each.split(":") for each in groups)
        return cls(int(number), {group: int(last) for group, last in pairs})

    def __str__(self) -> str:
        return ",".join([str(self.number), *(f"{group}:{last}" for group, last in sorted(self.groups.items()))])
