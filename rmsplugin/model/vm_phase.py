"""Phase of a VM: which of its node's memory and its saved state is the truth. The transitions, each with its reason.

The state of its vjob says what is being done to all VMs of a vjob together; the phase of a VM says what is left of it
if everything stops at this instant. Both are in the ledger, and neither is told from the other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from rmsplugin.errors import RmspluginError


class VMPhase(enum.StrEnum):
    """What there is of a VM."""

    PLACED = "placed"  # its node is chosen, and has nothing of it yet
    BOOTING = "booting"  # its node may have files of it, or the VM; no script has begun in it
    LIVE = "live"  # it is in the memory of its host, where it runs or stands still
    MIGRATING = "migrating"  # it is in the memory of its host, of its destination, or parts of it in both
    SEALING = "sealing"  # it is in a whole file, which gets its final name and is read; it has not run since
    SEALED = "sealed"  # it is in a proved file; its vjob does not sleep yet, and all VMs of it may be brought back
    SAVED = "saved"  # it is in a proved file, and nowhere else
    MOVING = "moving"  # it is in a proved file, which is copied to another node
    RESTORING = "restoring"  # it is in a proved file; its host may have it, too, standing still
    LOST = "lost"  # nothing is left of it on any node; its vjob is about to go back to a checkpoint

    @property
    def in_memory(self) -> bool:
        """Whether it is nowhere but in the memory of a node, and its guest may answer."""
        return self in (VMPhase.BOOTING, VMPhase.LIVE, VMPhase.MIGRATING)

    @property
    def moves(self) -> bool:
        """Whether it, or its saved state, is on the way to another node."""
        return self in (VMPhase.MIGRATING, VMPhase.MOVING)

    @property
    def in_file(self) -> bool:
        """Whether it has a saved state whose content is proved by a digest."""
        return self in _IN_FILE


_IN_FILE = (VMPhase.SEALED, VMPhase.SAVED, VMPhase.MOVING, VMPhase.RESTORING)

_P = VMPhase

#: Every legal step, with its reason. All others raise IllegalPhaseError. None: the VM has no row yet.
#: A row is removed in any phase: when its vjob ends or goes back to the queue, and nothing is left of its VMs.
TRANSITIONS: dict[tuple[VMPhase | None, VMPhase], str] = {
    (None, _P.PLACED): "its vjob starts: room for it was found",
    (None, _P.SAVED): "its vjob takes back saved states that were put aside",
    (_P.PLACED, _P.BOOTING): "from now on its node may have something of it",
    (_P.BOOTING, _P.LIVE): "all VMs of its vjob answer: the vjob runs",
    (_P.LIVE, _P.MIGRATING): "a context switch, a node that leaves, or an operator moves it",
    (_P.MIGRATING, _P.LIVE): "one whole copy of it is left, where it arrived or where it was (I1)",
    (_P.LIVE, _P.SEALING): "all VMs of its vjob are saved: its file gets its final name",
    (_P.SEALING, _P.SEALED): "its file was read to the end, and has its final name",
    (_P.SEALING, _P.LIVE): "its file could not be sealed: it is brought back, and is looked for anew (I2)",
    (_P.SEALED, _P.LIVE): "the file of another VM could not be sealed: all are brought back, the file is history (I4)",
    (_P.SEALED, _P.SAVED): "all VMs of its vjob are sealed: the vjob sleeps",
    (_P.SAVED, _P.MOVING): "its node's store does not outlive the room there",
    (_P.MOVING, _P.SAVED): "its saved state is on the other node, or stays where it was (I2)",
    (_P.SAVED, _P.RESTORING): "its vjob is resumed: the node where it goes on is chosen",
    (_P.MOVING, _P.RESTORING): "its vjob is resumed, and a copy of its state had broken off",
    (_P.RESTORING, _P.SAVED): "a VM of its vjob could not be restored: all stay in their files (I2, I4)",
    (_P.RESTORING, _P.LIVE): "all VMs of its vjob are restored: they may run, the files are history",
    (_P.LIVE, _P.LOST): "it died, or its node did, and its vjob has a checkpoint",
    (_P.MIGRATING, _P.LOST): "it died while it moved, and its vjob has a checkpoint",
    (_P.SEALING, _P.LOST): "its vjob lost a VM while it was being sealed, and has a checkpoint",
    (_P.SEALED, _P.LOST): "its vjob lost another VM while it was being suspended, and has a checkpoint",
    (_P.SAVED, _P.LOST): "a saved state of its vjob is lost, and the vjob has a checkpoint",
    (_P.MOVING, _P.LOST): "a saved state of its vjob is lost after a copy had broken off; the vjob has a checkpoint",
    (_P.RESTORING, _P.LOST): "a saved state of its vjob turned out to be lost, and the vjob has a checkpoint",
    (_P.LOST, _P.SAVED): "the file of its vjob's checkpoint is its saved state",
}

#: The places of a VM. They change together with its phase only: `VMRow` says what each is.
PLACES = ("host", "destination", "image_node", "image_bytes", "image_blake2b")

#: The places that a VM has in each phase; it has no others.
HAS: dict[VMPhase, frozenset[str]] = {
    _P.PLACED: frozenset({"host"}),
    _P.BOOTING: frozenset({"host"}),
    _P.LIVE: frozenset({"host"}),
    _P.MIGRATING: frozenset({"host", "destination"}),
    _P.SEALING: frozenset({"host", "image_node"}),
    _P.SEALED: frozenset({"host", "image_node", "image_bytes", "image_blake2b"}),
    _P.SAVED: frozenset({"image_node", "image_bytes", "image_blake2b"}),
    _P.MOVING: frozenset({"image_node", "image_bytes", "image_blake2b", "destination"}),
    _P.RESTORING: frozenset({"host", "image_node", "image_bytes", "image_blake2b"}),
    _P.LOST: frozenset(),
}
_NONE = {"host": "", "destination": "", "image_node": "", "image_bytes": 0, "image_blake2b": ""}


class IllegalPhaseError(RmspluginError):
    """A VM was to enter a phase that it cannot enter now, or without a place that belongs to it."""


def check_phase(vm: str, source: VMPhase | None, target: VMPhase) -> str:
    """Return the reason for the step from ``source`` (None: there is no row of the VM) to ``target``.

    Raises:
        IllegalPhaseError: the table has no such edge.
    """
    try:
        return TRANSITIONS[source, target]
    except KeyError:
        before = f"is {source}" if source else "is new"
        raise IllegalPhaseError(f"{vm} {before} and cannot become {target}") from None


def places_in(vm: str, phase: VMPhase, places: Mapping[str, object]) -> dict[str, object]:
    """All places of a VM in ``phase``: those that it has there are taken from ``places``, the others are none.

    Raises:
        IllegalPhaseError: it lacks one; a size of 0 bytes is one.
    """
    found = {name: places[name] if name in HAS[phase] else none for name, none in _NONE.items()}
    lacking = [name for name in sorted(HAS[phase]) if found[name] == ""]
    if lacking:
        raise IllegalPhaseError(f"{vm} cannot be {phase} without {', '.join(lacking)}")
    return found
