"""Assess: turns one look at the cluster into nodes, and vjobs in the order of the queue, to decide about. Only reads.

Vjobs on which something is under way, or planned, keep the resources that they hold and are promised;
``rmsplugin.assessment`` sorts them out. This module does not know how the others are decided about.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.assessment.facts import Members, NodeFacts, RoomUse, VJobFacts, VMFacts
from rmsplugin.assessment.promises import PROMISED, Promise, promises
from rmsplugin.assessment.settled import Settled, settled
from rmsplugin.engine.assess.members import KeptMembers, New, Placed
from rmsplugin.engine.assess.newcomers import free_addresses
from rmsplugin.engine.assess.queue import (
    Waiting,
    allowed_hosts,
    allowed_waiting,
    new_booked_mib,
    queue_key,
    ready_among,
    without,
)
from rmsplugin.engine.assess.site_rules import closing_rules, open_nodes, ruled, traits_of, traits_of_job
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.capacity.observed_memory import real_capacity
from rmsplugin.engine.capacity.priorities import priority_of
from rmsplugin.engine.capacity.weights import accrues_from, beyond_age, normalised
from rmsplugin.engine.context.machines import is_pinned
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.ending import is_ending
from rmsplugin.engine.observe.leaving import leaving_nodes
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import RoomState, vm_hosts
from rmsplugin.engine.observe.strays import stray_nodes
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, sleeping_on
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True)
class Assessment:
    """The configuration to decide about, and why the other waiting vjobs are not part of it.

    Attributes:
        settled: the configuration, and the vjobs that it leaves out.
        refused: by display id, why a waiting vjob can use no VM host, in a sentence for its owner.
    """

    settled: Settled
    refused: Mapping[str, str]

    @property
    def configuration(self) -> Configuration:
        """Nodes, settled vjobs, and where their VMs are."""
        return self.settled.configuration

    def why_not(self, display_id: str) -> str:
        """Why nothing is decided about a vjob; empty if something is."""
        left_out = self.settled.left_out.get(display_id)
        return self.refused.get(display_id) or (str(left_out) if left_out else "")


@dataclass(frozen=True)
class Among:
    """What an assessment is wanted of: enough to find whether the facts of a plan are as they were.

    At a large site a plan touches a few of ten thousand nodes.

    Attributes:
        vjobs: display ids of vjobs.
        nodes: nodes with all vjobs that have VMs there, or will have some.
    """

    vjobs: Collection[str]
    nodes: Collection[str]


def assess(
    capacities: Capacities,
    capabilities: Capabilities,
    memory_care: MemoryCare,
    seen: Observation,
    queue: Sequence[Waiting],
    busy: Collection[int],
    closed: Collection[str] = (),
    members: KeptMembers | None = None,
    among: Among | None = None,
) -> Assessment:
    """Assess what was seen, with the ledger as it is now.

    Args:
        capacities: what the nodes can give, and what is booked there.
        capabilities: what the platform can do.
        memory_care: the memory up to which VMs may be planned on nodes that are short of it.
        seen: one look at the cluster.
        queue: the vjobs that may start or be resumed, as far as the RMS and they themselves are concerned.
        busy: job ids of the vjobs that have an operation under way.
        closed: nodes whose rooms have just been given back.
        members: keeps the VMs of vjobs for the next assessment; None: nothing is kept.
        among: the vjobs and nodes of which an assessment is wanted: weights, other vjobs, what other nodes have free,
            and rules about VMs beside each other are then without meaning; None: of all.
    """
    members = members or KeptMembers(capacities.settings)
    assessor = _Assessor(capacities, capabilities, memory_care, seen, busy, closed, members)
    return assessor.assess(queue) if among is None else assessor.assess_some(queue, among)


class _Assessor:
    """One assessment."""

    def __init__(
        self,
        capacities: Capacities,
        capabilities: Capabilities,
        memory_care: MemoryCare,
        seen: Observation,
        busy: Collection[int],
        closed: Collection[str],
        members: KeptMembers,
    ) -> None:
        settings, ledger = capacities.settings, capacities.ledger
        self._settings = settings
        self._ledger = ledger
        self._capabilities = capabilities
        self._capacities = capacities
        self._memory_care = memory_care
        self._seen = seen
        self._busy = busy
        self._closed = closed
        self._members = members
        self._leaving = leaving_nodes(settings, seen)
        self._unclean = {node for node, _ in ledger.nodes.left_behind()} | stray_nodes(ledger, seen)
        self._switched = ledger.power.switches().keys()  # no VM comes there, also while the engine has a room there
        self._resting = ledger.failures.resting()
        self._failures = ledger.failures.of_vjobs()
        self._jobs = seen.jobs
        self._promises = promises(ledger.plans.open_steps())
        self._vms = ledger.live_vms_by_job()
        self._rules = settings.rule
        self._tiers: dict[str, tuple[int, bool]] = {}  # by partition, as ``_tier`` finds them
        self._pinned: dict[str, bool] = {}  # by image

    def assess(self, queue: Sequence[Waiting]) -> Assessment:
        """Of all vjobs."""
        found = self._of((*queue, *self._promised_beside(queue)), self._ledger.vjobs())
        self._members.retain({vjob.name for vjob in found.configuration.vjobs} | found.settled.left_out.keys())
        return found

    def assess_some(self, queue: Sequence[Waiting], among: Among) -> Assessment:
        """Of these vjobs, and of all that have VMs on these nodes, or will have some: by a step, or by a migration."""
        there = self._ledger.vjobs_among({vm.job_id for vm in self._ledger.live_vms_on(among.nodes)})
        names = {*self._promises, *among.vjobs, *(vjob.display_id for vjob in there.values())}
        waiting = (each for each in (*queue, *self._promised_beside(queue)) if each.job.display_id in names)
        return self._of(tuple(waiting), [vjob for vjob in self._ledger.vjobs() if vjob.display_id in names])

    def _of(self, queue: Sequence[Waiting], vjobs: Sequence[VJobRow]) -> Assessment:
        seen, refused = self._seen, {}
        free = free_addresses(self._settings, self._ledger)
        found = []
        states = {each.display_id: each.state for each in vjobs}
        for waiting in queue:
            name = waiting.job.display_id
            if _has_moved(waiting, states.get(name)):
                continue
            allowed = allowed_waiting(self._settings, seen, waiting)
            if allowed.objection:
                refused[name] = allowed.objection
            elif waiting.sleeping is None and waiting.geometry.vms > free:
                refused[name] = f"needs {waiting.geometry.vms} addresses, {free} free in network.pool"
            else:
                row, key = waiting.sleeping, queue_key(seen, waiting.job, waiting.priority, waiting.submitted)
                if row is not None and row.state is VJobState.PAUSED:
                    priority = priority_of(seen, row, waiting.job)
                    found.append((key, self._hosted(row, waiting.job, priority, goes_on=True)))
                else:
                    found.append((key, self._ready(waiting, allowed.nodes)))
        known = {facts.name for _, facts in found}
        for vjob in vjobs:
            if vjob.state.is_live and vjob.display_id not in known and vjob.job_id in self._vms:
                job = self._jobs.get(vjob.job_id)
                priority = priority_of(seen, vjob, job)
                key = queue_key(seen, vjob, priority, vjob.submitted)
                found.append((key, self._hosted(vjob, job, priority)))
        found.sort(key=lambda each: each[0])
        sorted_out = settled(list(self._nodes()), normalised(facts for _, facts in found))
        wished = any(each.geometry.wishing for each in queue) or any(each.geometry.wishing for each in vjobs)
        if self._settings.rule or wished:
            traits = {each.display_id: traits_of(seen, each) for each in vjobs}
            traits |= {each.job.display_id: traits_of_job(each.job, each.geometry) for each in queue}
            by_rules = ruled(self._settings, seen.topology, sorted_out.configuration, traits)
            sorted_out = replace(sorted_out, configuration=by_rules)
        return Assessment(sorted_out, refused)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _nodes(self) -> Iterable[NodeFacts]:
        for name in vm_hosts(self._settings, self._seen.rms):
            planned = self._memory_care.planned(name, real_capacity(self._settings, self._seen, name))
            yield NodeFacts(name, planned, self._room(name), out_of_reach=self._out_of_reach(name))

    def _out_of_reach(self, name: str) -> str:
        node = self._seen.rms.nodes[name]
        if name in self._seen.unreachable:
            return self._seen.unreachable[name]
        return "" if node.up else f"Slurm says that it is {node.state}"

    def _room(self, name: str) -> RoomUse:
        room = self._seen.rooms.by_node.get(name)
        if name in self._leaving or self._seen.rms.nodes[name].draining:
            return RoomUse.LEAVING
        shut = name in self._closed or name in self._seen.faults or name in self._unclean or name in self._switched
        return RoomUse.NONE if room is None or room.state is not RoomState.HELD or shut else RoomUse.HELD

    # -- vjobs ---------------------------------------------------------------------------------------------------

    def _promised_beside(self, queue: Sequence[Waiting]) -> Iterable[Waiting]:
        """The vjobs that are to start by a step that is planned, and are not in the queue at this moment.

        A vjob that changed a moment ago, or is held for a moment, keeps the room that others have made for it. When
        its turn comes it is known whether it waits for it still.
        """
        if not self._promises:
            return
        promised = self._promises.keys() - {waiting.job.display_id for waiting in queue}
        for row in self._ledger.vjobs() if promised else ():
            job = self._jobs.get(row.job_id)
            if row.display_id in promised and row.state is VJobState.WAITING and job is not None:
                yield Waiting(
                    *(job, row.geometry, row.submitted, job.priority), since=row.state_since, preferred=row.preferred
                )

    def _ready(self, waiting: Waiting, allowed: frozenset[str]) -> VJobFacts:
        """A vjob that may start, or be resumed; ``allowed``: the hosts where it may be."""
        job, row = waiting.job, waiting.sleeping
        rows = self._vms.get(row.job_id, ()) if row is not None else ()
        promise = self._promises.get(job.display_id)
        busy = row is not None and row.job_id in self._busy
        ran_s, since = row.ran_s if row is not None else 0.0, accrues_from(job, row, self._seen.taken)
        tier, preemptible = self._tier(job.partition)
        return VJobFacts(
            name=job.display_id,
            vms=self._ready_members(waiting, rows, promise),
            nodes=ready_among(self._settings, self._seen, waiting, allowed, rows, self._resting),
            unsettled=PROMISED if promise else "an operation on it is under way" if busy else "",
            preemptible=preemptible,
            priority=tier,
            time_limit_s=_finite(job.time_limit_s),
            ran_s=ran_s,
            state_s=max(0.0, self._seen.taken - waiting.since),
            waited_s=max(0.0, self._seen.taken - since - ran_s),
            weight=beyond_age(self._seen, waiting.priority, since, job, row),
            user=job.user,
            can=self._capabilities,
            preference=waiting.preferred,
        )

    def _ready_members(self, waiting: Waiting, rows: Sequence[VMRow], promise: Promise | None) -> Members:
        """The VMs of a vjob that may start, which are still to be made; or that may be resumed, with saved states."""
        row, name = waiting.sleeping, waiting.job.display_id
        if row is None:
            large_mib, small_mib = new_booked_mib(self._capacities, self._seen, waiting)
            return self._members.new(New(name, waiting.job.partition, waiting.geometry, large_mib, small_mib, promise))
        return Members(
            VMFacts(
                VM(vm.name, self._capacities.booked(self._seen, row, vm)),
                sleeping_on(vm.image_node),
                frozenset(),
                promise.will_hold(vm.name, "") if promise else frozenset(),
            )
            for vm in rows
        )

    def _hosted(self, vjob: VJobRow, job: RmsJob | None, priority: int, *, goes_on: bool = False) -> VJobFacts:
        """A vjob with VMs, or with saved states that nothing resumes now; ``goes_on``: it is paused, and may go on."""
        vms = self._vms[vjob.job_id]
        promise = self._promises.get(vjob.display_id)
        tier, preemptible = self._tier(vjob.partition)
        # Nothing is ended because of this look; but no vjob should wait for one that has probably ended.
        ending = is_ending(vjob, self._seen.taken)
        ended = ending or (job is not None and job.state is JobState.ENDED)
        ran_s, since = self._ran_s(vjob, job), accrues_from(job, vjob, self._seen.taken)
        return VJobFacts(
            name=vjob.display_id,
            vms=self._members.placed(vjob.display_id, self._placed(vjob, vms, promise, ending=ending, ended=ended)),
            nodes=self._nodes_of(vjob, vms, preemptible),
            unsettled=self._unsettled(vjob, vms, job, promise, goes_on=goes_on, ending=ending),
            preemptible=preemptible and not self._rests(vjob, OperationKind.SUSPEND, OperationKind.PAUSE),
            priority=tier,
            time_limit_s=_finite(job.time_limit_s) if job else None,
            ran_s=ran_s,
            state_s=max(0.0, self._seen.taken - vjob.state_since),
            waited_s=max(0.0, self._seen.taken - since - ran_s),
            weight=beyond_age(self._seen, priority, since, job, vjob),
            user=vjob.user,
            can=self._capabilities,
            preference=vjob.preferred,
        )

    def _closing(self, vjob: VJobRow) -> tuple[str, ...]:
        return closing_rules(self._settings.rule, traits_of(self._seen, vjob))

    def _placed(
        self, vjob: VJobRow, vms: Sequence[VMRow], promise: Promise | None, *, ending: bool, ended: bool
    ) -> Placed:
        observed = self._capacities.observed(self._seen, vjob, vms)
        return Placed(tuple(vms), observed, vjob.partition, vjob.geometry, vjob.state, ending, ended, promise)

    def _nodes_of(self, vjob: VJobRow, vms: Sequence[VMRow], preemptible: bool) -> frozenset[str]:
        here = [vm.host for vm in vms if vm.host]
        # If the admin has not switched context switches on, no running vjob is moved to make room.
        stays = self._is_pinned(vjob) or not self._capabilities.migrate
        if not preemptible or stays or self._rests(vjob, OperationKind.MIGRATE):
            return frozenset(here)
        allowed = allowed_hosts(self._settings, self._seen, vjob)
        if self._rules:  # what a rule closes is left, if there is room elsewhere
            here = [*open_nodes(self._rules, frozenset(here), self._closing(vjob))]
        rest = self._resting.get("migrate")
        nodes = without(self._seen, allowed, rest) if rest else allowed
        return (
            nodes if nodes.issuperset(here) else nodes.union(here)
        )  # most vjobs share one set, perhaps of a thousand nodes

    def _is_pinned(self, vjob: VJobRow) -> bool:
        image = vjob.geometry.image
        found = self._pinned.get(image)
        if found is None:
            found = self._pinned[image] = is_pinned(self._settings, vjob)
        return found

    def _unsettled(
        self,
        vjob: VJobRow,
        vms: Sequence[VMRow],
        job: RmsJob | None,
        promise: Promise | None,
        *,
        goes_on: bool,
        ending: bool,
    ) -> str:
        seen = self._seen
        if vjob.job_id in self._busy or vjob.state.is_transitional:
            return f"is {vjob.state}" if vjob.state.is_transitional else "an operation on it is under way"
        if promise is not None:
            return PROMISED
        if vjob.state is not VJobState.RUNNING and not goes_on:
            return f"is {vjob.state}, and nobody resumes it now"
        if vjob.state_since >= seen.taken:
            return "has just begun to run"
        if ending:
            return "its script has ended"
        if not goes_on and (job is None or job.state is not JobState.RUNNING or job.completing):
            return f"its job is {job.detail if job else 'not in the list'} in Slurm"
        if goes_on and self._rests(vjob, OperationKind.SUSPEND):
            return "a save of it has failed, and is tried again later"
        if vjob.job_id in seen.changed:
            return "its job was requeued a moment ago"
        for vm in vms:
            if vm.phase.moves:
                return "a migration of it has not ended"
        if self._leaving and (leaves := sorted({vm.host for vm in vms} & self._leaving.keys())):
            return f"leaves {', '.join(leaves)}"
        for vm in vms:
            there = seen.vms.get(vm.host)
            if there is not None and vm.name not in there:
                return f"{vm.name} is not seen on its node"
        return ""

    def _rests(self, vjob: VJobRow, *kinds: OperationKind) -> bool:
        """Whether the last operation of one of these kinds failed too short a time ago."""
        if not self._failures:
            return False
        failed = [self._failures.get((vjob.job_id, kind)) for kind in kinds]
        return any(each is not None and each.rests(self._seen.taken) for each in failed)

    def _tier(self, partition: str) -> tuple[int, bool]:
        """The PriorityTier of a partition, and whether its vjobs may be suspended; found once for all of them."""
        found = self._tiers.get(partition)
        if found is None:
            known = self._seen.rms.partitions.get(partition)
            found = (known.priority_tier if known else 0, site.may_suspend(self._seen.rms, partition))
            self._tiers[partition] = found
        return found

    def _ran_s(self, vjob: VJobRow, job: RmsJob | None) -> float:
        if job is not None and job.state is JobState.RUNNING and job.end_time and math.isfinite(job.time_limit_s):
            return max(0.0, job.time_limit_s - (job.end_time - self._seen.taken))
        return vjob.ran_by(self._seen.taken)


def _has_moved(waiting: Waiting, state: VJobState | None) -> bool:
    """Whether it waits no more: a step may begin, and end, between the queue and the assessment."""
    return state is not None and state is not (
        VJobState.WAITING if waiting.sleeping is None else waiting.sleeping.state
    )


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
