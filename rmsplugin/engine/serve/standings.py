"""Standings: where each vjob stands in the queue, and why it waits: by Slurm, or by the last cycle's decision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.decision.expansion import expansion, still_expected_s
from rmsplugin.engine.assess.newcomers import NOT_DECIDED_YET
from rmsplugin.engine.assess.queue import queue_key
from rmsplugin.engine.capacity.priorities import priority_of
from rmsplugin.engine.capacity.weights import accrues_from
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.decide.telling import Told, Wait, differ_in_amounts
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

#: Slurm's words for what keeps a pending job, and what they mean. Of others only the word is told.
_WORDS = {
    "JobHeldUser": "its user holds it: `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "Dependency": "it depends on other jobs",
    "DependencyNeverSatisfied": "what it depends on can never be fulfilled",
    "BeginTime": "its begin time has not come",
    "JobArrayTaskLimit": "as many elements of its array are under way as may be",
}
#: Words by which Slurm tells of the gate, or of its own turn: they do not say what keeps a job.
_OF_THE_GATE = frozenset({"", "None", "Licenses", "Priority", "Resources"})
_RESTS = (VJobState.PAUSED, VJobState.SLEEPING)


def reason_of(vjob: VJobRow, reason: str | None = None) -> str:
    """The reason of its state; for a vjob that sleeps, on disk or in memory, also what it waits for.

    ``reason``: what is said in place of what the ledger has.
    """
    reason = vjob.reason if reason is None else reason
    if vjob.state not in _RESTS:
        return reason
    if vjob.preferred is VJobState.SLEEPING:
        return f"{reason}; it stays so while an administrator prefers that"
    turn = "it goes on when its turn comes" if vjob.state is VJobState.PAUSED else "it resumes when its turn comes"
    waits = turn if vjob.wakes else f"`rmsplugin resume {vjob.display_id}` wakes it"
    return f"{reason}; {waits}"


def remembered(vjob: VJobRow, vms: Iterable[VMRow]) -> dict[str, Any]:
    """As ``Standings.of``, as far as the ledger alone knows."""
    return {
        "name": vjob.job_name,
        "account": "",
        "time_limit_s": None,
        "priority": vjob.priority,
        "position": None,
        "expansion": _of_ended(vjob),
        "code": "",
        "reason": reason_of(vjob),
    }


class Standings:
    """Tells of vjobs what Slurm and the queue say of them. Reads the last look and the ledger; changes nothing."""

    def __init__(self, settings: Settings, ledger: Ledger, cycle: Cycle) -> None:
        """Take what is read."""
        self._settings, self._ledger, self._cycle = settings, ledger, cycle

    def of(self, vjob: VJobRow, vms: Iterable[VMRow]) -> dict[str, Any]:
        """Of one vjob: name, account, time limit, priority, position, and code and reason of its state."""
        job = self._job_of(vjob)
        position, priority = self._place(vjob)
        told = self._why(vjob, vms, job)
        return {
            "name": vjob.job_name,
            "account": job.account if job else "",
            "time_limit_s": _limit_s(job),
            "priority": priority if position else (job.priority if job else 0) or vjob.priority,
            "position": position,
            "expansion": self._expansion(job, vjob),
            "code": told.code,
            "reason": told.sentence,
        }

    def position_and_why(self, vjob: VJobRow, vms: Iterable[VMRow]) -> tuple[int | None, Told]:
        """The same position, code and reason alone."""
        return self._place(vjob)[0], self._why(vjob, vms, self._job_of(vjob))

    def _job_of(self, vjob: VJobRow) -> RmsJob | None:
        """Its job at the last look; None: there was none, or the one of this number is another's."""
        if vjob.job_id in self._cycle.identity.others or vjob.state is VJobState.TERMINATED:
            return None
        return self._cycle.seen.jobs.get(vjob.job_id) if self._cycle.seen else None

    def of_job(self, job: RmsJob, name: str = "") -> dict[str, Any]:
        """Of a job that the ledger does not know; ``name``: its display id, if the job has not its own yet."""
        position = self._place_of_job(job)
        told = why_in_slurm(job) or self._cycle.deciding.told.get(name or job.display_id)
        return {
            "name": job.name,
            "account": job.account,
            "time_limit_s": _limit_s(job),
            "priority": job.priority,
            "position": position,
            "expansion": self._expansion(job, None),
            "code": told.code if told else "new",
            "reason": told.sentence if told and told.sentence else self._next_look(),
        }

    def _expansion(self, job: RmsJob | None, vjob: VJobRow | None) -> float | None:
        """Its waits and the time that it still needs, as a multiple of that time, as policies have it."""
        if vjob is not None and vjob.state is VJobState.TERMINATED:
            return _of_ended(vjob)
        if self._cycle.seen is None:
            return None
        now = self._cycle.seen.taken
        ran_s = vjob.ran_by(now) if vjob is not None else 0.0
        waited_s = max(0.0, now - accrues_from(job, vjob, now) - ran_s)
        return round(expansion(waited_s, still_expected_s(_limit_s(job), ran_s)), 2)

    def _next_look(self) -> str:
        return f"the engine has not met it yet (it looks every {self._settings.engine.cycle_s:g} s)"

    def unmet(self) -> Iterator[RmsJob]:
        """The jobs of vjob partitions that Slurm had at the last look, under way or pending, and the ledger has not."""
        seen = self._cycle.seen
        if seen is None:
            return
        known = {vjob.display_id for vjob in self._ledger.vjobs()}
        for job in seen.rms.jobs:
            ours = job.partition in self._settings.slurm.partitions and job.state is not JobState.ENDED
            if ours and job.display_id not in known:
                yield job

    def _why(self, vjob: VJobRow, vms: Iterable[VMRow], job: RmsJob | None) -> Told:
        """Code and sentence of the state; the sentence of the ledger, unless the last look knows better."""
        if vjob.state is VJobState.WAITING:
            if job is not None and (told := why_in_slurm(job)):
                # The engine itself holds a job, as an administrator, and has written down why.
                why = "" if job.held_by_user or not job.held or vjob.reason == NOT_DECIDED_YET else f"; {vjob.reason}"
                return Told(told.code, told.sentence + why)
            known = self._cycle.deciding.told.get(vjob.display_id)
            code = known.code if known else "new" if vjob.reason == NOT_DECIDED_YET else str(Wait.NOT_DECIDED)
            return Told(code, _newest(vjob, known))
        if vjob.state is VJobState.RUNNING:
            return self._silent(vms) or Told("", vjob.reason)
        if vjob.state not in _RESTS:
            return Told("", vjob.reason)
        known = self._cycle.deciding.told.get(vjob.display_id) if vjob.wakes else None
        code = known.code if known else "its-turn" if vjob.wakes else "by-hand"
        return Told(code, reason_of(vjob, _newest(vjob, known)))

    def _silent(self, vms: Iterable[VMRow]) -> Told | None:
        """Of a vjob that ran when it was last seen: why nobody knows whether it still does; None: it was seen."""
        silent = self._cycle.seen.unreachable if self._cycle.seen else {}
        node = next((vm.host for vm in vms if vm.host in silent), None)
        return None if node is None else Told("node-silent", f"its node {node} does not answer: {silent[node]}")

    # -- the queue -----------------------------------------------------------------------------------------------

    def _place(self, vjob: VJobRow) -> tuple[int | None, int]:
        """Position, from 1 on, and priority; no position: it was not in the queue at the last decision."""
        order = self._cycle.order
        job = order.seen.jobs.get(vjob.job_id) if order is not None else None
        if order is None or job is None or not _queues(vjob, job):
            return None, 0
        priority = job.priority if vjob.state is VJobState.WAITING else priority_of(order.seen, vjob, job)
        return order.position(queue_key(order.seen, vjob, priority, vjob.submitted)), priority

    def _place_of_job(self, job: RmsJob) -> int | None:
        """The same of a job that the ledger does not know."""
        order = self._cycle.order
        if order is None or not job.eligible or (job.split and job.job_id not in order.seen.jobs):
            return None
        return order.position(queue_key(order.seen, job, job.priority, job.submit_time))


