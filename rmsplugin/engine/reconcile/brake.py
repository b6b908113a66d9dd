"""Brake: a cycle that would end, restart or requeue many vjobs, because something is not seen, does nothing of it.

More likely than the end of many at once is that the look was bad. What is held back is shown, and done when an operator
says so; it is forgotten when the world is back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmsplugin.engine.reconcile.reconcile import Directive
from rmsplugin.model.job_names import parse

#: So many vjobs, or this share of the live ones if that is more, may be acted on in one cycle.
MOST, SHARE = 3, 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """What would be done to one vjob, and is not."""

    job_id: int
    vjob: str  # as its user calls it
    user: str
    directive: Directive
    proved: bool  # False: there is no proof at all, so that a few of them are held back too

    @property
    def key(self) -> tuple[int, str]:
        """The same in the next cycle."""
        return (self.job_id, str(self.directive.what))


class Brake:
    """What is held back now, and what an operator let through. Several threads may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Held, ...] = ()
        self._confirmed: frozenset[tuple[int, str]] = frozenset()

    @property
    def held(self) -> tuple[Held, ...]:
        """What the last cycle held back."""
        return self._held

    def confirm(self, vjobs: Iterable[str]) -> list[Held]:
        """An operator says that it is so: the next cycle acts. Returns what of these vjobs was held back."""
        wanted = [parse(name) for name in vjobs]
        with self._lock:
            chosen = [held for held in self._held if any(name.means(held.vjob, held.job_id) for name in wanted)]
            self._confirmed |= {held.key for held in chosen}
            return chosen

    def let_through(self, wanted: Sequence[Held], live: int) -> list[Held]:
        """Return what may be done of ``wanted``, which is all that this cycle would do for reasons of absence.

        Args:
            wanted: in any order.
            live: how many vjobs may have VMs or saved states.
        """
        with self._lock:
            proved = [held for held in wanted if held.proved and held.key not in self._confirmed]
            kept = {held.key for held in wanted if not held.proved} - self._confirmed
            kept |= {held.key for held in _too_many(proved, max(MOST, SHARE * live))}
            self._held = tuple(held for held in wanted if held.key in kept)
            self._confirmed = frozenset()
            return [held for held in wanted if held.key not in kept]


def _too_many(proved: Sequence[Held], most: float) -> Sequence[Held]:
    """What is held back for being more than ``most``.

    All of it; but where those of one user alone are more, and those of the others are not, only that user's: whoever
    powers off VMs of his own keeps nobody else's vjobs from beginning again.
    """
    if len(proved) <= most:
        return ()
    [(user, count)] = Counter(held.user for held in proved).most_common(1)
    his = [held for held in proved if held.user == user]
    return his if count > most >= len(proved) - count else proved


def sentence(held: Sequence[Held]) -> str:
    """What is held back, for a person; empty if nothing is."""
    if not held:
        return ""
    names = ", ".join(each.vjob for each in held[:10]) + (f" and {len(held) - 10} more" if len(held) > 10 else "")
    unproved = sum(not each.proved for each in held)
    why = "there is no proof" if unproved == len(held) else "so many at once are more likely a fault of what was seen"
    return (
        f"nothing is done to {len(held)} vjob{'s' * (len(held) > 1)} ({names}) that would be ended, restarted or "
        f"requeued: {why}; see `rmsplugin confirm`"
    )
