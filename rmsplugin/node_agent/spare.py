"""Spare: the copy of a template's state from which a VM has started, kept for the next VM.

Only the head of a state differs between VMs. So with a spare at hand a start writes some KiB instead of copying the
whole memory of a guest. There is one spare a template at most, and none of a template that has been replaced.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from rmsplugin.node_agent import files

SUFFIX = ".spare"
#: No VM's place in the lock file: all templates of the node have one together.
_ALL = (0, 0)


class Spare:
    """The spare of one template."""

    def __init__(self, state: Path) -> None:
        """``state``: the template's."""
        self._state = state
        self.path = state.with_suffix(SUFFIX)

    def lock(self) -> AbstractContextManager[None]:
        """Whoever replaces or removes a template, or its spare, holds this lock: the two belong together."""
        return files.lock(self._state.parent, _ALL, kind=".templates")

    def note_origin(self, origin: Path) -> None:
        """Let ``origin`` name the state from which a copy is about to be made: a hard link, which no later state is.

        Raises:
            FileNotFoundError: there is no template.
        """
        try:
            os.link(self._state, origin)
        except FileNotFoundError:
            raise
        except OSError:
            return  # in another file system, or one without links: there is no spare

    def is_origin(self, origin: Path) -> bool:
        """Whether ``origin`` names the template as it is now."""
        with suppress(FileNotFoundError):
            return origin.samefile(self._state)
        return False

    def take(self, copy: Path) -> bool:
        """Make the spare ``copy``, which has the names of the VM before. Returns whether there was one."""
        try:
            self.path.rename(copy)
        except OSError:
            return False
        return True

    def keep(self, copy: Path, origin: Path) -> None:
        """Have ``copy`` as the spare, if it is one of the template as it is now."""
        with self.lock(), suppress(OSError):
            if self.is_origin(origin):
                copy.replace(self.path)
