"""Selection: the vjobs that run, chosen one after the other; what a policy of a site is written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmsplugin.decision.admission import admit, settle
from rmsplugin.decision.awaiting import unless_exempt
from rmsplugin.decision.near import around_apart
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import no_room
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode, Sample
from rmsplugin.decision.room import Effort
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState


class Selection:
    """The vjobs that run after this cycle, beginning with those that must; the others are added while there is room.

    Those that must run are settled before: by their targets, since an administrator prefers it, since they may not be
    preempted, since something is under way on them, or since they were started or resumed less than
    ``parameters.exempt_s`` ago.
    """

    def __init__(self, configuration: Configuration, parameters: Parameters) -> None:
        """Begin with the vjobs that must run; their VMs have their place."""
        self._configuration = configuration
        self._draft = settle(
            configuration, lambda vjob: unless_exempt(vjob, parameters), Effort.within(parameters, checks=False)
        )
        self._room = admit(self._draft, parameters)
        self._left = {vjob.name for vjob in self._draft.others}  # not added, and not refused, so far

    @property
    def vjobs(self) -> Sequence[VJob]:
        """The vjobs about which the policy decides, in Slurm's order."""
        return tuple(self._draft.others)

    def state(self, vjob: VJob) -> VJobState:
        """The state of a vjob now: running, sleeping or waiting."""
        return self._configuration.state(vjob)

    def add(self, vjob: VJob, why: str = "") -> bool:
        """Have a vjob run, if there is room for all its VMs beside those added before; a running one may migrate.

        Args:
            vjob: one of ``vjobs``.
            why: a sentence for its user, such as "is the shortest"; empty: that it fits.

        Returns:
            Whether there is room. If not, its user reads why.

        Raises:
            ValueError: it was added or refused before, or is none of ``vjobs``.
        """
        if vjob.name not in self._left:
            raise ValueError(f"vjob {vjob.name} was added before, or is not the policy's to decide about")
        self._left.remove(vjob.name)
        if isinstance(self._room, Infeasible):
            return False
        if not self._room.append(vjob):
            found = around_apart(self._room, vjob)
            if found is None:
                self._draft.stays_out(vjob, no_room(vjob, self._room))
                return False
            self._room = found
        self._draft.runs(vjob, Reason(ReasonCode.FITS, why or "fits beside those that were chosen before it"))
        return True

    def decision(self) -> Decision | Infeasible:
        """The decision: those added run, all others sleep or wait; Infeasible if those that must run have no room.

        Where rules about VMs beside each other have VMs elsewhere, they are placed by these later. One that finds no
        place then stays out, and the policy is asked once more, with that one settled.
        """
        if isinstance(self._room, Infeasible):
            return self._room
        for vjob in self._draft.others:
            if vjob.name in self._left:
                self._draft.stays_out(vjob, Reason(ReasonCode.NOT_CHOSEN, "the site's policy does not choose it now"))
        return replace(self._draft.decision("", {}), placement=Sample(self._room.placement))
