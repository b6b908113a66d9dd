"""Assess: turns the simulated cluster into the input of a decision; the daemon's rules, by ``rmsplugin.assessment``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rmsplugin.assessment.facts import Members, NodeFacts, VJobFacts, VMFacts
from rmsplugin.assessment.promises import PROMISED, Promise, promises
from rmsplugin.assessment.settled import Settled, settled
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.elements import VM, WAITING, paused_on, running_on, sleeping_on
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.observed_memory import shared_demand
from rmsplugin.simulation.ruled import SiteRules, ruled
from rmsplugin.simulation.vjob import SimulatedVJob

#: States in which a vjob gives back the resources that its VMs hold.
_GOES = (VJobState.SUSPENDING, VJobState.STOPPING)
_READY = {
    VJobState.WAITING: (OperationKind.START, "start"),
    VJobState.SLEEPING: (OperationKind.RESUME, "resume"),
    VJobState.PAUSED: (OperationKind.UNPAUSE, "unpause"),
}

#: States of a vjob in which its VMs, on their hosts, compute nothing; and those of them in which they soon will.
_HOLDS_STILL = (VJobState.PAUSED, VJobState.UNPAUSING)


class Assessor:
    """Assesses one cluster again and again; parts that have not changed are reused."""

    def __init__(
        self, nodes: Sequence[NodeFacts], can: Capabilities = EVERYTHING, rules: SiteRules | None = None
    ) -> None:
        """``can``: what the platform of these nodes can do with VMs; ``rules``: about their places; None: no rules."""
        self._nodes, self._can, self._rules = nodes, can, rules
        self._names = frozenset(node.name for node in nodes)
        self._vms: dict[SimulatedVJob, Members] = {}

    def changed(self, vjob: SimulatedVJob) -> None:
        """Note that the VMs of a vjob have changed."""
        self._vms.pop(vjob, None)

    def members(self, vjobs: Iterable[SimulatedVJob], steps: Iterable[PlannedStep]) -> Iterator[VMFacts]:
        """The VMs of vjobs, as ``assess`` sees them."""
        promised = promises(steps)
        for vjob in vjobs:
            yield from self._vms_of(vjob, promised.get(vjob.name))

    def assess(self, queue: Iterable[SimulatedVJob], steps: Iterable[PlannedStep], now: float) -> Settled:
        """Return the input of a decision.

        Args:
            queue: all vjobs that are not terminated, head of the queue first.
            steps: the steps of context switches under way that have not ended.
            now: the time, in seconds.
        """
        promised, queue = promises(steps), list(queue)
        found = []
        for vjob in queue:
            if vjob.state is VJobState.WAITING and vjob.rests(OperationKind.START, now):
                continue
            found.append(self._facts(vjob, promised, now))
        sorted_out = settled(self._nodes, found)
        if self._rules is None:
            return sorted_out
        by_rules = ruled(self._rules, sorted_out.configuration, {vjob.name: vjob for vjob in queue})
        return replace(sorted_out, configuration=by_rules)

    def _facts(self, vjob: SimulatedVJob, promised: Mapping[str, Promise], now: float) -> VJobFacts:
        promise = promised.get(vjob.name)
        runs = vjob.state is VJobState.RUNNING
        nodes = self._names if self._rules is None else self._rules.open_nodes(vjob.job)
        if runs and (vjob.rests(OperationKind.MIGRATE, now) or not vjob.job.preemptible):
            nodes = frozenset(vjob.hosts.values())
        ran_s = vjob.run_s + (now - vjob.since_s if runs else 0.0)
        return VJobFacts(
            name=vjob.name,
            vms=self._vms_of(vjob, promise),
            nodes=nodes,
            unsettled=_unsettled(vjob, promise, now),
            preemptible=vjob.job.preemptible and not (runs and vjob.rests(OperationKind.SUSPEND, now)),
            time_limit_s=vjob.job.estimate_s,
            ran_s=ran_s,
            state_s=now - vjob.since_s,
            waited_s=max(0.0, now - vjob.job.submit_s - ran_s),
            user=vjob.job.user,
            can=self._can,
        )

    def _vms_of(self, vjob: SimulatedVJob, promise: Promise | None) -> Members:
        if promise is not None:
            return Members(_vm(vjob, index, promise) for index in range(len(vjob.names)))
        if vjob not in self._vms:
            self._vms[vjob] = Members(_vm(vjob, index, None) for index in range(len(vjob.names)))
        return self._vms[vjob]


def _vm(vjob: SimulatedVJob, index: int, promise: Promise | None) -> VMFacts:
    name, demand = vjob.names[index], vjob.requested
    host, image, destination = vjob.hosts.get(name, ""), vjob.images.get(name, ""), vjob.moving.get(name, "")
    if vjob.memory is not None:
        demand = shared_demand(demand.cpus, vjob.memory.demanded_mib)
    if (host or image) and vjob.observed is not None:
        # What an overbooked VM uses beyond its part is not booked.
        demand = Resources(min(vjob.requested.cpus, vjob.observed.cpus(index)), demand.memory_mib)
    here = paused_on if vjob.state in _HOLDS_STILL else running_on
    location = here(host) if host else sleeping_on(image) if image else WAITING
    holds = frozenset({host, destination} - {""})
    gone = vjob.end_s is not None or (promise is None and vjob.state in _GOES)
    ends = "" if gone else destination or host
    will_hold = frozenset({ends} - {""}) if gone or promise is None else promise.will_hold(name, ends)
    goes_on = vjob.state is VJobState.UNPAUSING or (promise is not None and promise.kind is OperationKind.UNPAUSE)
    return VMFacts(VM(name, demand), location, holds, will_hold, goes_on)


def _unsettled(vjob: SimulatedVJob, promise: Promise | None, now: float) -> str:
    if vjob.state.is_transitional:
        return f"is {vjob.state}"
    if promise is not None:
        return PROMISED
    if vjob.end_s is not None:
        return "its script has ended"
    if vjob.moving:
        return "a migration of it has not ended"
    kind, word = _READY.get(vjob.state, (None, ""))
    return f"its {word} has failed, and is tried again later" if kind and vjob.rests(kind, now) else ""
