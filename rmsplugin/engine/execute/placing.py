"""Placing: the nodes of VMs when vjobs start, resume or migrate. One lock, so that no room is given away twice (I3)."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.engine.assess.arrivals import Arrivals
from rmsplugin.engine.assess.newcomers import make_stand_ins, make_vms, new_vjob
from rmsplugin.engine.assess.queue import Waiting, allowed_hosts, ready_demands, ready_vms
from rmsplugin.engine.assess.ruled_places import RuledPlaces
from rmsplugin.engine.assess.site_rules import Member, traits_of_job
from rmsplugin.engine.capacity.capacity import Capacities, HostCapacity, demand, demand_of_new, held
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.capacity.observed_memory import booked_mib, expected_mib, needed_mib, observes
from rmsplugin.engine.capacity.priorities import standing_of
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.machines import is_pinned
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.one_step_plan import ENGINE, one_step_plan
from rmsplugin.engine.ledger.records import standing_text
from rmsplugin.engine.ledger.rows import Operation, OperationKind, Step, VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.strays import strays
from rmsplugin.errors import RefusedError
from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.steps import PlannedStep

#: What a step does, where VMs of its vjob come to a node, or go on there.
_VERBS = {OperationKind.START: "starts", OperationKind.RESUME: "resumes", OperationKind.UNPAUSE: "goes on"}


class Placing:
    """Gives room on nodes to vjobs, and begins the operations that take it."""

    def __init__(self, context: Context, executor: Executor, memory_care: MemoryCare) -> None:
        self._settings = context.settings
        self._durations = context.durations
        self._ledger = context.ledger
        self._clock = context.clock
        self._rms = context.rms
        self._capabilities = context.capabilities
        self._capacities = Capacities(context.settings, context.ledger, context.clock, context.demanded_cpus)
        self._executor = executor
        self._memory_care = memory_care
        self._lock = memory_care.placement_lock
        self._arrivals = Arrivals(context.settings, context.ledger)  # used under the lock
        self._closed: dict[str, float] = {}  # nodes whose rooms were given back, and when

    # -- steps of context switches -------------------------------------------------------------------------------

    def begin_step(self, seen: Observation, step: Step, vjob: VJobRow | None, waiting: Waiting | None) -> None:
        """Begin the operation of a plan's step, if the room that was planned for it is there.

        Args:
            seen: the last look at the cluster.
            step: of the plan.
            vjob: its row; None for an element of a job array that has no row yet.
            waiting: its place in the queue, for a start.

        Raises:
            RefusedError: the room has gone, the vjob is in another state, or another operation on it is under way.
        """
        with self._lock:
            if step.kind is OperationKind.START:
                assert waiting is not None, "a start of a vjob that does not wait"
                needs = ready_demands(self._capacities, seen, waiting, ready_vms(waiting, ()))
                hosts = _by_number(step.hosts)
                self._require_rules(seen, waiting, dict(zip(needs, hosts, strict=True)))
                need_mib = [need.memory_mib for need in needs.values()]
                self._require_room(seen, list(zip(hosts, need_mib, strict=True)))
                partition = waiting.job.partition
                if not observes(self._settings, seen, partition):
                    sizes = (
                        demand_of_new(self._settings, partition, waiting.geometry, index) for index in range(len(hosts))
                    )
                    self._make_room(seen, [(node, size.memory_mib) for node, size in zip(hosts, sizes, strict=True)])
                self._begin_start(seen, waiting, step)
                return
            assert vjob is not None
            comes = {} if step.kind is OperationKind.UNPAUSE else step.hosts  # it has its memory
            vms = [vm for vm in self._ledger.vms(vjob.job_id) if vm.name in comes]
            self._require_rules(seen, vjob.job_id, {vm.name: step.hosts[vm.name] for vm in vms})
            self._require_room(seen, [(step.hosts[vm.name], self._vm(seen, vjob, vm).demand.memory_mib) for vm in vms])
            self._make_room_for(seen, vjob, vms, step.hosts)
            self._require_disks(vjob, vms, step.hosts)
            with self._ledger.transaction():
                operation = self._intend(vjob, step)
            self._executor.submit(operation)

    def _intend(self, vjob: VJobRow, step: Step, requested_by: str = ENGINE, *, resumes: bool = True) -> Operation:
        """Record the operation that a step is about to begin; the caller has begun a transaction."""
        intend = partial(self._executor.intend, vjob.job_id, step.kind, step.reason)
        begin = partial(intend, told=_told(step), requested_by=requested_by)
        match step.kind:
            case OperationKind.SUSPEND:
                self._require(vjob, VJobState.RUNNING, VJobState.PAUSED)
                operation = begin(resumes=resumes)
            case OperationKind.MIGRATE:
                self._require(vjob, VJobState.RUNNING, VJobState.PAUSED)
                operation = begin(destinations=step.hosts)
            case OperationKind.PAUSE:
                self._require(vjob, VJobState.RUNNING)
                operation = begin(resumes=True)
            case OperationKind.UNPAUSE:
                self._require(vjob, VJobState.PAUSED)
                operation = begin()
            case _:
                self._require(vjob, VJobState.SLEEPING)
                operation = begin(hosts=step.hosts)
        self._ledger.plans.step_begins(step.id, operation.id)
        return operation

    def _begin_start(self, seen: Observation, waiting: Waiting, step: Step) -> None:
        ledger = self._ledger
        job = waiting.job
        if not job.split:
            job = replace(job, job_id=self._rms.split(job.display_id), split=True)
            ledger.add_vjob(new_vjob(self._clock, job, waiting.geometry, waiting.script))
        vjob = ledger.vjob(job.job_id)
        self._require(vjob, VJobState.WAITING)
        vms, keys = self._new_vms(seen, vjob, _by_number(step.hosts))
        with ledger.transaction():
            ledger.set_vms(job.job_id, vms)
            ledger.usage.forget([job.job_id])
            ledger.update_vjob(
                job.job_id,
                **keys,
                script_started=False,
                finished=False,
                exit_code=None,
                exit_signal=0,
                priority=waiting.priority,
                standing=standing_text(standing_of(seen, waiting.job)),
            )
            operation = self._executor.intend(job.job_id, OperationKind.START, step.reason, told=_told(step))
            ledger.plans.step_begins(step.id, operation.id)
        self._executor.submit(operation)

    def _new_vms(self, seen: Observation, vjob: VJobRow, hosts: list[str]) -> tuple[list[VMRow], dict[str, str]]:
        """The VMs of a vjob that is about to start, and the columns of its keys."""
        if self._settings.native:
            return make_stand_ins(vjob, hosts), {}
        keys = generate_keypair()
        expected = partial(expected_mib, self._settings, self._ledger, seen, vjob, vjob.job_name, vjob.geometry)
        vms = make_vms(self._settings, self._ledger, vjob, hosts, expected)
        return vms, {"private_key": keys.private_openssh, "public_key": keys.public}

    def _require_room(self, seen: Observation, coming: Iterable[tuple[str, int]]) -> None:
        """Raise RefusedError unless there is memory for all VMs that come, each by its node and demand in MiB (I3)."""
        needed: Counter[str] = Counter()
        for node, need_mib in coming:
            needed[node] += need_mib
        if not needed:
            return
        hosts, closed = (self._capacities.hosts(seen, needed), self.closed(seen))
        for node, need_mib in needed.items():
            if why := _why_shut(hosts, closed, node):
                raise RefusedError(f"{node} takes no VMs now: {why}")
            left = hosts[node].free.memory_mib
            if left < need_mib:
                raise RefusedError(f"{node} has {left} MiB of memory free, and {need_mib} MiB are needed")

    def _require_rules(self, seen: Observation, vjob: int | Waiting, hosts: Mapping[str, str]) -> None:
        """Raise RefusedError unless rules let VMs come to these nodes now.

        Args:
            seen: the last look at the cluster.
            vjob: the job id of the VMs' vjob; or its place in the queue, if they are still to be made.
            hosts: by VM.
        """
        if not hosts:
            return
        if isinstance(vjob, int):
            self._arrivals.require(seen, vjob, hosts)
        else:
            traits = traits_of_job(vjob.job, vjob.geometry)
            self._arrivals.require(seen, Member(vjob.job.display_id, traits, tuple(hosts)), hosts)

    def fits_beside_caches(self, seen: Observation, step: Step, vjob: VJobRow | None, waiting: Waiting | None) -> bool:
        """Whether a vjob that starts or resumes fits beside all that guests hold, with caches; if not, it may later.

        A migration does not wait for this: it relieves a node that is short.
        """
        needed: Counter[str] = Counter()
        overhead_mib = self._settings.memory_overhead_mib
        if step.kind is OperationKind.START and waiting is not None:
            job = waiting.job
            for index, node in enumerate(_by_number(step.hosts)):
                expected = expected_mib(self._settings, self._ledger, seen, job, job.name, waiting.geometry, index)
                if expected is not None:
                    needed[node] += expected + overhead_mib
        elif step.kind is OperationKind.RESUME and vjob is not None:
            for vm in self._ledger.vms(vjob.job_id):
                if vm.observed and vm.name in step.hosts:
                    needed[step.hosts[vm.name]] += needed_mib(vm) + overhead_mib
        lacking = [node for node, mib in needed.items() if not self._memory_care.has_room(node, mib)]
        return not lacking

    def _make_room(self, seen: Observation, coming: Iterable[tuple[str, int]]) -> None:
        """Lower the bounds of observed VMs before others come (I3), each given by its node and memory in MiB."""
        needed: Counter[str] = Counter()
        for node, memory_mib in coming:
            needed[node] += memory_mib
        for node, memory_mib in needed.items():
            self._memory_care.make_room(seen, node, memory_mib)

    def _make_room_for(self, seen: Observation, vjob: VJobRow, vms: Sequence[VMRow], hosts: Mapping[str, str]) -> None:
        others = [vm for vm in vms if not vm.observed]
        self._make_room(
            seen,
            [(hosts[vm.name], demand(self._settings, vjob.partition, vjob.geometry, vm).memory_mib) for vm in others],
        )

    def closed(self, seen: Observation) -> frozenset[str]:
        """The nodes whose rooms were given back after the last look."""
        with self._lock:
            return frozenset(node for node, time in self._closed.items() if time >= seen.taken)

    @property
    def lock(self) -> threading.RLock:
        """The lock that is held while room is given away, or while none may be given away."""
        return self._lock

    # -- evacuation, and requests by hand ------------------------------------------------------------------------

    def leave(self, seen: Observation, vjob: VJobRow, nodes: Collection[str], reason: str) -> Operation:
        """Migrate the VMs of a running or paused vjob off some nodes, to nodes where FFD finds room.

        Raises:
            RefusedError: there is no room elsewhere, the platform cannot, or another operation is under way.
        """
        self._require_of_platform(self._capabilities.migrate, "move a VM that runs")
        with self._lock:
            self._require(vjob, VJobState.RUNNING, VJobState.PAUSED)
            vms = [vm for vm in self._ledger.vms(vjob.job_id) if vm.host in nodes]
            free = {name: left for name, left in self._free(seen, vjob, "", "migrate").items() if name not in nodes}
            places = RuledPlaces(self._settings, self._ledger, seen)
            placed = places.fit([self._vm(seen, vjob, vm) for vm in vms], free)
            if placed is None:
                raise RefusedError(_no_room(f"vjob {vjob.display_id}", self._vm(seen, vjob, vms[0]), "", free))
            self._require_disks(vjob, vms, placed)
            self._make_room_for(seen, vjob, vms, placed)
            return self._begin_alone(vjob, OperationKind.MIGRATE, reason, ENGINE, placed)

    def relocate(self, seen: Observation, vjob: VJobRow, nodes: Collection[str], reason: str) -> Operation:
        """Copy the saved states of a sleeping vjob off some nodes, to the nodes with a room that have most memory free.

        Raises:
            RefusedError: there is no other node with a room, the platform could not restore the VMs there, or another
                operation is under way.
        """
        self._require_of_platform(self._capabilities.elsewhere, "restore a VM on another node")
        with self._lock:
            self._require(vjob, VJobState.SLEEPING)
            shut = self._resting("copy").union(nodes)
            free = {name: host.free for name, host in self._open_hosts(seen).items() if name not in shut}
            if not free:
                raise RefusedError("no other node has a room")
            roomiest = max(free, key=lambda name: free[name].memory_mib)
            vms = [vm for vm in self._ledger.vms(vjob.job_id) if vm.image_node in nodes]
            destinations = {vm.name: roomiest for vm in vms}
            return self._executor.begin(vjob.job_id, OperationKind.RELOCATE, reason, destinations=destinations)

    def close(self, node: str, occupied: Callable[[], bool]) -> bool:
        """Close a node to VMs, as its room is about to be given back; False if a VM is there, or about to come."""
        with self._lock:
            if occupied():
                return False
            self._closed[node] = max(self._closed.get(node, 0.0), self._clock.now())
            return True

    def keep_closed(self, node: str) -> None:
        """Keep a closed node closed, also after further looks, until ``let_open``: its room may end at any time."""
        with self._lock:
            self._closed[node] = math.inf

    def let_open(self, node: str) -> None:
        """End ``keep_closed``, if it was: the next look tells whether the node has a room."""
        with self._lock:
            if self._closed.get(node) == math.inf:
                self._closed[node] = self._clock.now()

    def _open_hosts(self, seen: Observation) -> dict[str, HostCapacity]:
        """The hosts that take VMs now; a node whose room was given back is closed until the room is seen to be gone."""
        hosts, closed = (self._capacities.hosts(seen), self.closed(seen))
        return {name: host for name, host in hosts.items() if not _why_shut(hosts, closed, name)}

    def resume(self, seen: Observation, vjob: VJobRow, to: str, reason: str, requested_by: str) -> Operation:
        """Resume a sleeping vjob: on ``to``; or else each VM at its state if there is room, or by FFD.

        Raises:
            RefusedError: there is no room (without ``to`` the vjob then waits for its turn), the platform restores VMs
                only where they were saved, or another operation is under way.
        """
        with self._lock:
            self._require(vjob, VJobState.SLEEPING)
            if where := strays(self._ledger, seen, vjob):
                raise RefusedError(
                    f"its VMs are seen on {', '.join(sorted({*where.values()}))}: see `rmsplugin confirm`"
                )
            vms = self._ledger.vms(vjob.job_id)
            pinned = is_pinned(self._settings, vjob)
            prefer = {vm.name: vm.booted_on if pinned else vm.image_node for vm in vms}
            try:
                hosts = self._place(seen, vjob, vms, to, prefer)
            except RefusedError as error:
                if to:
                    raise
                # Otherwise, if all rooms have been given back meanwhile, no node would ever be borrowed for it.
                self._ledger.update_vjob(vjob.job_id, resumes=True)
                raise RefusedError(f"{error}; it is resumed when its turn comes") from None
            self._require_disks(vjob, vms, hosts)
            local = self._capabilities.elsewhere or all(hosts[vm.name] == vm.image_node for vm in vms)
            self._require_of_platform(local, "restore a VM on another node than the one where it was saved")
            self._make_room_for(seen, vjob, vms, hosts)
            return self._begin_alone(vjob, OperationKind.RESUME, reason, requested_by, hosts)

    def unpause(self, seen: Observation, vjob: VJobRow, reason: str, requested_by: str) -> Operation:
        """Let a paused vjob go on where it is.

        Raises:
            RefusedError: its CPUs are not free there (it then goes on when its turn comes), or another operation is
                under way.
        """
        with self._lock:
            self._require(vjob, VJobState.PAUSED)
            vms = self._ledger.vms(vjob.job_id)
            hosts, closed = (self._capacities.hosts(seen), self.closed(seen))
            need = Counter[str]()
            for vm in vms:
                need[vm.host] += self._capacities.booked(seen, vjob, vm).centi_cpus
            for node, centi_cpus in need.items():
                why = "" if self._goes_on_there(seen, node) else _why_shut(hosts, closed, node)
                if not why and hosts[node].free.centi_cpus < centi_cpus:
                    why = f"{max(0.0, hosts[node].free.cpus):g} CPUs are free there, {centi_cpus / 100:g} are needed"
                if why:
                    raise RefusedError(f"its memory is on {node}: {why}; it goes on when its turn comes")
            there = {vm.name: vm.host for vm in vms}
            return self._begin_alone(vjob, OperationKind.UNPAUSE, reason, requested_by, there)

    def _goes_on_there(self, seen: Observation, node: str) -> bool:
        """Whether a vjob that is paused on the node, and cannot leave it, goes on although the node drains."""
        found = seen.rms.nodes.get(node)
        return self._settings.native and found is not None and found.up and found.draining

    def migrate(
        self, seen: Observation, vjob: VJobRow, vm_name: str, to: str, reason: str, requested_by: str
    ) -> Operation:
        """Migrate one VM (or, with ``vm_name`` empty, all VMs) of a running vjob to ``to``, or elsewhere by FFD.

        Raises:
            RefusedError: there is no room, nothing to do, the platform cannot, or another operation is under way.
        """
        self._require_of_platform(self._capabilities.migrate, "move a VM that runs")
        with self._lock:
            self._require(vjob, VJobState.RUNNING)
            vms = [vm for vm in self._ledger.vms(vjob.job_id) if vm_name in ("", vm.name) and vm.host != to]
            if not vms:
                raise RefusedError(f"no VM of vjob {vjob.display_id} would move: {vm_name or 'all'} on {to} already")
            free = self._free(seen, vjob, to, "migrate")
            places, destinations = RuledPlaces(self._settings, self._ledger, seen), dict[str, str]()
            for vm in vms:
                # A VM must not migrate to its own host: each VM is placed by itself, with its host left out.
                room = {name: left for name, left in free.items() if name != vm.host}
                placed = places.fit([self._vm(seen, vjob, vm)], room)
                if placed is None:
                    raise RefusedError(_no_room(vm.name, self._vm(seen, vjob, vm), to, room))
                destinations |= placed
                free[placed[vm.name]] -= self._vm(seen, vjob, vm).demand
            self._require_disks(vjob, vms, destinations)
            self._make_room_for(seen, vjob, vms, destinations)
            return self._begin_alone(vjob, OperationKind.MIGRATE, reason, requested_by, destinations)

    def suspend(self, vjob: VJobRow, reason: str, requested_by: str = ENGINE, *, resumes: bool) -> Operation:
        """Save a running or paused vjob; ``resumes``: it resumes by itself when its turn comes.

        Raises:
            RefusedError: the vjob is neither, the platform cannot, or another operation is under way.
        """
        self._require_of_platform(self._capabilities.suspend, "save a VM")
        with self._lock:
            return self._begin_alone(vjob, OperationKind.SUSPEND, reason, requested_by, {}, resumes=resumes)

    def _begin_alone(
        self,
        vjob: VJobRow,
        kind: OperationKind,
        reason: str,
        requested_by: str,
        hosts: Mapping[str, str],
        *,
        resumes: bool = True,
    ) -> Operation:
        """Begin a plan of one step, at once."""
        plans = self._ledger.plans
        with self._ledger.transaction():
            plan = one_step_plan(
                self._settings, self._durations, self._ledger, self._clock, vjob, kind, hosts, reason, requested_by
            )
            plan_id = plans.add(plan, [PlannedStep(vjob.display_id, kind, hosts)], {vjob.display_id: reason})
            [step] = plans.steps(plan_id)
            operation = self._intend(vjob, step, requested_by, resumes=resumes)
        self._executor.submit(operation)
        return operation

    def _require(self, vjob: VJobRow, *states: VJobState) -> None:
        now = self._ledger.vjob(vjob.job_id).state
        if now not in states:
            raise RefusedError(f"vjob {vjob.display_id} is {now}, not {states[0]}")

    def _require_of_platform(self, can: bool, what: str) -> None:
        """Raise RefusedError for what the platform cannot do."""
        if not can:
            raise RefusedError(f"{self._settings.hypervisor.platform} cannot {what}")

    def _require_disks(self, vjob: VJobRow, vms: Sequence[VMRow], hosts: Mapping[str, str]) -> None:
        """Raise RefusedError if a VM would go to a node without its disk."""
        if not is_pinned(self._settings, vjob):
            return
        for vm in vms:
            if hosts[vm.name] != vm.booted_on:
                raise RefusedError(
                    f"{vm.name} has its disk on {vm.booted_on} only, and cannot run on {hosts[vm.name]}; disks that "
                    "all nodes reach need nodes.vm_dir on shared storage and nodes.vm_dir_shared = true"
                )

    def _place(
        self, seen: Observation, vjob: VJobRow, vms: Sequence[VMRow], to: str, prefer: dict[str, str]
    ) -> dict[str, str]:
        free = self._free(seen, vjob, to, "resume")
        places = RuledPlaces(self._settings, self._ledger, seen)
        placed = places.fit([self._vm(seen, vjob, vm) for vm in vms], free, prefer)
        if placed is None:
            raise RefusedError(_no_room(f"vjob {vjob.display_id}", self._vm(seen, vjob, vms[0]), to, free))
        return placed

    def _resting(self, kind: str) -> frozenset[str]:
        return self._ledger.failures.resting().get(kind, frozenset())

    def _free(self, seen: Observation, vjob: VJobRow, to: str, kind: str) -> dict[str, Resources]:
        """The resources free on ``to`` (even if it rests), or on all nodes that take actions of this kind.

        Raises:
            RefusedError: the vjob may not use ``to``, or ``to`` takes no VMs.
        """
        allowed = allowed_hosts(self._settings, seen, vjob)
        free = {name: host.free for name, host in self._open_hosts(seen).items() if name in allowed}
        if to and to not in allowed:
            names = ", ".join(sorted(allowed)) or "none"
            raise RefusedError(f"vjob {vjob.display_id} may not use {to}; it may use: {names}")
        if to and to not in free:
            why = _why_shut(self._capacities.hosts(seen, {to}), self.closed(seen), to)
            raise RefusedError(f"{to} takes no VMs now: {why}")
        if to:
            return {to: free[to]}
        return {name: left for name, left in free.items() if name not in self._resting(kind)}

    def _vm(self, seen: Observation, vjob: VJobRow, vm: VMRow) -> VM:
        """A VM with its demand on a node that takes it now: the requested CPUs, and its booked memory.

        A paused VM is taken as it is.
        """
        size_mib = booked_mib(self._settings, seen, vjob, vm)
        full = demand(self._settings, vjob.partition, vjob.geometry, vm, observed_mib=size_mib)
        return VM(vm.name, held(vjob, full, self._clock.now()))


def _why_shut(hosts: Mapping[str, HostCapacity], closed: Collection[str], node: str) -> str:
    """Why a node takes no VMs now; empty if it does."""
    if node not in hosts:
        return "it is no VM host"
    return hosts[node].why_not or ("its room was just given back" if node in closed else "")


def _no_room(what: str, vm: VM, to: str, free: dict[str, Resources]) -> str:
    left = "; ".join(f"{name} has {room}" for name, room in free.items()) or "no node takes VMs now"
    return f"no room for {what}{' on ' + to if to else ''}: a VM needs {vm.demand}, and free are: {left}"


def _by_number(hosts: Mapping[str, str]) -> list[str]:
    """The nodes of VMs in the order of the VMs' numbers, since names may change before the VMs are made."""
    return [hosts[name] for name in sorted(hosts, key=lambda name: int(name.rpartition("-")[2]))]


def _told(step: Step) -> str:
    """The reason with where its VMs go: of a vjob that runs later, somewhere else perhaps, only the reason is told."""
    verb = _VERBS.get(step.kind)
    if verb is None or not step.hosts:
        return step.reason
    return f"{verb} on {', '.join(sorted(set(step.hosts.values())))}: {step.reason}"
