"""Spare: the copy of a template's state from which a VM has started, kept for the next VM.

Only the head of a state differs between VMs. So with a spare a start writes some KiB instead of copying the
whole memory of a guest. A template has one spare at most, and a replaced template has none.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from rmsplugin.node_agent import files

SUFFIX = ".spare"
#: A place in the lock file that is no VM's: all templates of the node share this lock.
_ALL = (0, 0)


class Spare:
    """The spare of one template."""

    def __init__(self, state: Path) -> None:
        """``state``: the state of the template."""
        self._state = state
        self.path = state.with_suffix(SUFFIX)

    def lock(self) -> AbstractContextManager[None]:
        """A caller that replaces or removes a template, or its spare, holds this lock: the two belong together."""
        return files.lock(self._state.parent, _ALL, still=files.require_listener, kind=".templates")

    def note_origin(self, origin: Path) -> None:
        """Let ``origin`` name the state that is about to be copied: by a hard link, which no later state is.

        Raises:
            FileNotFoundError: there is no template.
        """
        try:
            os.link(self._state, origin)
        except FileNotFoundError:
            raise
        except OSError:
            return  # another file system, or one without links: there is no spare

    def is_origin(self, origin: Path) -> bool:
        """Whether ``origin`` names the template's present state."""
        with suppress(FileNotFoundError):
            return origin.samefile(self._state)
        return False

    def take(self, copy: Path) -> bool:
        """Turn the spare into ``copy``, which still has the former VM's names. Returns whether there was a spare."""
        try:
            self.path.rename(copy)
        except OSError:
            return False
        return True

    def keep(self, copy: Path, origin: Path) -> None:
        """Keep ``copy`` as the spare, if it is a copy of the template's present state."""
        with self.lock(), suppress(OSError):
            if self.is_origin(origin):
                copy.replace(self.path)
