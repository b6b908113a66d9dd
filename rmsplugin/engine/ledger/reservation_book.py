"""Reservation book: the part of the ledger with the nodes that are reserved for VMs that have outgrown their own."""

from __future__ import annotations

import json
import math

from rmsplugin.decision.reservation import Reservation, Reservations
from rmsplugin.engine.ledger.table import LedgerTable, insert


class ReservationBook(LedgerTable):
    """The memory of virtual reconfiguration from one cycle to the next; it outlives a restart of the engine."""

    def read(self) -> Reservations:
        """The reservations; times are seconds since the epoch."""
        held = tuple(
            Reservation(row["node"], row["vm"], row["since"], frozenset(json.loads(row["guests"])))
            for row in self._rows("select node, vm, since, guests from reservations order by since, node")
        )
        full = self._rows("select until from truly_full")
        return Reservations(held, full[0]["until"] if full else -math.inf)

    def write(self, reservations: Reservations) -> None:
        """Replace the reservations by these."""
        with self._write() as db:
            db.execute("delete from reservations")
            for each in reservations.held:
                guests = json.dumps(sorted(each.guests))
                insert(db, "reservations", {"node": each.node, "vm": each.vm, "since": each.since_s, "guests": guests})
            db.execute("delete from truly_full")
            if math.isfinite(reservations.full_until_s):
                insert(db, "truly_full", {"id": 1, "until": reservations.full_until_s})
