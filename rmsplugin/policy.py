"""Policy: all that a policy of a site needs; docs/writing-a-policy.md says how it is written, tried and put to use.

A policy is a pure function of a `Configuration` and `Parameters` that returns a `Decision`, or `Infeasible` with the
reason why nothing can be decided. Mostly it sorts the vjobs of a `Selection`, and adds them while there is room.
"""

from rmsplugin.decision.breaking import rules_broken
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode
from rmsplugin.decision.selection import Selection
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node, NodeState, VJob, VMState
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

__all__ = [
    "VM",
    "Configuration",
    "Decision",
    "Infeasible",
    "Location",
    "Node",
    "NodeState",
    "Parameters",
    "Reason",
    "ReasonCode",
    "Resources",
    "Selection",
    "VJob",
    "VJobState",
    "VMState",
    "rules_broken",
]
