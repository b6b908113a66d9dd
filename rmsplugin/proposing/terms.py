"""Terms: what it depends on whether a node is worth to be emptied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.power import PowerClass


@dataclass(frozen=True, slots=True)
class Terms:
    """What an emptied node saves.

    Attributes:
        emptying: the site's terms.
        classes: the class of each node, by its name.
        idle_s: how much longer each node that may be emptied then has nothing, by its name (``idle_after_s``).
    """

    emptying: Emptying
    classes: Mapping[str, PowerClass]
    idle_s: Mapping[str, float]
