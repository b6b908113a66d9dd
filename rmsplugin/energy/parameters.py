"""Parameters: all that the account of energy, and the switching of nodes, depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.energy.daily import Daily
from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.power import PowerClass


@dataclass(frozen=True)
class EnergyParameters:
    """The nodes' classes, and how they are switched.

    Attributes:
        classes: the class of each node, by its name; nodes of one class share an object.
        predict: the weight of the latest idle period in the prediction (c of equation 9).
        reserve: so many idle nodes always stay on.
        price: of a kilowatt-hour, by time of day; None: unknown.
        co2: grams of a kilowatt-hour, by time of day; None: unknown.
        emptying: which nodes are emptied by migrations, so that they can be switched off; None: none is.
        late_at_most: the share by which vjobs may be later because nodes were off; None: nothing is done about it.
    """

    classes: Mapping[str, PowerClass]
    predict: float = 0.5
    reserve: int = 0
    price: Daily | None = None
    co2: Daily | None = None
    emptying: Emptying | None = None
    late_at_most: float | None = None
