"""Watching: a manager watches the turns of all groups' engines, so that an engine that it starts need not wait again.

An engine that follows another one waits until no renewal of that one can be valid. Whoever has seen for a while that
nothing was renewed has waited for so long already (``adapters.coordination.elected``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from rmsplugin.adapters.coordination.candidates import turn_of
from rmsplugin.adapters.coordination.tree import Tree
from rmsplugin.adapters.coordination.turns import Watch
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.errors import UnavailableError


class GroupTurns:
    """The turns, as they were seen. One thread looks; all may read."""

    def __init__(self, tree: Tree, folder_of: Callable[[str], str], clock: Callable[[], float] = steady_s) -> None:
        """Have seen none yet; ``folder_of``: where the engines of a group are elected; ``clock``: theirs."""
        self._tree, self._folder_of, self._clock = tree, folder_of, clock
        self._watches: dict[str, Watch] = {}

    def note_turns(self, groups: Collection[str]) -> None:
        """See how the turns of these groups are now: called again and again. Never raises."""
        try:
            for group in groups:
                if group not in self._watches:
                    self._watches[group] = Watch(self._tree, turn_of(self._folder_of(group)), self._clock)
                self._watches[group].note_turn()
        except UnavailableError:
            return  # what was seen before goes on being true

    def told(self, group: str) -> str:
        """What an engine of the group is told at its start; empty if its turn was never seen."""
        watch = self._watches.get(group)
        return "" if watch is None or watch.seen is None else str(watch.seen)
