"""Decision: the state that each vjob shall be in, and why; Infeasible where nothing can be decided."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.model.vjob import VJobState


class ReasonCode(enum.StrEnum):
    """Why a vjob is to be in a state."""

    FITS = "fits"
    NO_ROOM = "no-room"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a vjob is to be in a state: a code for programs, the numbers it rests on, and a sentence for people."""

    code: ReasonCode
    sentence: str
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Decision:
    """The states of all vjobs after this cycle. Only the states bind; ``placement`` is the sample that proves them.

    ``placement`` names a node for every VM of a vjob that shall run: the configuration that the policy itself built
    (First Fit Decreasing, for the papers' policies). The planner looks for one that is cheaper to reach.
    """

    policy: str
    states: Mapping[str, VJobState]  # by vjob name, in queue order
    reasons: Mapping[str, Reason]  # by vjob name
    placement: Mapping[str, str]  # node by VM name
    sentence: str = ""  # about the whole cycle


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No decision meets what was fixed in advance (e.g. targets that do not fit together)."""

    explanation: str
