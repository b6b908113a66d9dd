"""Gate: the licence that keeps vjobs pending, and the reservation that takes it away from everybody."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.engine.context.context import Context
from rmsplugin.errors import RmspluginError

#: Slurm gives a reservation without an end 365 days: it is renewed when less than this is left.
_RENEW_S = 180 * 86400.0
_RETRY_S = 30.0


class Gate:
    """Keeps the gate shut."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._not_before = 0.0

    def keep(self, rms: RmsSnapshot) -> str:
        """Make or renew the reservation if that is needed. Returns a sentence about a fault; empty if there is none."""
        slurm, now = self._context.settings.slurm, self._context.clock.now()
        if not rms.licenses.get(slurm.gate):
            return (
                f"slurm.conf has no licence {slurm.gate}, so Slurm keeps no vjob waiting: "
                f"add Licenses={slurm.gate}:1, and restart slurmctld"
            )
        found = rms.reservations.get(slurm.gate_reservation)
        if found is not None and slurm.gate in found.licenses and found.end_time - now > _RENEW_S:
            return ""
        if now < self._not_before:
            return (
                f"reservation {slurm.gate_reservation}, which keeps vjobs waiting, is missing; it is tried again soon"
            )
        try:
            self._context.rms.reserve_gate()
        except RmspluginError as error:
            self._not_before = now + _RETRY_S
            return f"reservation {slurm.gate_reservation} cannot be made, so Slurm keeps no vjob waiting: {error}"
        self._context.ledger.event("gate-reserved", f"reservation {slurm.gate_reservation} was made or renewed")
        return ""
