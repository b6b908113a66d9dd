"""Decision: the state that each vjob shall be in, and the reason; Infeasible where nothing can be decided."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from rmsplugin.model.by_fields import ByFields
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.vjob import VJobState

Numbers = Mapping[str, float | int | str]


class ReasonCode(enum.StrEnum):
    """The reason why a vjob is to be in a state."""

    # it runs
    FITS = "fits"  # First Fit Decreasing finds room beside those ahead of it
    FITS_EXACTLY = "fits-exactly"  # only an exact packing finds room
    NOT_PREEMPTIBLE = "not-preemptible"  # it runs, and stays running
    KEPT = "kept"  # it runs, and nothing that the policy allows takes its place
    IN_TRANSIT = "in-transit"  # an operation on it is under way: it keeps its holdings
    AWAITS = "awaits"  # it shares its CPUs until one behind it has arrived and makes way, or has gone
    EXEMPT = "exempt"  # it was started or resumed so recently that it is not suspended
    EMPTIED = "emptied"  # it runs, and moves off a node that is emptied to save energy
    QUIET = "quiet"  # quiet hours: it stays as it is
    OVERDUE = "overdue"  # it has waited longer than its bound, and runs until it ends
    RESERVED_IN_PLACE = "reserved-in-place"  # it must run, and no placement of all that must is found
    BACKFILLED = "backfilled"  # it does not delay the head of the queue
    FILLS_HOLE = "fills-hole"  # it can be suspended when the head's turn comes
    PREEMPTS = "preempts"  # others behind it are suspended for it
    # it does not run
    NO_ROOM = "no-room"
    RULE = "rule"  # a rule about VMs beside each other stands in its way
    BEHIND_HEAD = "behind-head"  # the head of the queue does not fit, and under this policy none may pass
    RESERVED = "reserved"  # the head of the queue: it has a reservation
    WOULD_DELAY_HEAD = "would-delay-head"
    HOLE_TOO_SMALL = "hole-too-small"  # its work in the hole would be less than the switch costs
    VICTIM_EXEMPT = "victim-exempt"  # the vjobs that it would preempt are exempt
    DOES_NOT_PAY = "does-not-pay"  # the vjobs that it would preempt lose more than it gains
    PREEMPTED = "preempted"  # suspended for one ahead of it
    UNSETTLED = "unsettled"  # the decision would change at once: nothing starts in this cycle
    NOT_CHOSEN = "not-chosen"  # a policy of the site does not choose it
    POSTPONED = "postponed"  # this cycle has made as many trials as it may
    # it was settled before the policy was asked
    TARGET = "target"
    PREFERRED = "preferred"  # an administrator prefers it
    LOST = "lost"
    ENDED = "ended"


@made_at_once
@dataclass(frozen=True, slots=True)
class Reason(ByFields):
    """The reason why a vjob is to be in a state: a code for programs, its numbers, and a sentence for people."""

    code: ReasonCode
    sentence: str
    numbers: Numbers = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class Barred:
    """Others do not make way for a vjob, because its part of the loss would be too much for it.

    Attributes:
        victims: the names of the vjobs that would make way.
        lost_s: its least loss, in seconds of its own, whatever other vjobs share it.
    """

    victims: tuple[str, ...]
    lost_s: float


class Sample(dict[str, str]):
    """Places by capacity alone, node by VM name. Rules about VMs beside each other may have VMs elsewhere.

    Nobody writes into it: other places are a policy's own, and judged by these rules.
    """

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse to change it.

        Raises:
            TypeError: always; it says how a policy makes places of its own.
        """
        raise TypeError(
            "the placement of a Selection's decision cannot be changed; a placement of the policy's own is a copy:"
            " replace(decision, placement={**decision.placement, VM: NODE})"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[Sample], tuple[dict[str, str]]]:
        """For copies: these are made at once."""
        return Sample, (dict(self),)


@dataclass(frozen=True)
class Decision:
    """The states of all vjobs after this cycle. Only the states bind; ``placement`` is the sample that proves them.

    ``placement`` names a node for every VM of a vjob that shall run: the configuration that the policy itself built
    (First Fit Decreasing, for the papers' policies). The planner looks for a cheaper one to reach. The sample is
    viable, on nodes that are up, within every vjob's restrictions. Exceptions are vjobs whose reason is
    ``RESERVED_IN_PLACE``, and vjobs that may run nowhere but where they run, whatever has become of these nodes.
    """

    policy: str
    states: Mapping[str, VJobState]  # by vjob name, in queue order
    reasons: Mapping[str, Reason]  # by vjob name
    placement: Mapping[str, str]  # node by VM name
    sentence: str = ""  # about the whole cycle
    sample_first: bool = False  # whether the sample is taken among placements that are as cheap to reach
    barred: Mapping[str, Barred] = field(default_factory=dict)  # by vjob name: of vjobs that stay out for that
    cut_short: str = ""  # that the clock has ended its searches, in a sentence; empty: it depends on no clock


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No decision meets the states that were fixed in advance (e.g. targets that do not fit together).

    Attributes:
        explanation: why, in a sentence.
        errs: whether that is the fault of a policy of the site: it cannot be loaded, or errs.
    """

    explanation: str
    errs: bool = False
