"""Heat: when a node is hot, and when it has cooled. Pure.

A sensor that lies once proves nothing, and neither does one that is silent: two readings in a row do.
"""

from __future__ import annotations

from dataclasses import dataclass

#: So many readings in a row.
_IN_A_ROW = 2


@dataclass(frozen=True, slots=True)
class Heat:
    """The thresholds of a node.

    Attributes:
        hot_c: from this temperature on it is hot.
        cool_c: down from this one it has cooled; below ``hot_c``.
    """

    hot_c: float
    cool_c: float


class Thermometer:
    """One node's readings, as far as they count."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._in_a_row = 0

    def read(self, heat: Heat, celsius: float | None, *, is_hot: bool) -> bool:
        """Take in a reading.

        Args:
            heat: the thresholds.
            celsius: what the sensor shows; None: it is silent.
            is_hot: whether the node is hot so far.

        Returns:
            Whether it is hot now.
        """
        differs = celsius is not None and (celsius <= heat.cool_c if is_hot else celsius >= heat.hot_c)
        self._in_a_row = self._in_a_row + 1 if differs else 0
        if self._in_a_row < _IN_A_ROW:
            return is_hot
        self._in_a_row = 0
        return not is_hot
