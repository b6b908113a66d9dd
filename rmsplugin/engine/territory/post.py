"""Post: sends what the group has packed, and takes in what was packed for it; all but saved states, which nodes send.

Each step is a transaction of the ledger, or can be done again: so an engine that is killed goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rmsplugin.engine.ledger.address_claims import AddressClaims
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.node_book import Left
from rmsplugin.engine.ledger.parcel_book import Parcel, ParcelKind
from rmsplugin.engine.territory.parcel_files import ParcelFiles
from rmsplugin.errors import LedgerError, NotFoundError


class Post:
    """The post of one group. One thread calls at a time."""

    def __init__(self, group: str, files: ParcelFiles, claims: AddressClaims, ledger: Ledger) -> None:
        """Send nothing yet."""
        self._group, self._files, self._claims, self._ledger = group, files, claims, ledger
        self._has_sent = True  # there may be files of the engine before

    # -- what this group gives -----------------------------------------------------------------------------------

    def send(self) -> None:
        """Have files of all that was packed; forget what others have taken in. Raises UnavailableError."""
        parcels = self._ledger.parcels.packed()
        if not parcels and not self._has_sent:
            return
        self._has_sent = True
        taken = self._files.send(parcels)
        for parcel in parcels:
            if parcel.id in taken:
                self._claims.look_again(parcel.addresses)
                self._forget(parcel)
        self._has_sent = bool(parcels)

    def _forget(self, parcel: Parcel) -> None:
        """The vjob is another group's for good: what is left of it on nodes of this group is to be removed."""
        ledger = self._ledger
        with ledger.transaction():
            for vm, nodes in parcel.content.get("left", {}).items():
                for node in nodes:
                    for what in Left:
                        ledger.nodes.leave(node, vm, what)
            ledger.parcels.unpack(parcel.id)

    def take_back(self, parcel: Parcel) -> None:
        """Have a vjob again that was packed, and is to stay. The caller has begun a transaction."""
        ledger = self._ledger
        ledger.parcels.unpack(parcel.id)
        ledger.handed.put_in(parcel.content["rows"])
        ledger.parcels.pack(ParcelKind.ORDER, parcel.number, parcel.to, {"files": _copies(parcel.content)})
        self._event(parcel.number, "taken-back", f"it stays in group {self._group}: the leader wishes so")

    # -- what it is given ----------------------------------------------------------------------------------------

    def take_in(self, number: int, parcel: str) -> None:
        """Take in a vjob that the leader has given to this group.

        Raises:
            UnavailableError: its parcel is not there yet, or cannot be read.
            LedgerError: it cannot be taken in.
        """
        ledger, sent = self._ledger, self._files.vjob(parcel)
        if (sent.number, sent.to) != (number, self._group):
            raise LedgerError(f"parcel {parcel} is of vjob {sent.number} to {sent.to}, not of vjob {number}")
        with ledger.transaction():
            ledger.handed.put_in(_placed(sent.content))
            ledger.parcels.take(parcel, number, sent.giver)
            self._event(number, "handed-over", f"group {sent.giver} has handed it over to group {self._group}")

    def prove(self) -> None:
        """Give the givers the proof of what was taken in; its addresses are this group's before.

        Raises:
            UnavailableError: the directory cannot be read or written now.
        """
        parcels = self._ledger.parcels
        for parcel, giver in self._files.unproved():
            if parcels.is_taken(parcel):
                self._files.prove(parcel, giver)  # an engine that was followed may have removed the proof
        for taken in parcels.untold():
            for vm in self._ledger.vms(taken.number):
                self._claims.take_over(vm.address, taken.giver)
            self._files.prove(taken.id, taken.giver)
            parcels.told(taken.id)

    def _event(self, number: int, kind: str, what: str) -> None:
        with suppress(NotFoundError):
            self._ledger.event(kind, what, vjob=self._ledger.vjob(number).display_id)


def _copies(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(vm, node) for vm, place in content["places"].items() for node in place["touched"]]


def _placed(content: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the vjob, with its saved states where they were copied to."""
    vms = []
    for vm in content["rows"]["vms"]:
        place = content["places"][vm["name"]]
        there = {"image_node": place["image_node"], "touched": json.dumps(place["touched"]), "booted_on": ""}
        vms.append({**vm, **there})
    return {**content["rows"], "vms": vms}
