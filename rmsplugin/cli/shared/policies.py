"""Policies, by whether they switch, as rmsplugin.decision.policies has them; tests compare.

To import that takes longer than `--help` may take.
"""

from __future__ import annotations

#: Those that switch nothing, and those that do.
COUNTING = ("fcfs", "easy")
SWITCHING = ("easy-preempt", "rjsp", "rjsp-exact", "mixed", "slowdown", "load-sharing", "v-reconfiguration")
POLICIES = COUNTING + SWITCHING
