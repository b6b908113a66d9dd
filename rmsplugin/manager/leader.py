"""Leader: gives whole vjobs to groups, by Slurm's queue and by what the groups' engines say. See ``groups.giving``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from rmsplugin.adapters.coordination.epoch_files import EpochFiles, EpochText
from rmsplugin.adapters.lease.base import Lease
from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.engine.decide.grouping import Grouping
from rmsplugin.errors import RefusedError, RmspluginError, UnavailableError
from rmsplugin.groups.given import Given, read, text_of
from rmsplugin.groups.giving import Heard, Patience, give, groups_after
from rmsplugin.manager.queue import SlurmQueue
from rmsplugin.manager.site import Groups

log = logging.getLogger(__name__)

#: An engine that has not begun a vjob after so many of its cycles has no room for it, and so long that counts.
_CYCLES, _FORGET_S = 3, 600.0


class Hearing(Protocol):
    """Asks engines of groups."""

    def __call__(self, groups: Collection[str]) -> Mapping[str, tuple[int, Heard]]:
        """By group, the epoch of its engine, and what that says; groups that are silent are left out."""
        ...


class Look(Protocol):
    """Sees Slurm."""

    def snapshot(self) -> RmsSnapshot:
        """Slurm as it is, as far as it is known. Raises UnavailableError."""
        ...


class Leader:
    """What the manager that leads does for the site. One thread takes turns."""

    def __init__(
        self,
        lease: Lease,
        look: Look,
        grouping: Grouping,
        queue: SlurmQueue,
        files: EpochFiles,
        hear: Hearing,
        set_groups: Callable[[Groups], None],
        cycle_s: float,
        domains: Sequence[Collection[str]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Lead nothing yet.

        Args:
            lease: of the lead.
            look: at Slurm.
            grouping: forms the groups.
            queue: reads vjobs.
            files: where what is given is written.
            hear: asks the engines of groups.
            set_groups: told the groups that there are.
            cycle_s: seconds between two cycles of an engine.
            domains: the migration domains, each the names of groups between which vjobs go that have begun.
            clock: seconds that pass.
        """
        self._lease, self._look, self._grouping, self._queue = lease, look, grouping, queue
        self._files, self._hear, self._set_groups, self._clock = files, hear, set_groups, clock
        self._domains = domains
        self._patience_s = _CYCLES * cycle_s
        self._patience = Patience(self._patience_s, _FORGET_S)
        self._given: Given | None = None  # of this lead, as it was written last
        self._unwritten: Given | None = None  # what may be written, or not
        self._epochs: dict[str, int] = {}  # by group, the highest of its engines
        self._kept: frozenset[int] = frozenset()  # vjobs that their engines do not release
        self.problems: tuple[str, ...] = ()
        self._said: tuple[str, ...] = ()

    def turn(self) -> None:
        """Give what is to be given, if this manager leads. Never raises."""
        if not self._lease.held():
            self._given, self._unwritten, self.problems = None, None, ()
            return
        try:
            self._take_turn()
        except RmspluginError as error:
            self.problems = (f"nothing is given to groups now: {error}",)
        if self.problems != self._said:
            self._said = self.problems
            for problem in self.problems:
                log.warning("%s", problem)

    def _take_turn(self) -> None:
        epoch = self._lease.epoch
        if self._given is None or self._given.epoch != epoch:
            self._begin(epoch)
        elif self._unwritten is not None:
            self._write(self._unwritten)
        given = self._given
        assert given is not None
        if given.groups:
            self._set_groups(given.groups)
        seen = self._look.snapshot()
        formed = self._grouping.of(seen)
        hosts = {group.name: group.hosts for group in formed.groups}
        heard = self._heard(given.groups)
        groups, kept = groups_after(given, hosts, heard)
        queue, known = self._queue.read(seen)
        now = self._clock()
        wishes = give(
            given,
            queue,
            heard,
            self._patience.refused(now),
            known=known,
            kept=self._kept,
            ripe=self._patience.ripe(now),
            domains=self._domains,
            due=self._patience.due(now),
            spared=self._patience.spared(now),
        )
        self._patience.note(wishes, self._clock())
        there = wishes.vjobs.items()
        vjobs = {job_id: place for job_id, place in there if {place.group, place.to} <= {None, *groups}}
        if groups != given.groups or vjobs != given.vjobs:
            self._write(given.next(groups=groups, vjobs=vjobs))
            self._set_groups(groups)
        self._kept = wishes.kept
        silent = sorted(given.groups.keys() - heard.keys())
        said = (f"the engine of group {', '.join(silent)} does not answer: nothing is given to it",) if silent else ()
        self.problems = (*formed.faults, *kept, *said)

    def _heard(self, groups: Collection[str]) -> dict[str, Heard]:
        """What engines say; one that was followed by another engine counts no more."""
        found = {}
        for name, (epoch, said) in self._hear(groups).items():
            if epoch >= self._epochs.get(name, 0):
                self._epochs[name] = epoch
                found[name] = said
        return found

    def _begin(self, epoch: int) -> None:
        """Go on from what the leader before has given. Nothing is given before this has returned."""
        if (highest := self._files.highest()) > epoch:
            raise RefusedError(
                f"{self._files.path(highest)} is of a higher epoch than this lead, which has {epoch}: the ensemble was "
                f"set up anew. Have each server count on from there, or move the file to a name with an epoch below "
                f"{epoch}"
            )
        self._given, self._unwritten, self._epochs = None, None, {}
        self._patience = Patience(self._patience_s, _FORGET_S)
        text = self._files.begin(epoch, lambda before: text_of(_first(epoch, before)))
        self._given = read(text, epoch=epoch, name="what was just written")

    def _write(self, given: Given) -> None:
        if not self._lease.held():
            raise UnavailableError("this manager does not lead any more")
        self._unwritten = given  # if this fails, it may be there all the same: the same is written again
        self._files.write(given.epoch, text_of(given))
        self._given, self._unwritten = given, None


def _first(epoch: int, before: EpochText | None) -> Given:
    """The first text of a lead."""
    if before is None:
        return Given(epoch)
    return read(before.text, epoch=before.epoch, name=before.name).begun(epoch)
