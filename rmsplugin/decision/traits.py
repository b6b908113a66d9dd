"""Traits: what sets policies apart, by their names.

Apart from the policies, since the engine asks only for these: a proposing process decides, and only there the solvers
are loaded.
"""

from __future__ import annotations

from rmsplugin.model.policy_names import STATIC

#: The policies before which nodes are reserved for VMs that outgrow theirs (``rmsplugin.decision.outgrown``).
RESERVES = frozenset({"mixed", "slowdown", "v-reconfiguration"})

#: Those of these policies that reserve only where that is cheapest; the others reserve wherever a node may be reserved.
COMPARES = frozenset({"mixed", "slowdown"})

#: The policies under which no vjob makes way for another.
NEVER_SUSPENDS = frozenset(STATIC)
