"""Given book: the part of a group's ledger with the leader's word that was followed last, and vjobs given up by it."""

from __future__ import annotations

from collections.abc import Collection

from rmsplugin.engine.ledger.table import LedgerTable, insert

#: What orders the leaders' words: the epoch of the leader, and its serial number.
Version = tuple[int, int]

_NONE: Version = (0, 0)


class GivenBook(LedgerTable):
    """The ledger's tables of the leader's word."""

    def seen(self) -> Version:
        """The version of the newest word that was followed; lower than all if there was none."""
        rows = self._rows("select epoch, serial from given")
        return (int(rows[0]["epoch"]), int(rows[0]["serial"])) if rows else _NONE

    def released(self) -> frozenset[int]:
        """The numbers, as in the leader's word, that the group has given up, and that are its own by that word."""
        return frozenset(int(row["number"]) for row in self._rows("select number from released"))

    def follow(self, version: Version, leaving: Collection[int]) -> None:
        """Record that a word of the leader is followed from now on.

        Args:
            version: of the word, above the one before.
            leaving: the numbers that are the group's own by it, and are to go to other groups. All others that the
                group has given up it has not any more: they are another group's, or its own again.
        """
        with self._write() as db:
            epoch, serial = version
            db.execute("insert or replace into given (id, epoch, serial) values (1, ?, ?)", [epoch, serial])
            for number in self.released() - {*leaving}:
                db.execute("delete from released where number = ?", [number])

    def release(self, number: int) -> None:
        """Record that the group has given up what it was told to give up; the caller has begun a transaction."""
        epoch, serial = self.seen()
        with self._write() as db:
            insert(db, "released", {"number": number, "epoch": epoch, "serial": serial})
