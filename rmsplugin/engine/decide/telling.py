"""Telling: gives every vjob that goes on waiting its reason, in words for its owner."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.engine.assess.assess import Assessment
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.model.vjob import VJobState

#: A waiting vjob is told of its longer wait when that has grown by a tenth, and so many seconds: thousands may wait.
_TOLD_PART, _TOLD_S = 0.1, 10.0
#: So many reasons are recorded in one transaction: tens of thousands may change at once, and requests wait for it.
_TOLD_AT_ONCE = 500
_TIMES = re.compile(r"\d+(?= (?:s|hours|days)\b)|\d+\.\d+")


class Wait(enum.StrEnum):
    """Why a vjob waits about which nothing was decided."""

    ROOM = "room-soon"  # a room comes soon where it starts
    PAUSED = "engine-paused"  # by an operator
    NOT_DECIDED = "not-decided"  # its sentence says why


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
        self._timeless = Timeless()
        self.newest: Mapping[str, Told] = {}

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
        self._timeless.begin()
        reasons: dict[int, str] = {}
        newest: dict[str, Told] = {}
        for waiting in queue:
            name = waiting.job.display_id
            reason = left_out.get(name) or (assessment.why_not(name) if assessment else "")
            code: Wait | ReasonCode = Wait.NOT_DECIDED
            if name in left_out:
                code = Wait.ROOM if assessment else Wait.PAUSED
            if decision is not None and name in decision.states and not reason:
                if decision.states[name] is VJobState.RUNNING:
                    continue
                reason, code = decision.reasons[name].sentence, decision.reasons[name].code
            report.waiting += 1
            report.waits[code] += 1
            newest[name] = Told(str(code), reason)
            row = rows.get(name)  # elements of an array that were not split off have no row
            if row is None or not reason:
                continue
            told_at = told.get(row.job_id, 0.0)
            fresh = now - told_at < max(_TOLD_S, _TOLD_PART * (now - row.submitted))
            if row.reason == reason or (fresh and self._timeless.of(row.reason) == self._timeless.of(reason)):
                self._told[row.job_id] = told_at
            else:
                self._told[row.job_id] = now
                reasons[row.job_id] = reason
            if len(reasons) >= _TOLD_AT_ONCE:
                self._record(reasons)
                reasons = {}
        self.newest = newest
        self._record(reasons)

    def _record(self, reasons: Mapping[int, str]) -> None:
        """Record why vjobs wait, by job id, in one transaction."""
        if reasons:
            self._ledger.tell_reasons(reasons)
            self._ledger.read_ahead()


class Timeless:
    """Reasons without the times of waits in them. Those of the last two cycles are remembered: most come again."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._before: dict[str, str] = {}
        self._now: dict[str, str] = {}

    def begin(self) -> None:
        """Begin a cycle: what the one before the last has asked is forgotten."""
        self._before, self._now = self._now, {}

    def of(self, reason: str) -> str:
        """The reason without times."""
        found = self._now.get(reason)
        if found is None:
            found = self._before.get(reason)
            if found is None:
                found = _TIMES.sub("", reason)
            self._now[reason] = found
        return found
