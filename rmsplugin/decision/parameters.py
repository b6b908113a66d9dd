"""Parameters: all numbers of a decision that a site can tune. Defaults are for the cycle of 30 s of the papers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.elements import VJob
from rmsplugin.packing.net import Net
from rmsplugin.packing.search import Search


@dataclass(frozen=True, slots=True)
class ActionDuration:
    """The duration of one kind of action: a constant, and a part by the memory that one node saves or restores."""

    constant_s: float
    s_per_mib: float = 0.0

    def of(self, vjob: VJob) -> float:
        """Seconds that the action takes on all VMs of a vjob: nodes go in parallel, VMs of one share its storage."""
        if vjob.together_mib:
            return self.constant_s + self.s_per_mib * vjob.together_mib
        return self.of_largest(vjob)

    def of_largest(self, vjob: VJob) -> float:
        """Seconds that it takes on the largest VM of a vjob alone."""
        if not self.s_per_mib:
            return self.constant_s
        return self.constant_s + self.s_per_mib * vjob.largest_mib


def _grows(values: Mapping[str, float], name: str) -> ActionDuration:
    return ActionDuration(values[f"{name}_s"], values[f"{name}_s_per_mib"])


@dataclass(frozen=True, slots=True)
class SwitchDurations:
    """The time that a vjob does not compute while it is switched (RR-6929 section 2.3, fig. 3).

    Booting does not depend on the memory, suspend and resume do. Migration counts nothing here: it is live, so the
    guest loses next to nothing, and the planner chooses the number of migrations. The defaults are
    ``rmsplugin.model.durations.DEFAULTS``.
    """

    run: ActionDuration = ActionDuration(DEFAULTS["run_s"])
    suspend: ActionDuration = ActionDuration(DEFAULTS["suspend_s"], DEFAULTS["suspend_s_per_mib"])
    resume: ActionDuration = ActionDuration(DEFAULTS["resume_s"], DEFAULTS["resume_s_per_mib"])
    pause: ActionDuration = ActionDuration(DEFAULTS["pause_s"])
    unpause: ActionDuration = ActionDuration(DEFAULTS["unpause_s"])
    pauses: bool = False  # whether vjobs that make way are taken to be paused, and not saved

    def leave_s(self, vjob: VJob) -> float:
        """Seconds that a vjob loses to make way."""
        return self._away(vjob)[0].of(vjob)

    def back_s(self, vjob: VJob) -> float:
        """Seconds until a vjob that made way computes again; it was saved, unless its platform only pauses."""
        return (self.unpause if vjob.can.only_pauses else self.resume).of(vjob)

    def away_s(self, vjob: VJob) -> float:
        """Seconds that a vjob loses to make way and to go on later."""
        goes, comes = self._away(vjob)
        return goes.of(vjob) + comes.of(vjob)

    def least_away_s(self, vjob: VJob) -> float:
        """As ``away_s``, if each VM was on a node of its own."""
        goes, comes = self._away(vjob)
        return goes.of_largest(vjob) + comes.of_largest(vjob)

    def _away(self, vjob: VJob) -> tuple[ActionDuration, ActionDuration]:
        """How a vjob makes way, and how it goes on."""
        if self.pauses or vjob.can.only_pauses:
            return self.pause, self.unpause
        return self.suspend, self.resume

    @classmethod
    def from_values(cls, values: Mapping[str, float]) -> SwitchDurations:
        """Durations from the keys and values of section [durations] of the settings (which this layer does not know).

        The decision comes before the place of a resume is known: it is taken to be the place of the state.

        Raises:
            KeyError: a key is missing.
        """
        pauses = ActionDuration(values["pause_s"]), ActionDuration(values["unpause_s"])
        return cls(ActionDuration(values["run_s"]), _grows(values, "suspend"), _grows(values, "resume"), *pauses)


@dataclass(frozen=True, slots=True)
class SlowdownParameters:
    """Tunables of the policy ``slowdown``; docs/decisions/0080 has the worth of each on the traces.

    Attributes:
        factor: a running vjob makes way only for one whose expansion is at least so many times its own.
        switches: a running vjob makes way only after it has run, since it was started or resumed, for so many times the
            duration of a suspend and a resume of its largest VM: so no vjob loses more than a part of its time to
            switches.
        max_delay: a vjob that has waited for longer than this part of its time limit is overdue, and protected.
        max_delay_s: but only if it has waited for at least so many seconds.
        slurm_priority: the role of Slurm's priorities within a tier: ``ties`` between equals only, ``weight`` through
            the weights of vjobs, ``order``: none makes way for one behind it in the queue.
        user_share: the part of the cluster beyond which a user's vjobs make way for those of others; none starts beyond
            it while others can. 1: no bound.
        user_share_s: the time that those others must have waited.

    Raises:
        ValueError: a number without meaning.
    """

    factor: float = 3.0
    switches: float = 10.0
    max_delay: float = 0.4
    max_delay_s: float = 86400.0
    slurm_priority: Literal["ties", "weight", "order"] = "weight"
    user_share: float = 1.0
    user_share_s: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse numbers without meaning."""
        if not self.factor > 1:
            raise ValueError(f"factor must be above 1, not {self.factor}")
        if not 0 < self.user_share <= 1:
            raise ValueError(f"user_share must be above 0, and 1 at most, not {self.user_share}")
        for name in ("switches", "max_delay", "max_delay_s", "user_share_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Tunables of all policies; the papers' policies use only ``search``.

    Raises:
        ValueError: a time below zero, no time at all for the horizon, or a search that only the clock ends.
    """

    #: Limits of all exact checks of one decision together; each gets an equal share, so that the sum is bounded. They
    #: count work: a decision depends on no clock.
    search: Search = field(default_factory=lambda: Search(time_limit_s=math.inf, deterministic_limit=5.0))
    net_s: float = math.inf  # the checks end after so many seconds of the clock all the same; the decision tells that
    exact_checks: int = 10  # the most checks per decision; 0: First Fit Decreasing alone, and no solver is started
    exempt_s: float = 300.0  # a vjob is not suspended for so long after it was started or resumed
    patience_s: float = 3600.0  # a vjob that was ready for so long preempts by queue order alone
    pause_limit_s: float = 0.0  # a vjob that makes way keeps its memory for so long, unless it is needed; 0: none does
    horizon_s: float = 3600.0  # a switch is expected to be worth nothing for longer than this
    durations: SwitchDurations = field(default_factory=SwitchDurations)
    exempt_switches: float = 0.0  # and for so many times the duration of its suspend and resume,
    exempt_tier: float = -math.inf  # if it is of this tier or a higher one,
    pressed: frozenset[str] = frozenset()  # and none of these, whose nodes are short of memory
    slowdown: SlowdownParameters = field(default_factory=SlowdownParameters)
    #: The number of VMs that are placed on trial, in search of other vjobs that can start; about 10 s on one core. Only
    #: clusters of thousands of VMs that are turned upside down reach it. Vjobs left to start then start in the next
    #: cycles.
    packed_vms: int = 1_000_000
    explains: bool = True  # a start is also reserved where that does nothing but tell a vjob when it starts
    rounds: int = 8  # the most times that the mixed policy applies its own decision, until nothing changes

    def __post_init__(self) -> None:
        """Refuse numbers without meaning."""
        if self.search.deterministic_limit is None:
            raise ValueError("search must have a deterministic limit, for a decision depends on no clock")
        if not self.net_s > 0:
            raise ValueError(f"net_s must be a number of seconds above 0, not {self.net_s}")
        for name in ("exempt_s", "patience_s", "exempt_switches", "pause_limit_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 s or more, not {getattr(self, name)}")
        if not (self.horizon_s > 0 and math.isfinite(self.horizon_s)):
            raise ValueError(f"horizon_s must be a number of seconds above 0, not {self.horizon_s}")
        for name, least in (("exact_checks", 0), ("packed_vms", 1), ("rounds", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def within(self, net: Net) -> Parameters:
        """The same with this net under all searches of one decision."""
        return replace(self, search=replace(self.search, net=net))

    @property
    def search_of_one_check(self) -> Search:
        """The share of the limits that one exact check gets."""
        return self.search.part(1 / max(1, self.exact_checks))
