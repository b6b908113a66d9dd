"""Net: the seconds of the clock after which the searches of one decision end, though their own limits leave them more.

Those limits count work, so that the same question has the same answer. A machine that is slow, or busy with others, may
need very long for that work. Then the net ends it, and notes that: such an answer depends on the clock.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A solver stops a little before or after its time is over.
_NEARLY = 0.95


@dataclass(slots=True)
class Net:
    """The time that solvers may take together, in seconds of the clock.

    Attributes:
        limit_s: all of it; infinite: there is no net.
        used_s: the seconds that solvers have taken so far.
        has_struck: whether it has ended a solver, or kept one from being started.
    """

    limit_s: float
    used_s: float = 0.0
    has_struck: bool = False

    @property
    def left_s(self) -> float:
        """The remaining seconds."""
        return max(0.0, self.limit_s - self.used_s)

    def take(self, seconds: float, is_proven: bool) -> None:
        """Subtract a run of a solver; ``is_proven``: more time would not have changed its answer."""
        if not is_proven and seconds >= _NEARLY * self.left_s:
            self.has_struck = True
        self.used_s += seconds

    def refuses(self) -> bool:
        """Whether no solver may be started any more. If so it has struck, for somebody wanted to."""
        if self.left_s <= 0:
            self.has_struck = True
        return self.left_s <= 0
