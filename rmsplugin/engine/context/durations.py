"""Durations in use: those of the settings, and measured ones in the place of some, where the site has it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MeasuredDuration:
    """One action of section [durations].

    Attributes:
        action: its name in the keys of the section.
        values: keys of the section, with what was measured.
        count: of measured actions.
        since: when the engine began to use them, in seconds since the epoch.
    """

    action: str
    values: Mapping[str, float] = field(default_factory=dict)
    count: int = 0
    since: float = 0.0


class DurationsInUse:
    """Read by decisions; set beside cycles, as a whole."""

    def __init__(self, of_settings: Mapping[str, float]) -> None:
        """Nothing was measured yet. ``of_settings``: keys and values of section [durations]."""
        self.of_settings = of_settings
        self.measured: Mapping[str, MeasuredDuration] = {}

    def values(self) -> dict[str, float]:
        """Keys and values, as in section [durations]."""
        measured = (each.values for each in self.measured.values())
        return {**self.of_settings, **{key: value for values in measured for key, value in values.items()}}
