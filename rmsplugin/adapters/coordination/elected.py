"""Elected: a leader among engines that wait in a line, on a tree such as ZooKeeper's.

Two leaders cannot overlap. A leader counts its lead from before the last renewal that was answered, which is a write to
the node of its turn, and then one to its place. The next leader has seen that place removed, so each renewal of the old
one was sent before. It then waits for longer than any of them is valid. No promise of the service about time is needed
for this; how soon somebody else leads depends on one.

Most of that wait has passed already for an engine that has watched: the turn's node, read after the place was removed,
has the last renewal. If it was seen to be as it is some time ago, that renewal was sent before then. It is read again
as soon as a change is told, and not only in each campaign.

A lead that has run out, because the service did not answer in time, goes on with the next answer: the write to the own
place is done only while that is there, and nobody else leads before it is gone. So the same is true of such a renewal
as of any other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from rmsplugin.adapters.coordination.base import NEVER
from rmsplugin.adapters.coordination.candidates import Candidate, Standing, line_of, said, standing, turn_of, understood
from rmsplugin.adapters.coordination.line import Line
from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree
from rmsplugin.adapters.coordination.turns import Seen, Turn, Turns, Watch
from rmsplugin.errors import RefusedError, UnavailableError

#: The share of a session for which a lead is valid: the rest is for clocks that run unequally.
VALID_SHARE = 0.8
#: Seconds between two words of an engine that stands by. A leader says more often that it is there.
_SAY_S = 20.0


class Elected:
    """A ``Coordination`` on a tree. One thread campaigns; ``epoch`` and ``valid_until`` may be asked by all."""

    def __init__(
        self,
        tree: Tree,
        folder: str,
        candidate: Candidate,
        clock: Callable[[], float],
        *,
        own_session: bool = True,
        seen: Seen | None = None,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        """Wait nowhere yet.

        Args:
            tree: a session.
            folder: path of the node under which all that this needs is kept.
            candidate: this engine.
            clock: seconds that pass, also while the process, or the host, stands still.
            own_session: nobody else uses the session: it is closed by ``resign``.
            seen: the last turn, as another process of this host has watched it, by the same clock.
            time_of_day: the host's clock, which it says to others.
        """
        self._tree, self._folder, self._candidate, self._clock = tree, folder, candidate, clock
        self._own_session, self._time_of_day = own_session, time_of_day
        self._line = Line(tree, line_of(folder))
        self._next = ""
        self._said_at = NEVER
        self._turns, self._watch = Turns(tree, turn_of(folder)), Watch(tree, turn_of(folder), clock, seen)
        self._turn: Turn | None = None  # its own
        self._lock = threading.Lock()
        self._leads_from = float("inf")  # when the turn before this one has surely ended
        self._valid_until = NEVER

    # -- the four words --------------------------------------------------------------------------------------------

    def campaign(self) -> None:
        """See ``Coordination``."""
        began = self._clock()
        try:
            if self._turn is None:
                self._wait_in_line(began)
            else:
                self._renew(began, self._turn)
        except RefusedError:
            self._lose()
            raise
        except MissingError as error:
            self._lose()
            raise UnavailableError(f"the ensemble has lost a node of ours: {error}") from None
        if (left_s := self._leads_from - self._clock()) > 0:
            raise UnavailableError(
                f"{self._candidate.name} is next, and waits {left_s:.1f} s for what the leader before may have begun"
            )
        if self._clock() >= self._valid_until:
            raise UnavailableError(f"{self._candidate.name} does not lead now: the answer came too late")

    @property
    def epoch(self) -> int:
        """See ``Coordination``."""
        turn = self._turn
        if turn is None or self.valid_until() == NEVER:
            raise UnavailableError(f"{self._candidate.name} does not lead")
        return turn.epoch

    def valid_until(self) -> float:
        """See ``Coordination``."""
        with self._lock:
            return self._valid_until if self._clock() >= self._leads_from else NEVER

    def members(self) -> tuple[str, ...]:
        """See ``Coordination``."""
        return tuple(each.name for each in self.standing())

    def standing(self) -> list[Standing]:
        """What ``members`` say of themselves. Raises UnavailableError. May be asked by all threads."""
        return standing(self._tree, self._folder)

    @property
    def node(self) -> str:
        """The node of its own place in the line; empty if it has none. May be asked by all threads."""
        return self._line.node

    @property
    def session_s(self) -> float:
        """The seconds after which an engine of which nothing is heard is in the line no more."""
        return self._candidate.session_s

    def have_next(self, node: str) -> None:
        """As a leader, have those who wait before that node's engine go to the end; empty: as they wait.

        It takes until they campaign next. May be called by all threads.
        """
        self._next = node

    def resign(self, *, at_rest: bool) -> None:
        """See ``Coordination``."""
        turn, led = self._turn, self.valid_until() > self._clock()
        self._watch.rest(None)
        self._lose(leave=False)
        # An engine that has lost is not at rest by its own word: a later leader may act already.
        if turn is not None and led and at_rest:
            with contextlib.suppress(ChangedError, UnavailableError):
                self._turns.end(turn)
        self._line.give_up()
        if self._own_session:
            self._tree.close()

    # -- how -------------------------------------------------------------------------------------------------------

    def _wait_in_line(self, began: float) -> None:
        """Take the turn if this engine is the first in the line. Raises UnavailableError if it is not."""
        self._join()
        if (data := self._line.first()) is not None:
            before = understood("", data)
            self._refuse_place(before.place, before.name)
            if before.next and self._line.is_before(before.next):
                self._line.give_up()
                self._join()
            elif self._clock() >= self._said_at + _SAY_S:
                self._renew_place()
            self._watch.note_turn()
            raise UnavailableError(f"{before.name} leads; {self._candidate.name} stands by")
        # Read after the place before was seen to be gone: the last renewal of its engine is in it.
        last = self._turns.last()
        self._watch.rest(self._turns.since(self._watch.seen, self._clock()))
        own = Turn(
            epoch=self._line.epoch,
            name=self._candidate.name,
            place=self._candidate.place,
            wait_s=self._candidate.session_s + self._candidate.act_s,
            ended=False,
        )
        if last is None:
            self._leads_from = began
        elif last.epoch == own.epoch:
            own = last  # it was written, and the answer was lost
        else:
            self._refuse_place(last.place, last.name)
            own = self._after(last, own)
        try:
            self._turns.write(own)
        except (ChangedError, MissingError):
            self._lose()
            raise UnavailableError("another engine took the turn at the same moment") from None
        self._line_held(began, own)

    def _join(self) -> None:
        if not self._line.node:
            self._said_at = self._clock()
            self._line.join(self._says())

    def _renew_place(self) -> None:
        """Say that it is there. Raises MissingError if its place is lost, UnavailableError if nobody answers."""
        self._said_at = self._clock()
        self._line.renew(self._says())

    def _says(self) -> bytes:
        return said(self._candidate, self._time_of_day(), self._next if self._turn is not None else "")

    def _after(self, last: Turn, own: Turn) -> Turn:
        """Note from when on this engine leads. Returns its turn, which waits for as long as the last one had to."""
        now = self._clock()
        if last.ended or self._candidate.late_is_harmless:
            self._leads_from = now
            return own
        seen = self._watch.seen
        renewed = min(now, seen.at) if last.renewed and seen is not None else now
        self._leads_from = renewed + last.wait_s
        return replace(own, wait_s=max(own.wait_s, last.wait_s))

    def _line_held(self, began: float, own: Turn) -> None:
        """Lead from now on, if the place is still held after the turn was written."""
        try:
            self._renew_place()
        except MissingError:
            self._lose()
            raise UnavailableError("this engine has lost its place in the line") from None
        with self._lock:
            self._turn = own
            self._valid_until = began + VALID_SHARE * self._candidate.session_s

    def _renew(self, began: float, turn: Turn) -> None:
        """Move ``valid_until``, passed or not. Raises UnavailableError if the lead is lost, or nobody answers."""
        try:
            if began >= self._valid_until:
                # Whoever is next would take a turn that is written again for one that goes on, and wait for its end.
                self._renew_place()
            self._turns.write(turn)
            self._renew_place()
        except (ChangedError, MissingError):
            self._lose()
            raise UnavailableError(
                f"{self._candidate.name} does not lead any more: its session has ended, or its node was removed"
            ) from None
        with self._lock:
            self._valid_until = began + VALID_SHARE * self._candidate.session_s

    def _lose(self, *, leave: bool = True) -> None:
        with self._lock:
            self._turn, self._leads_from, self._valid_until, self._next = None, float("inf"), NEVER, ""
        if leave:
            self._line.give_up()

    def _refuse_place(self, place: str, name: str) -> None:
        """Raises RefusedError if another engine's ledger is elsewhere."""
        if place != self._candidate.place:
            raise RefusedError(
                f"engine {name} of this ensemble has its ledger at {place}, this one at {self._candidate.place}: "
                "engines on several hosts need one directory that they share (cluster.shared_dir): is it set on both, "
                "and mounted? If the ledger was moved "
                f"here, stop all engines and remove the node {self._folder}/turn of the ensemble"
            )
