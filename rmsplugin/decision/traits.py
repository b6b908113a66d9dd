"""Traits: what sets policies apart, by their names.

Apart from the policies, since the engine asks only for these: a proposing process decides, and only there the solvers
are loaded.
"""

from __future__ import annotations

import enum

from rmsplugin.model.policy_names import STATIC

#: The policies before which nodes are reserved for VMs that outgrow theirs (``rmsplugin.decision.outgrown``).
RESERVES = frozenset({"mixed", "slowdown", "v-reconfiguration"})

#: Those of these policies that reserve only where that is cheapest; the others reserve wherever a node may be reserved.
COMPARES = frozenset({"mixed", "slowdown"})

#: The policies under which no vjob makes way for another.
NEVER_SUSPENDS = frozenset(STATIC)

#: Those under which vjobs make way only where nodes are short: never for one that waits, and never for a rule.
SPARES = frozenset({"load-sharing", "v-reconfiguration"})


#: Those under which the order of the queue alone decides who runs.
BY_QUEUE = frozenset({"rjsp", "rjsp-exact"})


class Suspends(enum.Enum):
    """The vjobs that a policy suspends."""

    NOBODY = enum.auto()
    WHERE_SHORT = enum.auto()  # those on nodes that are short, or on which they should not be
    FOR_CAUSE = enum.auto()  # those that it chooses itself; none so that a rule lets another one in
    BEHIND = enum.auto()  # whoever is behind one that has a place, whether that runs or not

    @classmethod
    def of(cls, policy: str) -> Suspends:
        """The vjobs that a policy suspends, by its name."""
        if policy in NEVER_SUSPENDS:
            return cls.NOBODY
        if policy in SPARES:
            return cls.WHERE_SHORT
        return cls.BEHIND if policy in BY_QUEUE else cls.FOR_CAUSE
