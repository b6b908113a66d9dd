"""Emptying: whether it pays to empty a node that is little used, so that it can be switched off. Pure.

RR-7398 (section 2.1) empties underutilised nodes by live migration. A migration costs energy, and a node's transitions
do. So a node is emptied only if the time for which it will have nothing repays both (section 2.2, equations 4 to 8).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rmsplugin.energy.power import PowerClass

#: Within so many seconds of having nothing, an emptied node saves what emptying it costs.
REPAID_S = 1800.0


@dataclass(frozen=True, slots=True)
class Emptying:
    """Which nodes are emptied.

    Attributes:
        underload: a node may be emptied if neither of its CPUs nor of its memory more than this share is used.
        repaid_s: what emptying costs has to be saved within so many seconds of having nothing.
    """

    underload: float
    repaid_s: float = REPAID_S


def expected_rest_s(ran_s: float, limit_s: float | None) -> float:
    """How long a vjob is expected to run on, in seconds.

    As long as it has run already, for half of the processes that have run for a time end before twice that time
    (Harchol-Balter and Downey, ACM TOCS 15(3), 1997, section 2), but no longer than its limit.

    Args:
        ran_s: how long it has run.
        limit_s: its limit; None: it has none.
    """
    return ran_s if limit_s is None else max(0.0, min(ran_s, limit_s - ran_s))


def idle_after_s(
    rests_s: Iterable[float], average_s: float | None, longest_s: float, needed_in_s: float = math.inf
) -> float:
    """How much longer a node has nothing, if it is emptied now.

    Otherwise it would have nothing once the last of its vjobs has ended; from then on both are alike.

    Args:
        rests_s: how long each vjob that has a VM there is expected to run on.
        average_s: the average of the idle periods of its class (equation 9); None if none has ended yet.
        longest_s: how long a node of its class has had nothing already, at most. That node is used first, so this one
            will have nothing for at least as long as that one is predicted to.
        needed_in_s: the time until a known need of the node; infinite if none is known. It is believed, whatever the
            average says.
    """
    predicted_s = math.inf if average_s is None else max(average_s, longest_s)
    period_s = max(0.0, needed_in_s) if math.isfinite(needed_in_s) else predicted_s
    return min(max(rests_s, default=0.0), period_s)


def migrating_w(power: PowerClass, cpus: float) -> float:
    """The watts that a migration takes besides at one of its ends: as if it kept one CPU of the node busy.

    Args:
        power: the class of the node.
        cpus: of the node.
    """
    return (power.busy_w - power.idle_w) / max(1.0, cpus)


def repaid_after_s(power: PowerClass, moves_j: float) -> float:
    """The time with nothing after which a node that was emptied, and switched off at once, has saved what that cost.

    Args:
        power: its class.
        moves_j: what its VMs' migrations take, in joules.
    """
    saved_w = power.idle_w - power.off_w
    if saved_w <= 0:
        return math.inf
    return max(power.off_s, (moves_j - power.profit_j(0.0)) / saved_w)


def pays(emptying: Emptying, power: PowerClass, idle_s: float, moves_s: float, moves_j: float) -> bool:
    """Whether a node is emptied.

    Args:
        emptying: the site's terms.
        power: the node's class.
        idle_s: how much longer it then has nothing, from now on.
        moves_s: how long the migrations take: the node has nothing only after them.
        moves_j: what they take, in joules.
    """
    return repaid_after_s(power, moves_j) < min(idle_s - moves_s, emptying.repaid_s)


def may_pay(emptying: Emptying, power: PowerClass, idle_s: float) -> bool:
    """Whether a node could be worth it, if migrations took neither time nor energy; if not, no plan has to be made.

    Args:
        emptying: the site's terms.
        power: the node's class.
        idle_s: how much longer it then has nothing, from now on.
    """
    return pays(emptying, power, idle_s, 0.0, 0.0)
