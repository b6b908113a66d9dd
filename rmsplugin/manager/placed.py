"""Placed: what the leader has given, as every manager reads it: which group has a vjob, and which a node."""

from __future__ import annotations

import logging

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.errors import RmspluginError
from rmsplugin.groups.given import Given, read

log = logging.getLogger(__name__)


class Placed:
    """The newest text. One thread reads it again and again; all may look."""

    def __init__(self, files: EpochFiles) -> None:
        """Know nothing yet."""
        self._files = files
        self.given = Given(1)
        self.problem = ""

    def read(self) -> None:
        """Read it. Never raises: what was read last goes on being so."""
        try:
            newest = self._files.newest()
            if newest is None:
                return
            found = read(newest.text, epoch=newest.epoch, name=newest.name)
        except RmspluginError as error:
            if self.problem != str(error):
                log.warning("what groups have is not known: %s", error)
            self.problem = str(error)
            return
        self.problem = ""
        if found.version >= self.given.version:
            self.given = found

    def group_of(self, array: int) -> str:
        """The group that owns a vjob, by its job id or that of its array; empty if it is not given."""
        place = self.given.vjobs.get(array)
        return "" if place is None else place.group

    def group_with(self, node: str) -> str:
        """The group that has a host; empty if none has it."""
        return next((name for name, hosts in self.given.groups.items() if node in hosts), "")
