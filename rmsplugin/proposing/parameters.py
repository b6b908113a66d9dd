"""Parameters of a proposal: all that it depends on besides the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from rmsplugin.decision.outgrown import Shortage
from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.quiet import Quiet
from rmsplugin.proposing.terms import Terms

if TYPE_CHECKING:
    from rmsplugin.planning.target.placement import Objective

#: The policies that use a solver to find out which vjobs fit, and those that decide the same by First Fit Decreasing.
_WITHOUT_SOLVER = {"rjsp-exact": "rjsp"}


@dataclass(frozen=True, slots=True)
class ProposalParameters:
    """How to decide, to place and to estimate.

    Attributes:
        policy: a name from ``rmsplugin.decision.policies.POLICIES``.
        decision: tunables of the policy.
        objective: ``cost``: the cheapest plan; ``nodes``: the fewest nodes, then the cheapest plan on so many.
        heuristic: search nothing. ``ffd``: the decision's own sample is the target (First Fit Decreasing; for
            ``rjsp-exact``, ``mixed`` and load sharing, one near the VMs' places). ``better-fit``: VMs arrive one after
            the other beside those that run (RR-7398). ``repair``: only VMs that have to are moved; where that is
            dearer, the sample is the target.
        search: limits of the search for hosts (limits of the decision are in ``decision``).
        durations: the duration of each kind of action, for the estimate of the makespan.
        previous: the hosts of the last proposal, node by VM name: a start for the search.
        shared_store: whether suspended VMs are saved on storage that all nodes mount.
        cpu_in_plan: whether a VM comes to a node only when it has its CPUs there; else they count in the end only.
        shortage: the question about nodes that are short of memory, asked before the decision; None: none is asked.
        capabilities: the platform's abilities; a plan that needs others is rejected (``prepare``).
        terms: nothing is decided, but a node is emptied if that pays by these (``answering``); None: vjobs are decided.
        quiet: quiet hours that have begun (``prepare`` minds them); None: it is no such time.
    """

    policy: str
    decision: Parameters = field(default_factory=Parameters)
    objective: Objective = "cost"
    heuristic: Literal["ffd", "better-fit", "repair"] | None = None
    search: Search = field(default_factory=Search)
    durations: Durations = field(default_factory=Durations)
    previous: Mapping[str, str] | None = None
    shared_store: bool = False
    cpu_in_plan: bool = False
    shortage: Shortage | None = None
    quiet: Quiet | None = None
    terms: Terms | None = None
    capabilities: Capabilities = EVERYTHING

    def without_pauses(self) -> ProposalParameters:
        """The same, but all vjobs that make way are saved."""
        return replace(self, decision=replace(self.decision, pause_limit_s=0.0))

    def without_solver(self) -> ProposalParameters:
        """The same policy by heuristics alone: cheap, and without a solver that could hang or eat memory."""
        return replace(
            self,
            policy=_WITHOUT_SOLVER.get(self.policy, self.policy),
            decision=replace(self.decision, exact_checks=0),
            objective="cost",
            heuristic="repair",
            previous=None,
            shortage=self.shortage.without_solver() if self.shortage is not None else None,
        )
