"""Begun anew: the turn of a group's engine is, where a host of the group obeys an engine of a higher epoch.

A host that comes from another group does: epochs count over all groups. The next turn's epoch is above all that there
were, so the host obeys it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

log = logging.getLogger(__name__)

#: No turn is ended so soon after its begin, in seconds.
LEAST_S = 60.0
#: How many hosts are named in a sentence.
_NAMED = 10


class BegunAnew:
    """Has the turn begin anew, once."""

    def __init__(
        self,
        begin: Callable[[], object],
        strangers: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """From now on the turn runs.

        Args:
            begin: has this engine stand by, and lead again.
            strangers: hosts that have refused this turn at its begin already, so that another one is of no use.
            clock: in seconds.
        """
        self._begin, self._strangers, self._clock = begin, frozenset(strangers), clock
        self._not_before = clock() + LEAST_S
        self._done = False

    def where_refused(self, hosts: Collection[str]) -> None:
        """Begin anew if there are ``hosts`` of this group that have refused this engine in its last look."""
        hosts = frozenset(hosts) - self._strangers
        if self._done or not hosts or self._clock() < self._not_before:
            return
        self._done = True
        more = ", ..." if len(hosts) > _NAMED else ""
        log.warning(
            "%s%s obey an engine of a higher epoch, as hosts that come from another group do: this engine stands for a "
            "higher one",
            ", ".join(sorted(hosts)[:_NAMED]),
            more,
        )
        self._begin()
