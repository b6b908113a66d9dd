"""Given to: a group's engine ends in order where its group was given to another manager, and its own does not say so.

A manager that is stopped (SIGSTOP) says nothing, and the engines that it has started run on. Others have its groups
when its session has ended; their engines stand by as long as these lead, and nobody reaches these.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rmsplugin.adapters.coordination.assignments import Assignments
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

#: The variable in which a manager tells an engine that it starts its own name.
MANAGER = "RMSPLUGIN_MANAGER"


class GivenTo:
    """What the ensemble says of the group. One thread looks."""

    def __init__(
        self,
        assignments: Assignments,
        group: str,
        manager: str,
        patience_s: float,
        end: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have seen nothing yet.

        Args:
            assignments: of all groups.
            group: that of this engine.
            manager: the one that has started this engine.
            patience_s: so long that one has to tell the engine to end, after the group was given to another.
            end: called once, to end in order.
            clock: seconds that pass.
        """
        self._assignments, self._group, self._manager = assignments, group, manager
        self._patience_s, self._end, self._clock = patience_s, end, clock
        self._since: float | None = None
        self._ends = False

    def note_owner(self) -> None:
        """See whose the group is; called again and again. Never raises."""
        try:
            found = self._assignments.one(self._group)
        except RmspluginError:
            return
        if found is None or found.manager in ("", self._manager):
            self._since = None
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        if not self._ends and now - self._since >= self._patience_s:
            self._ends = True
            said = "group %s is given to %s, and the manager of this engine is silent: it ends"
            log.warning(said, self._group, found.manager)
            self._end()
