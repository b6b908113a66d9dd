"""Markers: the stores of saved states that are known, each by its marker; kept in the ledger."""

from __future__ import annotations

from rmsplugin.engine.ledger.table import LedgerTable

#: The name of the shared store, in the place of a node's name.
SHARED = "shared"


class Markers(LedgerTable):
    """The ledger's table of stores: one for each node, or the one named "shared"."""

    def of(self, store: str) -> str | None:
        """The marker of a store; "" if an operator said that the store is new; None if it was never set up."""
        rows = self._rows("select marker from stores where name = ?", [store])
        return str(rows[0]["marker"]) if rows else None

    def set(self, store: str, marker: str) -> None:
        """Remember the marker of a store, in the place of an older one."""
        with self._write() as db:
            db.execute("insert or replace into stores (name, marker) values (?, ?)", [store, marker])
