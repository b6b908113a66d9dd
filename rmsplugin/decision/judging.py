"""Judging: the faults of a decision that a policy of a site has made, before anything is planned for it.

What no policy may decide is settled before any is asked (``rmsplugin.decision.admission``): targets, what has ended or
is lost, what may not be preempted, and what an administrator prefers about vjobs that run, or should not. All else is
the policy's choice, as long as the VMs of those that run have room, and rules allow the places that it gives them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from rmsplugin.decision.admission import Draft, out_of, settle
from rmsplugin.decision.breaking import rules_broken
from rmsplugin.decision.part_types import wrong_types
from rmsplugin.decision.reasons import unless_preemptible
from rmsplugin.decision.result import Decision, Reason, Sample
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, NodeState, VMState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState


def faults(configuration: Configuration, decision: Decision) -> Iterator[str]:
    """A sentence for each fault, the gravest first; none if the decision is right."""
    wrong = list(wrong_types(decision))
    if wrong:
        yield from wrong
        return
    known = {vjob.name for vjob in configuration.vjobs}
    for name in decision.states.keys() - known:
        yield f"it decided about {name!r}, and there is no such vjob"
    for name in sorted(known - decision.states.keys()):
        yield f"it decided nothing about vjob {name}"
    if decision.states.keys() != known:
        return
    yield from _states(settle(configuration, unless_preemptible), decision)
    yield from _reasons(configuration, decision)
    yield from _placement(configuration, decision)


def _states(draft: Draft, decision: Decision) -> Iterator[str]:
    """Wrong states; ``draft``: what is settled, and what must run."""
    others = {vjob.name for vjob in (*draft.others, *draft.preferred())}
    for vjob in draft.configuration.vjobs:
        state: object = decision.states[vjob.name]
        if vjob.name not in others:
            fixed, why = draft.states[vjob.name], draft.reasons[vjob.name].sentence
            if state is not fixed:
                yield f"it has vjob {vjob.name} {state}, which {why}"
        elif state not in (VJobState.RUNNING, out_of(draft.configuration.state(vjob))):
            now = draft.configuration.state(vjob)
            yield f"it has vjob {vjob.name} {state}; it is {now}, and can be {VJobState.RUNNING} or {out_of(now)}"


def _reasons(configuration: Configuration, decision: Decision) -> Iterator[str]:
    for vjob in configuration.vjobs:
        reason: object = decision.reasons.get(vjob.name)
        if not isinstance(reason, Reason):
            yield f"it gave no reason for the state of vjob {vjob.name}"


def _placement(configuration: Configuration, decision: Decision) -> Iterator[str]:
    """Wrong places of the sample. VMs that stay where they run have their node, whatever has become of it."""
    running = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] is VJobState.RUNNING]
    demands: dict[str, Resources] = defaultdict(lambda: NOTHING)
    arrive: dict[str, VM] = {}
    for vjob in running:
        for vm in vjob.vms:
            node = decision.placement.get(vm.name)
            known = configuration.node_by_name.get(str(node))
            if known is None:
                yield (
                    f"vjob {vjob.name} is to run, and VM {vm.name} has no node"
                    if node is None
                    else (f"VM {vm.name} is to be on {node!r}, and there is no such node")
                )
                return
            demands[known.name] += vm.demand
            if not _is_there(configuration, vm, known.name):
                arrive[known.name] = vm
                if known.state is not NodeState.UP:
                    yield f"VM {vm.name} is to be on {known.name}, which is {known.state}"
                elif not vjob.allows(known.name):
                    yield f"VM {vm.name} may not be on {known.name}"
    yield from _overloads(configuration, demands, arrive)
    if not isinstance(decision.placement, Sample):
        yield from rules_broken(configuration, _in_memory(configuration, decision))


def _in_memory(configuration: Configuration, decision: Decision) -> dict[str, str]:
    """The node of each VM that has memory after the decision: that runs, or is paused where it is."""
    paused = (vjob for vjob in configuration.vjobs if decision.states[vjob.name] is VJobState.PAUSED)
    running = (vjob for vjob in configuration.vjobs if decision.states[vjob.name] is VJobState.RUNNING)
    homes = configuration.homes
    there = {vm.name: homes[vm.name] for vjob in paused for vm in vjob.vms if vm.name in homes}
    return there | {vm.name: decision.placement[vm.name] for vjob in running for vm in vjob.vms}


def _is_there(configuration: Configuration, vm: VM, node: str) -> bool:
    at = configuration.locations[vm.name]
    return at.node == node and at.state in (VMState.RUNNING, VMState.PAUSED)


def _overloads(
    configuration: Configuration, demands: Mapping[str, Resources], arrive: Mapping[str, VM]
) -> Iterator[str]:
    for node in configuration.nodes:
        if node.name in arrive and not node.capacity.holds(demands[node.name]):
            yield f"node {node.name} has no room for VM {arrive[node.name].name} beside those that it has there"
