"""Giving up: a vjob of which nothing has begun is given up, once and durably, when the leader wishes it elsewhere.

Its rows go, and the ledger notes that it was given up, in one transaction. Only then is the leader told, which gives it
to the other group only then. A vjob that the leader has given to another group meanwhile, or to none, goes likewise; if
anything of it has begun, it stays, and this is said. A vjob that sleeps is handed over (``handing_over``). So is one
that the leader wishes elsewhere though it runs, once it was suspended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.reconcile.handing_over import HandingOver
from rmsplugin.engine.territory.territory import Territory, number_of
from rmsplugin.groups.given import Place
from rmsplugin.model.vjob import VJobState


class GivingUp:
    """Gives up vjobs, once a cycle."""

    def __init__(self, ledger: Ledger, territory: Territory, handing: HandingOver) -> None:
        self._ledger = ledger
        self._territory = territory
        self._handing = handing

    def give_up(self, seen: Observation, busy: Collection[int]) -> list[str]:
        """Give up all that is to go and can. Returns sentences about vjobs that another group has, and that have begun.

        Args:
            seen: a look at the cluster, made after the leader's word was read.
            busy: job ids of the vjobs that have an operation under way.
        """
        territory, kept = self._territory, Place(self._territory.group)
        if not territory.is_told:
            return []
        version = territory.version
        vjobs: dict[int, list[VJobRow]] = defaultdict(list)
        for vjob in self._ledger.vjobs():
            vjobs[number_of(vjob.display_id, vjob.job_id)].append(vjob)
        self._handing.order_removals(busy)
        problems, leaving, parting = [], territory.leaving(), set()
        for number in [*leaving, *sorted(vjobs.keys() - {*leaving})]:
            place = territory.place(number)
            if place == kept:
                continue
            if place is not None and place.relieves and _is_to_sleep(vjobs[number]):
                (vjob,) = vjobs[number]
                if self._handing.put_to_sleep(vjob, place.to or "", vjob.job_id in busy, seen.taken):
                    parting.add(number)
            elif _sleeps(vjobs[number]) and place is not None and place.to is not None:
                (vjob,) = vjobs[number]
                if self._handing.hand_over(vjob, place.to, vjob.job_id in busy):
                    territory.gave_up(number)
            elif self._has_gone(seen, number, vjobs[number], busy):
                territory.gave_up(number)
            elif place is None or place.group != territory.group:
                problems.append(self._theirs(vjobs[number], place))
        territory.can_go, territory.parting = self._handing.can_go(self._ledger.vjobs()), frozenset(parting)
        territory.done = version
        return problems

    def _has_gone(self, seen: Observation, number: int, vjobs: list[VJobRow], busy: Collection[int]) -> bool:
        """Give up a vjob, or all of an array, if nothing of it has begun. Returns whether it has gone."""
        ledger = self._ledger
        if not all(vjob.job_id not in busy and _waits(seen, vjob) for vjob in vjobs):
            return False
        with ledger.transaction():
            if self._is_about_to_begin(number, vjobs) or any(ledger.has_begun(vjob.job_id) for vjob in vjobs):
                return False
            for vjob in vjobs:
                ledger.forget_vjob(vjob.job_id)
            if number in self._territory.own:
                ledger.given.release(number)
        return True

    def _is_about_to_begin(self, number: int, vjobs: list[VJobRow]) -> bool:
        """Whether a step is planned, also of an element of the array that has no row yet."""
        names = {vjob.display_id for vjob in vjobs}
        steps = self._ledger.plans.open_steps()
        return any(step.vjob in names or step.vjob.partition("_")[0] == str(number) for step in steps)

    def _theirs(self, vjobs: list[VJobRow], place: Place | None) -> str:
        names = ", ".join(vjob.display_id for vjob in vjobs)
        where = "no group" if place is None else f"group {place.group}"
        return f"vjob {names}: the leader's word has it in {where}, but it has begun here, and stays"


def _sleeps(vjobs: list[VJobRow]) -> bool:
    """Whether this is one vjob, which sleeps."""
    return len(vjobs) == 1 and vjobs[0].state is VJobState.SLEEPING


def _is_to_sleep(vjobs: list[VJobRow]) -> bool:
    """Whether this is one vjob, which runs, or is being suspended."""
    return len(vjobs) == 1 and vjobs[0].state in (VJobState.RUNNING, VJobState.SUSPENDING)


def _waits(seen: Observation, vjob: VJobRow) -> bool:
    """Whether the look shows the vjob's job behind the gate, and no VM of it."""
    job = seen.jobs.get(vjob.job_id)
    if vjob.job_id in seen.of_jobs or vjob.job_id in seen.changed:
        return False
    return job is not None and job.state is JobState.PENDING and job.gated
