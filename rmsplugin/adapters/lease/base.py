"""The lease Protocol: which one of several engines may act on VMs, Slurm and node agents.

Contract, for every implementation:

* At most one holder at any time, as long as clocks of one host do not stand still while others go on: ``held`` is true
  of one lease at most among all that name the same thing.
* A holder that is killed, in whatever way, loses the lease without doing anything for it, within the kind's own bound.
* ``epoch`` grows with each change of holder, if the kind has more than one host; it is never used twice by two holders.
  A kind on one host has epoch 1 for ever: whoever it was has ended before the next one begins.
* A lease that was lost or released is not held again before ``acquire`` has returned.
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """The right to act, for one process."""

    def acquire(self) -> None:
        """Become the holder, or raise UnavailableError at once with who has it. Nothing happens for the holder."""
        ...

    def renew(self) -> None:
        """Hold it for longer, if that takes anything. Raises UnavailableError if it is lost, or was never held."""
        ...

    def held(self) -> bool:
        """Whether this process is the holder now. Asks nobody, and never blocks: it is asked before each act."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this holder's turn, from FIRST_EPOCH (``model/epochs.py``) on.

        Raises UnavailableError while it is not held.
        """
        ...

    def release(self) -> None:
        """Let somebody else have it; nothing happens for one who does not hold it."""
        ...
