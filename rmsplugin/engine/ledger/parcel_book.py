"""Parcel book: the part of a group's ledger about vjobs on their way to other groups, and from them.

A *parcel* has all of a vjob that sleeps, or an order to remove copies of saved states that nobody needs. Between the
group that packs it and the group that takes it in, it is here only: the file on the shared directory is a copy.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmsplugin.engine.ledger.table import LedgerTable, insert


class ParcelKind(enum.StrEnum):
    """What is in a parcel."""

    VJOB = "vjob"
    ORDER = "order"  # to remove copies of saved states


@dataclass(frozen=True, slots=True)
class Parcel:
    """A parcel that this group has packed, and of which it has no proof yet that the other group has taken it in."""

    id: str
    kind: ParcelKind
    number: int  # of the vjob
    to: str
    content: Mapping[str, Any]
    addresses: frozenset[str]  # of its VMs


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a saved state on a node of another group: intended, or there."""

    vm: str
    node: str
    number: int  # of the vjob
    to: str  # the group of the node
    size_bytes: int
    blake2b: str
    arrived: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """A parcel that was taken in."""

    id: str
    number: int
    giver: str


class ParcelBook(LedgerTable):
    """The ledger's tables of parcels. Several threads may call."""

    # -- copies --------------------------------------------------------------------------------------------------

    def copies(self) -> list[Copy]:
        """All copies, by VM."""
        rows = self._rows("select * from copies order by vm, node")
        return [
            Copy(
                row["vm"],
                row["node"],
                row["number"],
                row["to_group"],
                row["size_bytes"],
                row["blake2b"],
                bool(row["arrived"]),
            )
            for row in rows
        ]

    def will_copy(self, copies: Iterable[Copy]) -> None:
        """Record, before anything is sent, where copies of saved states are going to be."""
        with self._write() as db:
            for each in copies:
                row = {"vm": each.vm, "node": each.node, "number": each.number, "to_group": each.to}
                insert(db, "copies", {**row, "size_bytes": each.size_bytes, "blake2b": each.blake2b, "arrived": 0})

    def has_arrived(self, vm: str, node: str) -> None:
        """Record that the copy was checked where it is."""
        with self._write() as db:
            db.execute("update copies set arrived = 1 where vm = ? and node = ?", [vm, node])

    def forget_copies(self, number: int) -> None:
        """Forget the copies of a vjob; the caller has begun a transaction, and packs where they are."""
        with self._write() as db:
            db.execute("delete from copies where number = ?", [number])

    # -- what was packed -----------------------------------------------------------------------------------------

    def pack(
        self, kind: ParcelKind, number: int, to: str, content: Mapping[str, Any], addresses: Iterable[str] = ()
    ) -> str:
        """Record a new parcel; returns its id. The caller has begun a transaction."""
        row = {
            "id": uuid.uuid4().hex,
            "kind": str(kind),
            "number": number,
            "to_group": to,
            "time": self._clock(),
            "content": json.dumps(content),
            "addresses": json.dumps(sorted(addresses)),
        }
        with self._write() as db:
            insert(db, "parcels", row)
        return str(row["id"])

    def packed(self) -> list[Parcel]:
        """All parcels of which there is no proof yet that they were taken in, the oldest first."""
        return [
            Parcel(
                row["id"],
                ParcelKind(row["kind"]),
                row["number"],
                row["to_group"],
                json.loads(row["content"]),
                frozenset(json.loads(row["addresses"])),
            )
            for row in self._rows("select * from parcels order by time, id")
        ]

    def vjobs(self) -> dict[int, tuple[str, str]]:
        """By number, the parcel's id and the group of each vjob that was packed, and is nobody's until it is given."""
        rows = self._rows("select number, id, to_group from parcels where kind = 'vjob'")
        return {row["number"]: (row["id"], row["to_group"]) for row in rows}

    def ordered(self) -> frozenset[int]:
        """The numbers of the vjobs of which copies are to be removed elsewhere."""
        return frozenset(row["number"] for row in self._rows("select number from parcels where kind = 'order'"))

    def addresses(self) -> set[str]:
        """The addresses of all VMs that were packed."""
        rows = self._rows("select value from parcels, json_each(addresses)")
        return {str(row["value"]) for row in rows}

    def unpack(self, parcel: str) -> None:
        """Forget a parcel; the caller has begun a transaction, and knows what has become of it."""
        with self._write() as db:
            db.execute("delete from parcels where id = ?", [parcel])

    # -- what was taken in ---------------------------------------------------------------------------------------

    def take(self, parcel: str, number: int, giver: str) -> None:
        """Record that a parcel was taken in; the caller has begun a transaction, and takes it in."""
        row = {"id": parcel, "number": number, "giver": giver, "time": self._clock(), "told": 0}
        with self._write() as db:
            insert(db, "taken", row)

    def is_taken(self, parcel: str) -> bool:
        """Whether the parcel was taken in."""
        return bool(self._rows("select 1 from taken where id = ?", [parcel]))

    def untold(self) -> list[Taken]:
        """What was taken in, and whose giver was not given the proof."""
        rows = self._rows("select id, number, giver from taken where not told")
        return [Taken(row["id"], row["number"], row["giver"]) for row in rows]

    def told(self, parcel: str) -> None:
        """Record that the giver has the proof."""
        with self._write() as db:
            db.execute("update taken set told = 1 where id = ?", [parcel])

    def forget_before(self, time: float) -> None:
        """Forget what was taken in before; the caller has begun a transaction."""
        with self._write() as db:
            db.execute("delete from taken where told and time < ?", [time])
