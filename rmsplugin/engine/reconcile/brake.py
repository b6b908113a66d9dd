"""Brake: if a cycle would end, restart or requeue many vjobs because something is not seen, it does none of that.

A bad look is more likely than the end of many vjobs at once. The acts held back are shown, and done when an operator
says so; they are forgotten when the world is back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmsplugin.engine.reconcile.reconcile import Directive
from rmsplugin.model.job_names import parse

#: The most vjobs, or the share of the live ones if that is more, that may be acted on in one cycle.
MOST, SHARE = 3, 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """An act on one vjob that is held back."""

    job_id: int
    vjob: str  # its display id
    user: str
    directive: Directive
    proved: bool  # False: there is no proof at all, so that even a few such acts are held back

    @property
    def key(self) -> tuple[int, str]:
        """A key that is the same in the next cycle."""
        return (self.job_id, str(self.directive.what))


class Brake:
    """The acts held back now, and those that an operator let through. Several threads may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Held, ...] = ()
        self._confirmed: frozenset[tuple[int, str]] = frozenset()

    @property
    def held(self) -> tuple[Held, ...]:
        """The acts that the last cycle held back."""
        return self._held

    def confirm(self, vjobs: Iterable[str]) -> list[Held]:
        """Take an operator's confirmation: the next cycle acts. Returns the acts on these vjobs that were held back."""
        wanted = [parse(name) for name in vjobs]
        with self._lock:
            chosen = [held for held in self._held if any(name.means(held.vjob, held.job_id) for name in wanted)]
            self._confirmed |= {held.key for held in chosen}
            return chosen

    def let_through(self, wanted: Sequence[Held], live: int) -> list[Held]:
        """Return the acts of ``wanted`` that may be done.

        Args:
            wanted: all acts of this cycle for reasons of absence, in any order.
            live: the number of vjobs that may have VMs or saved states.
        """
        with self._lock:
            proved = [held for held in wanted if held.proved and held.key not in self._confirmed]
            kept = {held.key for held in wanted if not held.proved} - self._confirmed
            kept |= {held.key for held in _too_many(proved, max(MOST, SHARE * live))}
            self._held = tuple(held for held in wanted if held.key in kept)
            self._confirmed = frozenset()
            return [held for held in wanted if held.key not in kept]


def _too_many(proved: Sequence[Held], most: float) -> Sequence[Held]:
    """The acts that are held back because they are more than ``most``.

    All acts are. But if one user's alone are more, and all others together are not, only that user's are: a user who
    powers off his own VMs must not keep other vjobs from beginning again.
    """
    if len(proved) <= most:
        return ()
    [(user, count)] = Counter(held.user for held in proved).most_common(1)
    his = [held for held in proved if held.user == user]
    return his if count > most >= len(proved) - count else proved


def sentence(held: Sequence[Held]) -> str:
    """The acts held back, in a sentence for a person; empty if there are none."""
    if not held:
        return ""
    names = ", ".join(each.vjob for each in held[:10]) + (f" and {len(held) - 10} more" if len(held) > 10 else "")
    unproved = sum(not each.proved for each in held)
    why = "there is no proof" if unproved == len(held) else "so many at once are more likely a fault of what was seen"
    return (
        f"nothing is done to {len(held)} vjob{'s' * (len(held) > 1)} ({names}) that would be ended, restarted or "
        f"requeued: {why}; see `rmsplugin confirm`"
    )
