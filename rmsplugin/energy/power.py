"""Power: the watts of a class of nodes, and when it pays to switch one of them off (RR-7398, equations 4 to 8)."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PowerClass:
    """What nodes of one class take, and how often they may be switched.

    Attributes:
        idle_w: watts of a node that is on and computes nothing (P_i).
        busy_w: watts with all its CPUs busy; in between linear.
        off_w: watts of a node that is off (P_s).
        transition_w: mean watts while it goes off or comes on (P_sw).
        off_s: seconds that it takes to go off (T_d).
        on_s: seconds that it takes to come on (T_w).
        least_on_s: the least time that a node stays on after it came on.
        least_off_s: the least time that a node is off before it comes on for an expected need; it comes on at once for
            a vjob that waits.
        cycles_a_day: how often a node may be switched off within 24 hours; None: any number.
    """

    idle_w: float
    busy_w: float
    off_w: float
    transition_w: float
    off_s: float
    on_s: float
    least_on_s: float = 0.0
    least_off_s: float = 0.0
    cycles_a_day: int | None = None

    def profit_j(self, idle_s: float) -> float:
        """The energy that switching off saves in an idle period, in joules (equations 4 to 6); below 0: it costs."""
        in_transition_j = (self.off_s + self.on_s) * self.transition_w
        return self.idle_w * idle_s - in_transition_j - self.off_w * (idle_s - self.off_s)

    @property
    def threshold_s(self) -> float:
        """The idle period from which on switching off saves energy (equations 7 and 8); infinite if it never does.

        A node that is switched off goes off wholly before it can come on: no shorter period is of use.
        """
        if self.idle_w <= self.off_w:
            return math.inf
        breaks_even_s = self.off_s * (self.transition_w - self.off_w) + self.transition_w * self.on_s
        return max(self.off_s, breaks_even_s / (self.idle_w - self.off_w))
