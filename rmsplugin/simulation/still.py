"""Still: whether a decision of ``slowdown`` that changed nothing is the same later, if nothing happened. Pure.

Time alone changes three things: which vjob goes first, which may have others make way, and whether that pays. If these
are the same, so is the decision, and it need not be made: packing does not depend on time (docs/decisions/0180).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmsplugin.decision.expansion import expansion
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Barred
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.counted import Held
from rmsplugin.simulation.standing import Moved, Standing, exempt_for_s, standings
from rmsplugin.simulation.vjob import SimulatedVJob

_READY = (VJobState.WAITING, VJobState.SLEEPING)


@dataclass(frozen=True)
class Still:
    """All that time has a part in, in a decision about vjobs on nodes.

    Attributes:
        stand: the standing of each vjob about which something is decided.
        order: all vjobs, in the order in which they go first.
        due: the vjobs that are protected because they are overdue.
        may_yield: the running vjobs that may be suspended.
        enough: by a ready vjob and a running one, whether the ready one has waited enough for the running one to make
            way.
        factor: the multiple of a running vjob's expansion that is enough.
    """

    stand: Mapping[SimulatedVJob, Standing]
    order: tuple[SimulatedVJob, ...]
    due: frozenset[SimulatedVJob]
    may_yield: tuple[SimulatedVJob, ...]
    enough: npt.NDArray[np.bool_]
    factor: float

    @classmethod
    def at(
        cls,
        now: float,
        queue: Iterable[SimulatedVJob],
        transit: Collection[SimulatedVJob],
        held: Held,
        parameters: Parameters,
        capacity: Resources,
    ) -> Still:
        """Take the state at a time.

        Args:
            now: the time.
            queue: all vjobs that have not ended, in the order of their submissions.
            transit: those vjobs of the queue about which nothing is decided.
            held: the holdings of those.
            parameters: the parameters of the decision; no shares, and nobody is paused.
            capacity: the resources of all nodes.
        """
        vjobs = list(queue)
        settled = [vjob for vjob in vjobs if vjob not in transit]
        stand = standings(settled, now, Moved(), held, parameters, capacity + held.twice)

        def first(vjob: SimulatedVJob) -> tuple[bool, bool, float]:
            if vjob not in stand:  # it runs, for all that is known of it
                return True, True, 0.0
            each = stand[vjob]
            runs = vjob.state is VJobState.RUNNING
            return not each.due, runs, each.stays[1] if runs else each.rank[2]

        ready = [stand[vjob] for vjob in settled if vjob.state in _READY]
        runs = [vjob for vjob in settled if vjob.state is VJobState.RUNNING and vjob.job.preemptible]
        may_yield = tuple(vjob for vjob in runs if not exempt_for_s(vjob, now, parameters))
        factor = parameters.slowdown.factor
        asks = np.array([each.expansion for each in ready])
        least = factor * np.array([stand[vjob].expansion for vjob in may_yield])
        enough = asks[:, None] >= least[None, :]
        due = frozenset(vjob for vjob, each in stand.items() if each.due)
        return cls(stand, tuple(sorted(vjobs, key=first)), due, may_yield, enough, factor)

    def is_as(self, before: Still, barred: Mapping[SimulatedVJob, tuple[Collection[SimulatedVJob], float]]) -> bool:
        """Whether a decision now takes the same way as an earlier one, if nothing has happened in between.

        Args:
            before: the state at the time of that decision.
            barred: the vjobs for which others did not make way then, because it did not pay: those others, and the
                least loss.
        """
        if self.order != before.order or self.due != before.due or self.may_yield != before.may_yield:
            return False
        if not np.array_equal(self.enough, before.enough):
            return False
        return all(self._is_too_much(vjob, victims, lost_s) for vjob, (victims, lost_s) in barred.items())

    def _is_too_much(self, vjob: SimulatedVJob, victims: Collection[SimulatedVJob], lost_s: float) -> bool:
        """Whether it still does not pay that these make way for a vjob, however many vjobs share the loss."""
        each = self.stand[vjob]
        its = expansion(each.waited_s, each.needed_s + lost_s)
        return any(its < self.factor * self.stand[victim].expansion for victim in victims)


def of_vjobs(
    barred: Mapping[str, Barred], live: Mapping[str, SimulatedVJob]
) -> dict[SimulatedVJob, tuple[list[SimulatedVJob], float]]:
    """A decision's words on vjobs, by their names."""
    return {live[name]: ([live[victim] for victim in each.victims], each.lost_s) for name, each in barred.items()}
