"""The coordination Protocol: engines that may lead, and the one that does.

Contract, for every implementation:

* Of all engines that campaign for the same thing, at most one is before its ``valid_until`` at any time, as long as the
  clocks of their hosts run equally fast within a tenth. This does not depend on what a service says last, or to whom.
  It is not promised of candidates all of whose late acts are harmless (``Candidate.late_is_harmless``).
* ``valid_until`` moves only by an answer of the service, and is counted from before the request that was answered. It
  may move again after it has passed, under the same epoch, where the answer proves that nobody else can have led since.
  It is NEVER for an engine that has lost, which has to win anew.
* ``epoch`` is higher than that of each leader before, on a kind with more than one host. A kind on one host has epoch 1
  for ever: each leader has ended before the next one begins.
* An engine that is killed, stopped or cut off loses without any action of its own, within the kind's own bound.
* No call blocks longer than the kind's bound of one request.
"""

from __future__ import annotations

from typing import Protocol

#: ``valid_until`` of an engine that does not lead.
NEVER = float("-inf")


class Coordination(Protocol):
    """One engine among those that may lead."""

    def campaign(self) -> None:
        """Become the leader, or go on being it: called again and again, by leaders and others alike.

        Raises:
            UnavailableError: this engine does not lead yet, or not any more; or the service does not answer, which does
                not end a lead before ``valid_until``.
            RefusedError: this engine can never lead here, and has given up; the message says why, and what to do.
        """
        ...

    @property
    def epoch(self) -> int:
        """The number of this leader's turn. Raises UnavailableError for an engine that does not lead."""
        ...

    def valid_until(self) -> float:
        """The moment until which this engine leads, in seconds of ``lease.clocked.steady_s``; NEVER if it does not."""
        ...

    def members(self) -> tuple[str, ...]:
        """The names of the engines that may lead, the leader first. Raises UnavailableError if no service answers."""
        ...

    def resign(self, *, at_rest: bool) -> None:
        """Lead no more, and leave. Never raises.

        Args:
            at_rest: nothing that this engine has begun is under way: the next one need not wait for its end.
        """
        ...
