"""Job names: users' names of jobs, as Slurm's commands take them: ``12``, ``12_3``, ``12_[1-3,7]``. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

_ID = r"[1-9][0-9]{0,9}"
_INDEX = r"(?:0|[1-9][0-9]{0,9})"
_RANGE = rf"{_INDEX}(?:-{_INDEX})?"
_RANGES = rf"{_RANGE}(?:,{_RANGE})*"
_NAME = re.compile(rf"({_ID})(?:_(?:(\[{_RANGES}\])|({_RANGE})))?")
#: The greatest length of a name: an array of a thousand elements, every other one of them.
MAX_LENGTH = 4096

EXAMPLES = "12, 12_3 or 12_[1-3,7]"


class JobName(NamedTuple):
    """A user's name of a job, an array, or some of an array's elements."""

    text: str
    job: int
    ranges: tuple[tuple[int, int], ...] = ()  # of the elements, first and last; empty: the name has no elements

    @property
    def is_one(self) -> bool:
        """Whether it names one element of an array."""
        return len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]

    def covers(self, element: int) -> bool:
        """Whether it names this element of the array, or the whole array."""
        return not self.ranges or any(first <= element <= last for first, last in self.ranges)

    def means(self, display_id: str, job_id: int = 0) -> bool:
        """Whether it names the vjob with this display name, and with this id in the RMS."""
        job, _, element = display_id.partition("_")
        if job == str(self.job):
            return self.covers(int(element)) if element else not self.ranges
        return not self.ranges and job_id == self.job

    def missing(self, display_ids: Iterable[str]) -> str:
        """The elements that it names beside these, as written by users; empty if there are none.

        ``display_ids`` may be folded.
        """
        left: list[tuple[int, int]] = list(self.ranges)
        for there in {span for display_id in display_ids for span in parse(display_id).ranges or ((0, 0),)}:
            left = [part for span in left for part in _without(span, there)]
        return ",".join(_span(*span) for span in sorted(set(left)))


def parse(text: str) -> JobName:
    """Read a name. Raises ValueError, with a sentence."""
    match = _NAME.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a job id: it has to be a number, or elements of an array: {EXAMPLES}")
    spans = (match[2] or match[3] or "").strip("[]")
    ranges = []
    for each in filter(None, spans.split(",")):
        first, _, last = each.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"{text[:60]!r} is not a job id: {each} ends before it begins")
        ranges.append((int(first), int(last or first)))
    return JobName(text, int(match[1]), tuple(ranges))


def fold(names: Iterable[str]) -> str:
    """Several display ids in as few words as possible: ``12_[1-3,7],14``."""
    arrays: dict[str, set[int]] = defaultdict(set)
    for name in names:
        job, _, element = name.partition("_")
        arrays[job].update([int(element)] if element else ())
    return ",".join(_folded(job, sorted(elements)) for job, elements in arrays.items())


def _folded(job: str, elements: list[int]) -> str:
    spans: list[list[int]] = []
    for element in elements:
        if spans and spans[-1][1] == element - 1:
            spans[-1][1] = element
        else:
            spans.append([element, element])
    if not spans:
        return job
    words = ",".join(_span(first, last) for first, last in spans)
    return f"{job}_{words}" if len(elements) == 1 else f"{job}_[{words}]"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _without(span: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    first, last = span
    if other[1] < first or last < other[0]:
        return [span]
    return [part for part in ((first, other[0] - 1), (other[1] + 1, last)) if part[0] <= part[1]]
