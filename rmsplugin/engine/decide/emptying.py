"""Emptying: what a decision knows of nodes that are emptied to save energy; ``engine.power`` finds which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import Formed
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.prepared import Prepared
from rmsplugin.proposing.proposal import Proposal, sentence

#: What a plan that empties a node has in the place of a policy.
ENERGY = "energy"


@dataclass(frozen=True)
class Emptied:
    """The node that a context switch empties.

    Attributes:
        node: its name.
        why: "n3 is emptied, so that it can be switched off: ...".
        prepared: the whole context switch.
    """

    node: str
    why: str
    prepared: Prepared


class Empties(Protocol):
    """Finds the node to be emptied, where a decision has nothing else to do."""

    def find(
        self, seen: Observation, source: Configuration, prepared: Prepared, formed: Formed, at: Mapping[str, Assigned]
    ) -> Emptied | None:
        """Find a node that it pays to empty; None: there is none. Changes nothing.

        Args:
            seen: one look at the cluster.
            source: what was decided about.
            prepared: what the decision does otherwise.
            formed: the groups.
            at: the group of each vjob.
        """
        ...

    def looked(self, source: Configuration, found: Emptied | None) -> None:
        """Take in what a cycle found: after a look in vain the next one comes later."""
        ...


def emptied_node(source: Configuration, proposal: Proposal) -> str | None:
    """The node that has nothing that runs after a proposal, and had before; None if there is not just one."""
    before = {at.node for at in source.locations.values() if at.state.holds_memory}
    after = {at.node for at in {**source.locations, **proposal.target}.values() if at.state.holds_memory}
    found = [node for node in before - after if node is not None]
    return found[0] if len(found) == 1 else None


def instead(source: Configuration, before: Prepared, own: Prepared, node: str, why: str) -> Emptied:
    """The context switch that empties a node.

    Args:
        source: what was decided about.
        before: what the decision does otherwise, which is nothing.
        own: the plan that empties the node; it may know of one group only.
        node: its name.
        why: in a sentence.
    """
    assert before.proposal is not None and own.proposal is not None
    proposal = _instead(source, before.proposal, own.proposal, why)
    return Emptied(node, why, replace(before, proposal=proposal, steps=own.steps))


def _instead(source: Configuration, before: Proposal, own: Proposal, why: str) -> Proposal:
    moved = {source.vjob_by_vm[action.vm.name].name for action in own.plan.actions()}
    reason = Reason(ReasonCode.EMPTIED, why)
    decision = replace(
        before.decision,
        placement={**before.decision.placement, **own.decision.placement},
        reasons={name: reason if name in moved else known for name, known in before.decision.reasons.items()},
        sentence=why,
    )
    return replace(
        own,
        decision=decision,
        target={**before.target, **own.target},
        nodes_used=before.nodes_used - 1,
        nodes_lower_bound=before.nodes_lower_bound,
        fingerprint=fingerprint(before.decided_about(source), own.plan),
        sentence=sentence(decision, own.plan),
        fallback=before.fallback,
        remedy=before.remedy,
    )
