"""Event cursor: up to which event of each ledger a reader has been told. One word, for the next question. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NUMBER = "(0|[1-9][0-9]{0,15})"
_LEDGER = "[0-9a-f]{8}"
_GROUP = "[A-Za-z0-9_.+-]{1,64}"
PATTERN = f"{_NUMBER}(:{_LEDGER}|(,{_GROUP}:{_NUMBER}(:{_LEDGER})?)*)"
#: The most characters of one.
LONGEST = 4096
#: A number of a manager is a time in microseconds, and is at least this one: no ledger has so many events.
LEAST_TIME = 10**11


@dataclass(frozen=True, slots=True)
class EventCursor:
    """A place in the events of one engine, or in those of all groups.

    Attributes:
        number: of the last event, where one engine answers. Where a manager does: a time in microseconds, from which
            events of groups are told that have no place here.
        ledger: the identity of the ledger that has given the number; empty where a manager answers, or not known.
        groups: by group, the place in the events of its engine.
    """

    number: int = 0
    ledger: str = ""
    groups: Mapping[str, EventCursor] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """Read the word. Raises ValueError."""
        if len(text) > LONGEST or not re.fullmatch(PATTERN, text):
            raise ValueError("it has to be the cursor of an answer")
        own, *groups = text.split(",")
        number, _, ledger = own.partition(":")
        pairs = (each.partition(":") for each in groups)
        return cls(int(number), ledger, {group: cls.parse(place) for group, _, place in pairs})

    def __str__(self) -> str:
        own = f"{self.number}:{self.ledger}" if self.ledger else str(self.number)
        return ",".join([own, *(f"{group}:{place}" for group, place in sorted(self.groups.items()))])

    @property
    def is_of_managers(self) -> bool:
        """Whether a manager has given it, and not an engine."""
        return bool(self.groups) or (not self.ledger and self.number >= LEAST_TIME)
