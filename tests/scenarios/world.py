"""A simulated cluster and the real engine on it, in virtual time, to be killed at any instant and restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fresh_ledger import laid_down
from patience import PATIENCE_S
from scenarios.comparing import ComparingSwitch
from scenarios.neighbours import Neighbours

from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob, RmsNode, RmsPartition
from rmsplugin.adapters.simulated.guests import SimulatedGuests
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles
from rmsplugin.adapters.simulated.hypervisor.hypervisor import SimulatedHypervisor
from rmsplugin.adapters.simulated.nodes.agents import SimulatedNodes
from rmsplugin.adapters.simulated.power import SimulatedPower
from rmsplugin.adapters.simulated.rms.slurm import SimulatedRms
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.steady_clock import SteadyClock
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, VMRow
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.engine.territory.territory import Territory
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.vjob import Geometry, IllegalTransitionError, VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.answering import answer
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import Qcow2Image

NODES = ("n1", "n2", "n3")
FRONTS = ("front1", "front2")
CPUS, MEMORY_MIB = 2, 1024
GRACE_S = 60
#: How long a hypervisor goes on with something after the connection broke.
BROKEN_OFF_S = 3.0


def make_settings(**hosts: Any) -> Settings:
    """Settings of the world; ``hosts``: how its VM hosts are borrowed."""
    return Settings.model_validate({**_SETTINGS, "hosts": {"vmhosts": hosts}})


_SETTINGS: dict[str, Any] = {
    "engine": {"user": "root"},
    "slurm": {"partitions": ["vjob"]},
    "partition": {"vjob": {"hosts": "vmhosts"}},
    "nodes": {"store": "/store"},
    "network": {"pool": "10.0.0.10-10.0.0.200", "prefix_length": 24},
    "image": {"default": {"kind": "kernel", "kernel": "/vmlinuz", "initrd": "/initrd"}},
}


class KilledError(BaseException):
    """The engine was killed: nothing of it happens any more, and nothing catches it."""


#: Calls that change nothing. All of the RMS change something: it moves on by the clock whenever it is asked.
_LOOKS = frozenset(
    {"host_info", "list_vms", "has_vm", "statistics", "stat", "list_files", "space", "drives", "reading"}
)


def spread(instants: int, most: int) -> list[int]:
    """Numbers of instants, from 1 on, evenly spread: as many as there are, or ``most``."""
    return sorted({1 + number * instants // most for number in range(most)})


class Life:
    """One life of the engine: counts its instants, and ends it at a given one.

    Instants are told apart by what outlives the engine: the world, the ledger and the time. To die before or after a
    look at something is the same death.
    """

    def __init__(self, kill_at: int | None) -> None:
        self.instants = 0
        self.dead = False
        self._kill_at = kill_at
        self._changed = True
        self._lock = threading.Lock()

    def changed(self, really: bool = True) -> None:
        """Something happened to the world, to the ledger or to the time, or begins to."""
        self._changed = self._changed or really

    def step(self) -> None:
        """Called before and after whatever the engine asks of the world, and before it writes."""
        with self._lock:
            if self._changed:
                self._changed = False
                self.instants += 1
                if self.instants == self._kill_at:
                    self.dead = True
            if self.dead:
                raise KilledError


class Mortal:
    """An adapter as one life of the engine sees it: it can die before each call, and after it."""

    def __init__(self, kind: str, adapter: Any, life: Life, neighbours: Neighbours) -> None:
        self._kind = kind
        self._adapter = adapter
        self._life = life
        self._neighbours = neighbours

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)
        if not callable(method):
            return method

        def call(*arguments: Any, **options: Any) -> Any:
            changes = name not in _LOOKS
            self._life.step()
            self._life.changed(changes)
            try:
                value = self._neighbours.call(self._kind, name, method, arguments, options)
            finally:
                self._life.changed(changes)
            self._life.step()
            return value

        return call


_P = VMPhase
_AWAKE = frozenset({_P.LIVE, _P.MIGRATING})
#: The phases in which VMs of a vjob may be in each of its states.
PHASES = {
    VJobState.WAITING: frozenset[VMPhase](),
    VJobState.STARTING: frozenset({_P.PLACED, _P.BOOTING}),
    VJobState.RUNNING: _AWAKE,
    VJobState.PAUSING: _AWAKE,
    VJobState.PAUSED: _AWAKE,
    VJobState.UNPAUSING: _AWAKE,
    VJobState.SUSPENDING: frozenset({_P.LIVE, _P.SEALING, _P.SEALED}),
    VJobState.SLEEPING: frozenset({_P.SAVED, _P.MOVING}),
    VJobState.RESUMING: frozenset({_P.RESTORING, _P.LIVE}),
    VJobState.STOPPING: frozenset(VMPhase),
    VJobState.TERMINATED: frozenset[VMPhase](),
}


class MortalLedger(Ledger):
    """The ledger as one life of the engine sees it: a dead engine writes nothing."""

    life: Life | None = None
    checks_phases = True  # not where a test puts vjobs into states by hand

    def __init__(self, *words: Any, **options: Any) -> None:
        self._entered: set[int] = set()  # vjobs of which VMs entered a phase in this transaction
        super().__init__(*words, **options)

    @contextmanager
    def _write(self):  # type: ignore[no-untyped-def]
        if self.life is not None:
            self.life.step()
        with super()._write() as database:
            yield database
            if self._depth == 1 and self.checks_phases:
                self._look_at_phases()
        if self.life is not None:
            self.life.changed()

    def enter_phase(self, name: str, target: VMPhase, **changes: Any) -> VMRow:
        """See Ledger."""
        with self._write():
            row = super().enter_phase(name, target, **changes)
            self._entered.add(row.job_id)
            return row

    def _look_at_phases(self) -> None:
        """In whatever is committed, and so at any kill, the phases of VMs fit the state of their vjob."""
        entered, self._entered = self._entered, set()
        changed = entered | {number for what, number in self._changed if what == "vjob"}
        for job_id in self.vjobs_among(changed):  # others were given up
            state, phases = self.vjob(job_id).state, {vm.phase for vm in self.vms(job_id)}
            assert phases <= PHASES[state], f"vjob {job_id} is {state}, and VMs of it are {phases - PHASES[state]}"


class AnsweringGuests(SimulatedGuests):
    """Guests of whatever VM was booted."""

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """See Guests."""
        if address not in self.guests or self.guests[address].host_key != host_key:
            self.add(address, host_key)
        super().wait_ready(address, host_key, timeout_s=timeout_s, check=check)


class World:
    """The cluster; it outlives the engine."""

    def __init__(
        self,
        directory: Path,
        *,
        grace_s: int = GRACE_S,
        shared: bool = False,
        workers: int = 8,
        urgent: bool = False,
        nodes: Mapping[str, tuple[int, int]] | None = None,
        memory: str = "requested",
        templates: bool = False,
        disks: bool = False,
        policy: str = "",
        network_filter: str | None = None,
        capabilities: Capabilities = EVERYTHING,
        **hosts: Any,
    ) -> None:
        """Make it; ``hosts``: settings of its hosts partition, whose GraceTime is ``grace_s``.

        With ``shared``, states are saved on storage that all nodes mount. With ``urgent``, there is a second vjob
        partition of that name, of a higher tier. ``nodes``: CPUs and MiB by name, if not those of ``NODES``.
        ``memory``: what of it VMs of the partition `vjob` take. ``templates``: whether the image's guests wait.
        ``disks``: whether its VMs have disks. ``policy``: by which the engine decides, if not by the default.
        ``network_filter``: who filters what VMs send, if not the default. ``capabilities``: what the platform can do.
        """
        self.sizes = nodes or dict.fromkeys(NODES, (CPUS, MEMORY_MIB))
        self.settings = make_settings(**hosts)
        if policy:
            decision = self.settings.decision.model_copy(update={"policy": policy})
            self.settings = self.settings.model_copy(update={"decision": decision})
        if network_filter is not None:
            network = self.settings.network.model_copy(update={"filter": network_filter})
            self.settings = self.settings.model_copy(update={"network": network})
        if urgent:
            slurm = self.settings.slurm.model_copy(update={"partitions": ("vjob", "urgent")})
            partition = {**self.settings.partition, "urgent": self.settings.partition["vjob"]}
            self.settings = self.settings.model_copy(update={"slurm": slurm, "partition": partition})
        if memory != "requested":
            vjob = self.settings.partition["vjob"].model_copy(update={"memory": memory})
            partitions = {**self.settings.partition, "vjob": vjob}
            self.settings = self.settings.model_copy(update={"partition": partitions})
        if shared:
            of_nodes = self.settings.nodes.model_copy(update={"shared_store": Path("/shared")})
            self.settings = self.settings.model_copy(update={"nodes": of_nodes})
        if disks:
            image = Qcow2Image(kind="qcow2", base=Path("/images/debian.qcow2"), waits=templates)
            self.settings = self.settings.model_copy(update={"image": {"default": image}})
        elif templates:
            image = self.settings.image["default"].model_copy(update={"waits": True})
            self.settings = self.settings.model_copy(update={"image": {"default": image}})
        self.workers = workers
        self.time = 1_000_000.0
        self.jumped_s = 0.0  # by how much the controller's clock was set forward
        self._time_lock = threading.Lock()
        self._ledger_path = directory / "ledger.sqlite"
        self.files = SimulatedFiles()
        self.hypervisor = SimulatedHypervisor(
            self.sizes,
            clock=lambda: self.time,
            sleep=self.pass_time,
            files=self.files,
            capabilities=capabilities,
        )
        self.rms = SimulatedRms(
            self.wall,
            [
                *(RmsNode(name, *size, True, False, "IDLE") for name, size in self.sizes.items()),
                *(RmsNode(name, 1024, 1 << 22, True, False, "IDLE") for name in FRONTS),
            ],
            [
                RmsPartition("plain", True, tuple(self.sizes), "OFF", 10, 0),
                RmsPartition("vjob", True, FRONTS, "REQUEUE", 1, 0),
                *([RmsPartition("urgent", True, FRONTS, "REQUEUE", 5, 0)] if urgent else []),
                RmsPartition("vmhosts", True, tuple(self.sizes), "CANCEL", 1, grace_s, exclusive=True, hidden=True),
            ],
            vjob_partitions=self.settings.slurm.partitions,
            configuring_s=0.0,
            user="root",
            on_end=self._epilog,
        )
        self.rms.preempt_type = "preempt/partition_prio"
        self.nodes = SimulatedNodes(self.files, machines=self.hypervisor.machines)
        self.nodes.end_script = self.rms.end_script
        self.guests = AnsweringGuests()
        self.power = SimulatedPower(self.sizes, clock=self.wall, when_off=self._lost_power, when_booted=self._booted)
        self.neighbours = Neighbours(self.hypervisor, lambda: self.time)
        self.settled = 0
        self.wrappers_answer = True
        self._wakes = threading.Event()
        self._dead_nodes: set[str] = set()
        self.ended_by_epilog: list[str] = []
        self.life = Life(None)
        self.start_engine()

    def _epilog(self, job: RmsJob) -> None:
        """What the epilog of a room does on its node: no VM is left there. On a dead node nothing happens."""
        if job.name == ROOM_NAME:
            for node in set(job.nodes) - self._dead_nodes if job.state is not JobState.PENDING else ():
                for name in self.hypervisor.list_vms(node):
                    self.ended_by_epilog.append(name)
                    self.hypervisor.kill_vm(name)

    def wall(self) -> float:
        """What the controller's clock says, which may be set; ``time`` only passes."""
        return self.time + self.jumped_s

    def pass_time(self, seconds: float) -> None:
        """Virtual time goes on."""
        with self._time_lock:
            self.time += seconds
        self.life.changed()
        self.power.settle()
        self._settle_broken_off()

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self.pass_time(seconds)
        return event.is_set()

    def start_engine(self, kill_at: int | None = None) -> None:
        """A new engine on the same ledger and the same world; the former one, if it still lives, is dead."""
        self.life.dead = True
        if hasattr(self, "context"):
            # A killed process has no threads and holds no transaction open.
            self.close()
            self.settle()
        self.life = life = Life(None)
        steady = SteadyClock(wall=self.wall, monotonic=lambda: self.time)
        ledger = MortalLedger(laid_down(self._ledger_path), clock=steady.now)
        steady.not_before(ledger.newest_time())
        self.context = Context(
            settings=self.settings,
            ledger=ledger,
            rms=Mortal("rms", self.rms, life, self.neighbours),
            hypervisor=self.platform(life),
            nodes=Mortal("agent", self.nodes, life, self.neighbours),
            guests=Mortal("guests", self.guests, life, self.neighbours),
            root_public_key="ssh-ed25519 AAAA",
            power=Mortal("power", self.power, life, self.neighbours),
            clock=Clock(steady.now, self.pass_time, self._wait, steady.ahead_s, steady.problem),
            territory=self.make_territory(),
        )
        self.executor = self.make_executor()
        self.memory_care = MemoryCare(self.context)
        self.placing = Placing(self.context, self.executor, self.memory_care)
        self.switch = ComparingSwitch(self.context, self.executor, self.placing, self.memory_care)
        self.cycle = Cycle(self.context, self.memory_care, self.executor, self.placing, self.switch, self)
        self.cycle.powering.orders.start = self.cycle.sensing.start = lambda act, name: self.alive(act)
        ledger.life = life
        life._kill_at = kill_at
        self.alive(self.executor.adopt)

    def platform(self, life: Life) -> Any:
        """The platform as this life of the engine sees it."""
        return Mortal("hypervisor", self.hypervisor, life, self.neighbours)

    def make_territory(self) -> Territory | None:
        """What this life of the engine has as its own; None: all."""
        return None

    def make_executor(self) -> Executor:
        """What carries out the operations of this life of the engine."""
        return Executor(self.context, workers=self.workers, on_end=self._operation_ended)

    def _operation_ended(self) -> None:
        self.alive(self.switch.advance)
        self._wakes.set()

    def propose(self, configuration: Configuration, parameters: ProposalParameters) -> Proposed:
        """The proposer, without a process of its own."""
        return Proposed(answer(configuration, parameters))

    def close(self) -> None:
        """End the engine and give back what it holds."""
        self.life.dead = True
        for pool in self.executor.pools:
            pool.shutdown(wait=True)
        self.context.ledger.close()

    def alive(self, act: Callable[[], object]) -> None:
        """Do something as the engine; if that kills it, it is just dead."""
        try:
            act()
        except KilledError:
            self.life.dead = True

    def tick(self, seconds: float = 1.0) -> None:
        """One cycle, and all that it began; a killed engine is started again, to live on."""
        if self.life.dead:
            self.start_engine()
        self._live_on(seconds)

    def until_killed(self, ticks: int = 20, seconds: float = 1.0) -> None:
        """Tick until the engine is dead, which is not started again: what it was doing is as it was then."""
        for _ in range(ticks):
            if self.life.dead:
                return
            self._live_on(seconds)
        assert self.life.dead, f"nothing has killed it: {self.cycle.report}"

    def _live_on(self, seconds: float) -> None:
        self.alive(self.cycle.run)
        deadline = time.monotonic() + PATIENCE_S
        while not self.life.dead:
            while self.executor.busy() and not self.life.dead:
                assert time.monotonic() < deadline, "an operation hangs"
                time.sleep(0.0005)
            # The thread of the operation does so, too, in a moment.
            self.alive(self.switch.advance)
            if not self.executor.busy():
                break
        self.pass_time(seconds)
        self._give_signs_of_life()

    def _give_signs_of_life(self) -> None:
        """The wrapper of a running job gives its signs of life, whoever listens, unless it is stopped."""
        for vjob in self.context.ledger.vjobs():
            speaks = self.wrappers_answer and not self.life.dead and vjob.state is VJobState.RUNNING
            if speaks and not self._is_stopped(vjob.job_id):
                self.context.signs.heard(vjob.job_id, self.context.clock.now())

    def _is_stopped(self, job: int) -> bool:
        try:
            return self.rms.is_stopped(job)
        except NotFoundError:
            return False

    def cycle_beside(self, seconds: float = 1.0) -> None:
        """One cycle beside the operations under way, as the daemon runs it: nothing is waited for."""
        self.alive(self.cycle.run)
        self.pass_time(seconds)
        self._give_signs_of_life()

    def as_daemon(self, enough: Callable[[], bool]) -> None:
        """Run cycles beside operations until ``enough``, one whenever an operation ends, and one now and then."""
        deadline = time.monotonic() + PATIENCE_S
        while not enough():
            assert time.monotonic() < deadline, f"never: {self.cycle.report}"
            self._wakes.wait(0.005)
            self._wakes.clear()
            self.cycle_beside()

    def kill_node(self, name: str, *, slurm_notices: bool = True) -> None:
        """The node loses power: its VMs are gone, nothing there answers, and no epilog runs."""
        self._dead_nodes.add(name)
        self.hypervisor.crash_node(name)
        self.nodes.set_reachable(name, False)
        if slurm_notices:
            self.rms.lose_node(name)

    def revive_node(self, name: str) -> None:
        """The node is up again, with its files and without VMs."""
        self._dead_nodes.discard(name)
        self.hypervisor.set_reachable(name, True)
        self.nodes.set_reachable(name, True)
        self.rms.set_node(name, up=True, state="IDLE")

    def _lost_power(self, name: str) -> None:
        """A node that was switched off: nothing runs there, and nothing there answers."""
        self.hypervisor.crash_node(name)
        self.nodes.set_reachable(name, False)

    def _booted(self, name: str, boot_time: float) -> None:
        """A node that has booted: its daemons answer, and slurmd says when that was."""
        self.hypervisor.set_reachable(name, True)
        self.nodes.set_reachable(name, True)
        self.rms.register(name, boot_time)

    def _settle_broken_off(self) -> None:
        """What a hypervisor went on with after the connection broke ends after a while."""
        for vm, since in list(self.neighbours.broken_off.items()):
            if self.time - since > BROKEN_OFF_S and self.neighbours.broken_off.pop(vm, None) is not None:
                self.settle(vm)

    def settle(self, *vms: str) -> None:
        """What nobody waits for any more in the hypervisor (for these VMs, or all) ends without the engine."""
        for vm in [vm for _, vm in list(self.hypervisor.actions.pending) if not vms or vm in vms]:
            self.settled += 1
            self.hypervisor.settle(vm, succeed=self.settled % 2 == 0)

    def submit(
        self,
        vms: int = 2,
        cpus: int = 1,
        memory_mib: int = 256,
        constraints: dict[str, str] | None = None,
        computing: bool = True,
        small: tuple[int, int] = (0, 0),
        wishes: Collection[str] = (),
        switches: int = 0,
        **options: Any,
    ) -> int:
        """A wrapped job, as lua/rmsplugin.lua leaves it; its VMs want all their CPUs if it is ``computing``.

        ``small``: CPUs and MiB of all VMs but the first one, where they have one task less. ``wishes``,
        ``switches``: see Geometry.
        """
        said = Constraints.parse(**(constraints or {}))
        ntasks = vms + 1 if any(small) else 1
        geometry = Geometry(vms, cpus, memory_mib, ntasks, 1, "default", said, *small, frozenset(wishes), switches)
        script = f"#!/usr/bin/rmsplugin-job {geometry}\n#!/bin/sh\ntrue\n"
        size = {"cpus": geometry.total_cpus, "memory_mib": geometry.total_memory_mib}
        job = self.rms.submit(**{"script": script, "user": "nobody", "uid": 65534, **size, **options})
        for index in range(vms):
            self.hypervisor.set_demand(vm_name(job, index), geometry.cpus_of(index) if computing else 0.0)
        return job

    def running(self, **options: Any) -> int:
        """A vjob that runs, whose script has started; options as of ``submit``, with one VM where they say nothing."""
        job = self.submit(**{"vms": 1, **options})
        self.until(job, VJobState.RUNNING)
        self.alive(lambda: self.context.ledger.update_vjob(job, script_started=True))
        return job

    def sleeping(self, **options: Any) -> int:
        """A vjob that ran and was suspended; options as of ``running``."""
        job = self.running(**options)
        self.ask(job, OperationKind.SUSPEND)
        self.until(job, VJobState.SLEEPING)
        return job

    def state(self, job: int) -> VJobState:
        """State of the vjob in the ledger."""
        return self.context.ledger.vjob(job).state

    def states(self, *jobs: int) -> list[VJobState]:
        """States of these vjobs in the ledger."""
        return [self.state(job) for job in jobs]

    def host(self, job: int) -> str:
        """The node of the vjob's first VM, by the ledger."""
        return self.context.ledger.vms(job)[0].host

    def events(self, kind: str = "") -> list[str]:
        """What the ledger's events say, oldest first: those of a kind, or all."""
        return [event.message for event in self.context.ledger.events(limit=100_000) if kind in ("", event.kind)]

    def capacities(self) -> Capacities:
        """What the hosts can give, as the engine counts."""
        context = self.context
        return Capacities(context.settings, context.ledger, context.clock, context.demanded_cpus)

    def requests(self) -> Requests:
        """What users and operators ask the service for."""
        return Requests(self.context, self.executor, self.placing, self.cycle, lambda: None)

    def until(self, job: int, *states: VJobState, ticks: int = 60) -> None:
        """Tick until the vjob is in one of the states with nothing under way."""
        for _ in range(ticks):
            self.tick()
            if self.life.dead:
                continue
            known = {vjob.job_id for vjob in self.context.ledger.vjobs(ended=True)}
            if job in known and self.state(job) in states and job not in self.executor.busy():
                return
        raise AssertionError(f"vjob {job} is {self.state(job)}, not {states}: {self.cycle.report}")

    def ask(self, job: int, kind: OperationKind, to: str = "") -> None:
        """As an operator: suspend, resume, migrate, or what a decision would do; what is refused is refused."""
        seen, vjob = self.cycle.seen, self.context.ledger.vjob(job)
        assert seen is not None

        def begin() -> None:
            try:
                if kind is OperationKind.SUSPEND:
                    self.placing.suspend(vjob, "asked", "root", resumes=False)
                elif kind is OperationKind.RESUME:
                    self.placing.resume(seen, vjob, to, "asked", "root")
                elif kind is OperationKind.PAUSE:
                    self.executor.begin(job, kind, "asked", resumes=True)
                elif kind is OperationKind.UNPAUSE:
                    self.placing.unpause(seen, vjob, "asked", "root")
                else:
                    self.placing.migrate(seen, vjob, "", to, "asked", "root")
            except (RefusedError, IllegalTransitionError):
                return

        self.alive(begin)

    def leftovers(self) -> list[str]:
        """What there is of any VM: domains, state files, configuration files."""
        found = [f"VM {vm}" for node in self.sizes for vm in self.hypervisor.list_vms(node)]
        found += [path for node in self.sizes for path in self.files.paths(node)]
        return found + [f"config {vm}" for node in self.sizes for vm in self.nodes.configs(node)]