def _newest(vjob: VJobRow, known: Told | None) -> str:
    """The reason that the ledger has, with the amounts of the last decision, which it may not have yet."""
    return known.sentence if known is not None and differ_in_amounts(vjob.reason, known.sentence) else vjob.reason


def _queues(vjob: VJobRow, job: RmsJob) -> bool:
    """Whether it waits for its turn, and for nothing else."""
    if vjob.preferred is VJobState.SLEEPING:
        return False
    if vjob.state is VJobState.WAITING:
        return job.eligible
    return vjob.state in _RESTS and vjob.wakes and not job.held


def why_in_slurm(job: RmsJob) -> Told | None:
    """What keeps a pending job in Slurm, whatever the engine decides; None: nothing but the gate."""
    if job.state is not JobState.PENDING or job.eligible:
        return None
    word = job.reason.replace(" ", "_")
    if word in _OF_THE_GATE:
        word = "JobHeldUser" if job.held else "JobArrayTaskLimit" if "_" in job.display_id else "None"
    means = _WORDS.get(word)
    return Told(word, f"Slurm keeps it ({word})" + (f": {means}" if means else ""))


def _of_ended(vjob: VJobRow) -> float | None:
    """The whole time of a vjob that has ended, as a multiple of its run; None: it has not, or it never ran."""
    if vjob.state is not VJobState.TERMINATED or vjob.ran_s <= 0:
        return None
    return round(max(1.0, (vjob.state_since - vjob.submitted) / vjob.ran_s), 2)


def _limit_s(job: RmsJob | None) -> float | None:
    """The time limit in seconds; None: unknown, or none."""
    return job.time_limit_s if job and job.time_limit_s < math.inf else None
