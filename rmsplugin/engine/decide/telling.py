"""Telling: gives every vjob that goes on waiting its reason, in words for its owner."""

from __future__ import annotations

import enum
import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.decision.result import Decision, Reason, ReasonCode
from rmsplugin.engine.assess.assess import Assessment
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.vjob import VJobState

#: The ledger is told of a longer wait, or of another amount that is free, when the wait has grown by a tenth, and by so
#: many seconds.
_TOLD_PART, _TOLD_S = 0.1, 10.0
#: It has so many of these in a cycle at most: where ten jobs end, the amounts change for all of thousands that wait.
_AGAIN_MOST = 1000
#: So many reasons are recorded in one transaction: tens of thousands may change at once, and requests wait for it.
_TOLD_AT_ONCE = 500
_AMOUNTS = re.compile(r"[\d.]+ CPUs?\b|\d+(?= (?:s|hours|days|MiB)\b)|\d+\.\d+")


class Wait(enum.StrEnum):
    """Why a vjob waits about which nothing was decided."""

    ROOM = "room-soon"  # a room comes soon where it starts
    PAUSED = "engine-paused"  # by an operator
    NOT_DECIDED = "not-decided"  # its sentence says why


@made_at_once
@dataclass(frozen=True, slots=True)
class Told:
    """Why a vjob waits: a code for listings, and a sentence for its owner."""

    code: str
    sentence: str


class Telling:
    """Remembers when waiting vjobs were told their reasons.

    Attributes:
        newest: by display id, why each vjob of the queue waits, as of the last cycle; others read it at any time.
    """

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        """Nothing was told yet."""
        self._ledger = ledger
        self._clock = clock
        self._told: dict[int, float] = {}  # by job id
        self._alike = Alike()
        self.newest: Mapping[str, Told] = {}
        self._barred: Mapping[str, str] = {}

    def remember_barred(self, barred: Mapping[str, str]) -> None:
        """Remember whom only rules keep off the nodes that could be borrowed, by display id, with a sentence each.

        It is known when rooms are looked for, after a decision, and told with the next one: so a reason does not change
        to and fro in each cycle.
        """
        self._barred = barred

    def tell(
        self,
        queue: Sequence[Waiting],
        left_out: Mapping[str, str],
        assessment: Assessment | None,
        decision: Decision | None,
        report: CycleReport,
    ) -> None:
        """Give every vjob that goes on waiting its reason.

        Args:
            queue: vjobs that may start or be resumed.
            left_out: by display id, the reasons of those that were left out of the assessment.
            assessment: has the reasons of those about which nothing was decided; None: there is none.
            decision: has the reasons of the others; None: there is none.
            report: receives the number of those that wait.
        """
        rows = {vjob.display_id: vjob for vjob in self._ledger.vjobs()}
        now, told = self._clock.now(), self._told
        self._told = {}
        self._alike.begin()
        reasons: dict[int, str] = {}
        again: list[tuple[float, int, str]] = []  # when it was told last, job id, reason: where amounts alone differ
        newest: dict[str, Told] = {}
        alike: dict[tuple[str, str], Told] = {}  # of thousands that wait most wait for the same
        for waiting in queue:
            name = waiting.job.display_id
            reason = left_out.get(name) or (assessment.why_not(name) if assessment else "")
            code: Wait | ReasonCode = Wait.NOT_DECIDED
            if name in left_out:
                code = Wait.ROOM if assessment else Wait.PAUSED
            if decision is not None and name in decision.states and not reason:
                if decision.states[name] is VJobState.RUNNING:
                    continue
                decided = with_rule(decision.reasons[name], self._barred.get(name))
                reason, code = decided.sentence, decided.code
            report.waiting += 1
            report.waits[code] += 1
            known = alike.get((code, reason))
            newest[name] = alike[code, reason] = Told(str(code), reason) if known is None else known
            row = rows.get(name)  # elements of an array that were not split off have no row
            if row is None or not reason:
                continue
            self._told[row.job_id] = told_at = told.get(row.job_id, 0.0)
            if row.reason == reason:
                continue
            if self._alike.of(row.reason) == self._alike.of(reason):
                if now - told_at >= max(_TOLD_S, _TOLD_PART * (now - row.submitted)):
                    again.append((told_at, row.job_id, reason))
                continue
            reasons[row.job_id] = reason
            if len(reasons) >= _TOLD_AT_ONCE:
                self._record(reasons)
                reasons = {}
        self.newest = newest
        self._record(reasons)
        due = heapq.nsmallest(_AGAIN_MOST, again)
        for start in range(0, len(due), _TOLD_AT_ONCE):
            self._record({job_id: reason for _, job_id, reason in due[start : start + _TOLD_AT_ONCE]})

    def _record(self, reasons: Mapping[int, str]) -> None:
        """Record why vjobs wait, by job id, in one transaction."""
        self._told.update(dict.fromkeys(reasons, self._clock.now()))
        if reasons:
            self._ledger.tell_reasons(reasons)
            self._ledger.read_ahead()


def with_rule(reason: Reason, barred: str | None) -> Reason:
    """The reason of a vjob that waits: the rule, if only rules keep it off nodes that could be borrowed."""
    if barred is None or reason.code is not ReasonCode.NO_ROOM:
        return reason
    return Reason(ReasonCode.RULE, barred, reason.numbers)


def differ_in_amounts(one: str, other: str) -> bool:
    """Whether two reasons tell the same of other amounts: of times, CPUs or memory."""
    return one != other and _AMOUNTS.sub("", one) == _AMOUNTS.sub("", other)


class Alike:
    """Reasons without the amounts in them. Those of the last two cycles are remembered: most come again."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._before: dict[str, str] = {}
        self._now: dict[str, str] = {}

    def begin(self) -> None:
        """Begin a cycle: what the one before the last has asked is forgotten."""
        self._before, self._now = self._now, {}

    def of(self, reason: str) -> str:
        """The reason without amounts."""
        found = self._now.get(reason)
        if found is None:
            found = self._before.get(reason)
            if found is None:
                found = _AMOUNTS.sub("", reason)
            self._now[reason] = found
        return found
