"""Gate: the licence that keeps vjobs pending, and the reservation that takes it away from everybody."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import Rms, RmsSnapshot
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import RmspluginError
from rmsplugin.settings import Settings

#: Slurm gives a reservation without an end 365 days: the schedule renews it when less than this is left, ...
_RENEW_S = 180 * 86400.0
#: ... and a cycle where that was not done.
_LATE_S = 120 * 86400.0
_RETRY_S = 30.0


class Gate:
    """Keeps the gate shut."""

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, rms: Rms) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._rms = rms
        self._not_before = 0.0

    def keep(self, rms: RmsSnapshot) -> str:
        """Make the reservation if it is missing, holds too few licences, or is about to end.

        Returns a sentence about a fault; empty: none.
        """
        slurm, now = self._settings.slurm, self._clock.now()
        if not rms.licenses.get(slurm.gate):
            return (
                f"slurm.conf has no licence {slurm.gate}, so Slurm keeps no vjob waiting: "
                f"add Licenses={slurm.gate}:1, and restart slurmctld"
            )
        if self._left_s(rms) > _LATE_S:
            return ""
        if now < self._not_before:
            return (
                f"reservation {slurm.gate_reservation}, which keeps vjobs waiting, is missing, or holds too few of the "
                f"licences {slurm.gate}; it is tried again soon"
            )
        try:
            self._reserve()
        except RmspluginError as error:
            self._not_before = now + _RETRY_S
            return f"reservation {slurm.gate_reservation} cannot be made, so Slurm keeps no vjob waiting: {error}"
        return ""

    def renew(self, rms: RmsSnapshot) -> str:
        """Renew the reservation if it ends within half a year. Returns what was done.

        Raises:
            RmspluginError: Slurm does not renew it.
        """
        name, left_s = self._settings.slurm.gate_reservation, self._left_s(rms)
        if left_s > _RENEW_S:
            return f"reservation {name} lasts for {left_s / 86400:.0f} days more"
        self._reserve()
        return f"reservation {name} was renewed"

    def _reserve(self) -> None:
        self._rms.reserve_gate()
        name = self._settings.slurm.gate_reservation
        self._ledger.event("gate-reserved", f"reservation {name} was made or renewed")

    def _left_s(self, rms: RmsSnapshot) -> float:
        """For how long all licences of the gate are reserved; 0 or less: one is free, and Slurm starts a vjob by it."""
        slurm = self._settings.slurm
        found = rms.reservations.get(slurm.gate_reservation)
        if found is None or found.licenses.get(slurm.gate, 0) < max(1, rms.licenses.get(slurm.gate, 0)):
            return 0.0
        return found.end_time - self._clock.now()
