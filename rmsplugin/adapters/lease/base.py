"""The lease Protocol: which one of several engines may act on VMs, Slurm and node agents.

Contract, for every implementation:

* There is at most one holder at any time, as long as clocks of one host do not stand still while others go on: ``held``
  is true of at most one lease among all that name the same resource.
* A holder that is killed, in whatever way, loses the lease without any action of its own, within the kind's own bound.
* ``epoch`` grows with each change of holder, if the kind has more than one host; it is never used twice by two holders.
  A kind on one host has epoch 1 for ever: each holder has ended before the next one begins.
* A lease that was lost or released is not held again before ``acquire`` has returned.
* A lease that is not held, and not lost either, has run out: nobody else has had it as far as this process knows.
  ``renew`` has it held again, with the same epoch, if nobody else can have had it.
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """The right to act, for one process."""

    def acquire(self) -> None:
        """Become the holder, or raise UnavailableError at once with the holder's name. Does nothing for the holder."""
        ...

    def renew(self) -> None:
        """Hold the lease for longer, or again, if that needs a call. Raises UnavailableError if it is not held then."""
        ...

    def held(self) -> bool:
        """Whether this process is the holder now. Never blocks, and asks no other process: called before each act."""
        ...

    def held_until(self) -> float:
        """The moment until which it is held, in seconds of ``clocked.steady_s``; one that has passed if it is not."""
        ...

    def lost(self) -> bool:
        """Whether only ``acquire`` can bring it back: it was lost or released, or was never held. As ``held``."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this holder's turn, from FIRST_EPOCH (``model/epochs.py``) on.

        Raises UnavailableError while it is not held.
        """
        ...

    def release(self, *, at_rest: bool = True) -> None:
        """Release the lease to others; without effect for a process that does not hold it.

        Args:
            at_rest: no act of this process is under way, so that the next holder need not wait for the end of any.
        """
        ...
