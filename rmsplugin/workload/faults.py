"""Faults: the lines of a trace that yield no job, counted, and named with the reason."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

#: The number of lines that are named for each reason; all are counted. A file of another kind has a fault on each line.
NAMED = 1000


class FaultCode(enum.StrEnum):
    """The reason why a line is not simulated."""

    FIELDS = "fields"  # fewer than 18
    NUMBER = "number"  # a field is no number
    RANGE = "range"  # a field is below -1, or too large
    STATUS = "status"  # a status that the format does not have
    NO_JOB_NUMBER = "no-job-number"
    REPEATED = "repeated"  # an earlier line has this job number
    NO_SUBMIT_TIME = "no-submit-time"
    NO_RUN_TIME = "no-run-time"
    NO_PROCESSORS = "no-processors"
    CANCELLED = "cancelled"  # before it started
    PARTIAL = "partial"  # a partial execution of a job for which no line tells the whole
    TOO_LARGE = "too-large"  # for the cluster
    NOT_ENDED = "not-ended"  # the job is still there
    NEVER_RAN = "never-ran"  # the job ended before it ran
    RULE = "rule"  # placement rules let it run nowhere


#: The reason in a count: "17 lines: ...".
SUMMARIES = {
    FaultCode.FIELDS: "fewer than 18 fields",
    FaultCode.NUMBER: "a field is no number",
    FaultCode.RANGE: "a field is out of its range",
    FaultCode.STATUS: "a status that SWF does not have",
    FaultCode.NO_JOB_NUMBER: "no job number",
    FaultCode.REPEATED: "a job number for the second time",
    FaultCode.NO_SUBMIT_TIME: "no submit time",
    FaultCode.NO_RUN_TIME: "no run time",
    FaultCode.NO_PROCESSORS: "no number of processors",
    FaultCode.CANCELLED: "cancelled before the job started",
    FaultCode.PARTIAL: "a partial execution of a job of which no line tells the whole",
    FaultCode.TOO_LARGE: "larger than the cluster",
    FaultCode.NOT_ENDED: "not ended yet",
    FaultCode.NEVER_RAN: "ended before the job ran",
    FaultCode.RULE: "kept from running by placement rules",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that is not simulated: its number from 1 (0: a job of a ledger), the reason, and the reason in words."""

    line: int
    code: FaultCode
    message: str


class Faults:
    """All lines that are not simulated: counted by reason, and the first 1,000 of each reason named."""

    def __init__(self) -> None:
        self.counts: Counter[FaultCode] = Counter()
        self._named: list[Fault] = []

    def add(self, line: int, code: FaultCode, message: str) -> None:
        """Add a line."""
        self.counts[code] += 1
        if self.counts[code] <= NAMED:
            self._named.append(Fault(line, code, message))

    @property
    def reasons(self) -> str:
        """The number of lines for each reason, the most frequent reason first, for a sentence."""
        return "; ".join(f"{count} {SUMMARIES[code]}" for code, count in self.counts.most_common())

    def told(self, of: int, what: str) -> str:
        """A sentence about all of them: "2 of 18 lines are not simulated: 2 larger than the cluster"."""
        return f"{len(self)} of {of} {what} {'is' if len(self) == 1 else 'are'} not simulated: {self.reasons}"

    def __len__(self) -> int:
        return self.counts.total()

    def __iter__(self) -> Iterator[Fault]:
        """The named faults, by line."""
        return iter(sorted(self._named, key=lambda fault: fault.line))
