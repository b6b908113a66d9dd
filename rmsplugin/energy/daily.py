"""Daily: a value that depends on the time of day: a price, or grams of CO2, of a kilowatt-hour."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Daily:
    """Steps: from each second of the day on, a value, until the next step; the last one lasts into the next day."""

    steps: Sequence[tuple[float, float]]  # ascending seconds of the day, at least one

    @classmethod
    def of(cls, steps: Iterable[tuple[str, float]]) -> Daily | None:
        """Values from times of day on (HH:MM); before the first one the last one lasts. None if there are none."""
        found = sorted((3600.0 * int(begin[:2]) + 60.0 * int(begin[3:]), value) for begin, value in steps)
        if not found:
            return None
        return cls(found if found[0][0] == 0 else [(0.0, found[-1][1]), *found])

    def at(self, second_of_day: float) -> float:
        """The value at a time of day."""
        return self.steps[bisect_right([begin for begin, _ in self.steps], second_of_day) - 1][1]

    def mean(self, begin_s: float, end_s: float) -> float:
        """The mean from one time to a later one, in seconds since a midnight of a clock that nobody sets meanwhile."""
        days, rest_s = divmod(end_s - begin_s, DAY_S)
        whole = sum(value * (end - begin) for begin, end, value in self._day(0.0, DAY_S))
        first_s = begin_s % DAY_S
        total = days * whole + sum(value * (end - begin) for begin, end, value in self._day(first_s, first_s + rest_s))
        return total / (end_s - begin_s) if end_s > begin_s else self.at(first_s)

    def _day(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float, float]]:
        """The parts of a time of at most a day that begins on the first day, each with its value."""
        edges = [day + second for day in (0.0, DAY_S) for second, _ in self.steps]
        cuts = [begin_s, *(edge for edge in edges if begin_s < edge < end_s), end_s]
        for begin, end in pairwise(cuts):
            yield begin, end, self.at(begin % DAY_S)
