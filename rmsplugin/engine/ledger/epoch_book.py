"""Epoch book: the part of the ledger with the highest epoch of an engine that has led with it."""

from __future__ import annotations

from rmsplugin.engine.ledger.table import LedgerTable
from rmsplugin.errors import LedgerError
from rmsplugin.model.epochs import FIRST_EPOCH


class EpochBook(LedgerTable):
    """The ledger's table of one number."""

    def highest(self) -> int:
        """The highest epoch so far; the first if there was none other."""
        rows = self._rows("select epoch from epoch")
        return int(rows[0]["epoch"]) if rows else FIRST_EPOCH

    def begin_turn(self, token: int) -> int:
        """Record that the engine with this ledger leads from now on, and return the epoch of its turn.

        Args:
            token: of its lease. The first epoch is that of a lease on one host, which counts nothing. Then this book
                counts, but only where nodes know higher epochs already.

        Raises:
            LedgerError: the token is not above all before: nodes would obey nobody who has it.
        """
        with self._write() as db:
            highest = self.highest()
            if token == FIRST_EPOCH:
                epoch = highest if highest == FIRST_EPOCH else highest + 1
            elif token > highest:
                epoch = token
            else:
                raise LedgerError(
                    f"the ensemble gives epoch {token}, but engines have led with epoch {highest} already: it is a new "
                    f"one, or was set back. Restart its servers one by one: each new leader of theirs adds {1 << 32}"
                )
            db.execute("insert or replace into epoch (id, epoch) values (1, ?)", [epoch])
        return epoch
