"""Simulated hypervisor: the nodes, VMs and state files of a cluster in memory, for tests and for the simulator.

It keeps the contract of ``base.Platform`` on an injected clock, fails on command, and watches the invariants that
the engine has to keep: I1 (no VM runs twice, or from an outdated image) and I3 (memory is never overcommitted). A
breach raises InvariantBreachedError and stays in ``violations``, because an engine rightly survives the failure of
one action.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.platform.base import (
    Converge,
    DiskImage,
    HostInfo,
    Progress,
    Ready,
    VMInfo,
    VMPower,
    VMSpec,
    VMStatistics,
    at_once,
)
from rmsplugin.adapters.simulated.hypervisor.actions import Pending, SimulatedActions
from rmsplugin.adapters.simulated.hypervisor.faults import Point, SimulatedFaults
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles, SimulatedState
from rmsplugin.adapters.simulated.hypervisor.machines import SimulatedMachines, SimulatedVM
from rmsplugin.errors import (
    CorruptStateError,
    NotFoundError,
    OperationFailedError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH

MIB = 1 << 20

#: A migration takes so many times as long if its VM's CPUs have to be slowed down for it.
_CONVERGES_AFTER = 3.0

#: Method -> capabilities, of which it needs one; the other methods need none.
_NEEDS = {
    "migrate": ("migrate",),
    "save": ("suspend", "template"),
    "restore": ("suspend", "template"),
    "checkpoint": ("checkpoint",),
    "pause": ("pause", "checkpoint"),
    "set_memory": ("resize",),
    "set_cpus": ("bounds",),
    "template_key": ("template",),
}


class SimulatedHypervisor:
    """Implements ``base.Platform`` in memory."""

    def __init__(
        self,
        nodes: Mapping[str, tuple[int, int]],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        durations_s: Mapping[str, float] | None = None,
        files: SimulatedFiles | None = None,
        converge: Converge = "auto-converge",
        capabilities: Capabilities = EVERYTHING,
    ) -> None:
        """Make a cluster without VMs.

        Args:
            nodes: name -> (CPUs, memory in MiB).
            clock: the time, in seconds.
            sleep: called with seconds while an action lasts; no lock is held then.
            durations_s: the duration of each of the acting methods; 0 where not given. May change on the way.
            files: the nodes' state files, shared with SimulatedNodes.
            converge: the way to migrate VMs that write their memory too fast by ``set_writing``.
            capabilities: the platform's abilities; a request beyond them fails, and is a breach of its contract.
        """
        self.capabilities = capabilities
        self.machines = SimulatedMachines(nodes, clock)
        self.faults = SimulatedFaults()
        self.files = files or SimulatedFiles()
        self.converge: Converge = converge
        self.calls: list[tuple[str, ...]] = []
        self.serials: dict[str, int] = {}  # saves so far, by VM
        self._checkpoints: dict[str, int] = {}  # made so far, by VM
        self._writing: set[str] = set()
        self._unreachable: set[str] = set()
        self._heard: Callable[[str, str], None] = lambda node, name: None
        self._lock = self.machines.lock
        self.actions = SimulatedActions(self._lock, self.faults, sleep, {} if durations_s is None else durations_s)

    @property
    def violations(self) -> list[str]:
        """The breaches of invariants so far."""
        return self.machines.violations

    # Orders of tests to the world.

    def fail_next(self, method: str, error: Exception, *, vm: str | None = None) -> None:
        """Let the next call of ``method`` (for ``vm``, if given) fail with ``error`` in the way the contract says."""
        with self._lock:
            self.faults.failures.append((method, vm, error))

    def hook_next(self, method: str, point: Point, action: Callable[[], None], *, vm: str | None = None) -> None:
        """Call ``action`` once at ``point`` of the next ``method``; if it raises (a kill), all stays as it is."""
        with self._lock:
            self.faults.hooks.append((method, point, vm, action))

    def settle(self, vm: str, *, succeed: bool) -> None:
        """Let the hypervisor conclude the action on ``vm`` whose caller was killed half-way."""
        with self._lock:
            self.actions.settle(vm, succeed=succeed)

    def set_reachable(self, node: str, reachable: bool) -> None:
        """Cut the node's hypervisor off from us, or back on; its VMs run on."""
        with self._lock:
            (self._unreachable.discard if reachable else self._unreachable.add)(node)

    def kill_vm(self, vm: str) -> None:
        """Let the VM die, wherever it is; all actions on it fail."""
        with self._lock:
            self.actions.fail(vm)
            nodes = self.where(vm)
            for node in nodes:
                self.machines.remove(node, vm)
        for node in nodes:
            self._heard(node, vm)

    def crash_node(self, node: str) -> None:
        """Let the node lose power: all its VMs are gone and it does not answer; its files stay."""
        with self._lock:
            for vm in list(self.machines.vms[node]):
                self.actions.fail(vm)
            self.machines.vms[node].clear()
            self._unreachable.add(node)

    def set_demand(self, vm: str, cpus: float) -> None:
        """Let the VM, which may not exist yet, want so many CPUs from now on, wherever and whenever it runs.

        ``statistics`` shows how many it gets: its vCPUs at most, and a share if the VMs of a node want more CPUs
        than the node has. For the rest of the time its vCPUs wait.
        """
        self.machines.set_demand(vm, cpus)

    def set_working_set(self, vm: str, memory_mib: int) -> None:
        """Let the VM, which may not exist yet, need so much of its memory from now on; before that it needs all."""
        with self._lock:
            self.machines.memory.set_working_set(vm, memory_mib)

    def set_cache(self, vm: str, memory_mib: int) -> None:
        """Let the VM's guest cache so much beyond its need; before that it caches all that it is left."""
        with self._lock:
            self.machines.memory.set_cache(vm, memory_mib)

    def set_faults(self, vm: str, major_faults: int, swap_in_kib: int = 0) -> None:
        """Let the VM's guest have waited for so many pages, and have read so much of its swap, since it booted."""
        with self._lock:
            self.machines.memory.set_faults(vm, major_faults, swap_in_kib)

    def set_writing(self, vm: str, writing: bool) -> None:
        """Let the VM write its memory faster than a migration can send it, or no longer do so."""
        with self._lock:
            (self._writing.add if writing else self._writing.discard)(vm)

    def where(self, vm: str) -> list[str]:
        """The nodes where the VM exists in any form."""
        return self.machines.where(vm)

    # The Protocol.

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """See ``base.Platform``: only of VMs that die or are paused by somebody else."""
        self._heard = heard

    def template_key(self, node: str, spec: VMSpec) -> str:
        """See ``base.Platform``."""
        with self._asked("template_key", node, spec.name):
            image = "disks" if isinstance(spec.image, DiskImage) else spec.image
            hardware = (spec.cpus, spec.memory_mib, image)
            return hashlib.blake2b(repr(hardware).encode(), digest_size=16).hexdigest()

    def host_info(self, node: str) -> HostInfo:
        """See ``base.Platform``."""
        with self._asked("host_info", node):
            cpus, memory_mib = self.machines.capacity[node]
            return HostInfo(node, cpus, memory_mib, "simulated", "qemu", frozenset({"pc-q35-7.2"}))

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``base.Platform``."""
        with self._asked("list_vms", node):
            return {
                name: VMInfo(name, node, guest.power, guest.spec.uuid, guest.job_running)
                for name, guest in sorted(self.machines.vms[node].items())
            }

    def has_vm(self, node: str, name: str) -> bool:
        """See ``base.Platform``."""
        with self._asked("has_vm", node, name):
            return name in self.machines.vms[node]

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``base.Platform``."""
        with self._asked("statistics", node):
            self.machines.count(node)
            result = {}
            for name, guest in sorted(self.machines.vms[node].items()):
                result[name] = VMStatistics(
                    int(guest.cpu_time_ns),
                    int(guest.vcpu_delay_ns),
                    *self.machines.memory.statistics(guest.spec),
                    cpus=self.machines.cpus(guest.spec) if self.capabilities.bounds else None,
                    received_bytes=int(guest.received_bytes),
                    sent_bytes=int(guest.sent_bytes),
                )
            return result

    def used(self, node: str, name: str) -> Used | None:
        """See ``base.Platform``: only the CPU time, and the memory that it needs now; nothing of before a restore."""
        with self._asked("used", node, name):
            vm = self.machines.on(node, name)
            if self.capabilities.own_kernel:
                return None
            self.machines.count(node)
            memory_bytes = self.machines.memory.used_mib(vm.spec) * MIB
            return Used(cpu_us=int(vm.cpu_time_ns) // 1000, memory_bytes=memory_bytes, peak_bytes=memory_bytes)

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        with self._asked("boot", node, spec.name):
            if spec.name in self.machines.vms[node]:
                return
            self.machines.place(node, spec)
            self.machines.memory.boot(spec.name)
            self._bound(spec)
        succeed = partial(self.machines.become, node, spec.name, VMPower.RUNNING)
        self.actions.act("boot", spec.name, timeout_s, None, succeed, partial(self.machines.remove, node, spec.name))

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        with self._asked("stop", node, name):
            if name not in self.machines.vms[node]:
                return
            self.actions.fail(name)
        self.actions.act("stop", name, timeout_s, None, partial(self.machines.remove, node, name), lambda: None)

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """See ``base.Platform``."""
        with self._asked("save", node, name):
            vm = self.machines.on(node, name)
            vm.refuse_half()
            vm.refuse_busy()
            self.serials[name] = self.serials.get(name, 0) + 1
            state = SimulatedState(name, vm.spec.memory_mib * MIB, self.serials[name], node=node)
            fail = self._begin_file(node, path, state)

        def succeed() -> None:
            self.files.put(node, path, state)
            self.machines.remove(node, name)

        def fail_save() -> None:
            fail()
            self.serials[name] -= 1

        self.actions.act("save", name, timeout_s, progress, succeed, fail_save, total=state.size_bytes)

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``base.Platform``."""
        with self._asked("checkpoint", node, name):
            vm = self.machines.on(node, name)
            vm.refuse_half()
            vm.refuse_busy()
            if isinstance(vm.spec.image, DiskImage):
                raise OperationFailedError(f"{name} on {node} has disks: no checkpoint is made of such a VM")
            power = vm.power
            self._checkpoints[name] = self._checkpoints.get(name, 0) + 1
            serial, number = self.serials.get(name, 0), self._checkpoints[name]
            state = SimulatedState(name, vm.spec.memory_mib * MIB, serial, number, node=node)
            fail = self._begin_file(node, path, state)

        def succeed() -> None:
            self.files.put(node, path, state)
            self.machines.become(node, name, power)

        self.actions.act("checkpoint", name, timeout_s, progress, succeed, fail, total=state.size_bytes)

    def _begin_file(self, node: str, path: str, state: SimulatedState) -> Callable[[], None]:
        """Let the VM of a state stand still while it is written. Returns a function that undoes that."""
        self.files.put(node, path, replace(state, complete=False))
        before = self.machines.stand_still(node, state.vm)

        def undo() -> None:
            self.files.drop(node, path)
            self.machines.become(node, state.vm, before)

        return undo

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        with self._asked("restore", node, spec.name):
            if spec.name in self.machines.vms[node]:
                return
            state = self.files.get(node, path)
            if state is None:
                raise NotFoundError(f"no state file {path} on {node}")
            if state.vm != spec.name or not (state.complete and state.intact):
                raise CorruptStateError(f"{path} on {node} is no usable state of {spec.name}")
            if not self.capabilities.elsewhere and state.node not in ("", node):
                self._refuse(f"the state of {spec.name} is of {state.node}, and restored on {node}", "elsewhere")
            begins_anew = state.checkpoint or state.template
            if not begins_anew and state.serial != self.serials.get(spec.name, state.serial):
                self.machines.breach(f"I1: {spec.name} would be restored from an outdated image, {path} on {node}")
            self.machines.place(node, spec)
            self._bound(spec)

        def succeed() -> None:
            self.machines.become(node, spec.name, VMPower.PAUSED)
            if state.checkpoint:
                # Saves of it from before belong to a life that it has not had now.
                self.serials[spec.name] = self.serials.get(spec.name, 0) + 1

        self.actions.act("restore", spec.name, timeout_s, None, succeed, partial(self.machines.remove, node, spec.name))

    def pause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``base.Platform``."""
        self._let("pause", node, name, VMPower.PAUSED, timeout_s, ready)

    def unpause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``base.Platform``."""
        self._let("unpause", node, name, VMPower.RUNNING, timeout_s, ready)

    def _let(self, method: str, node: str, name: str, power: VMPower, timeout_s: float, ready: Ready) -> None:
        with self._asked(method, node, name):
            is_so = self.machines.on(node, name).power is power
        ready()
        if is_so:
            return
        with self._lock:
            self.machines.on(node, name).refuse_half()
            others = [other for other in self.where(name) if other != node]
            if power is VMPower.RUNNING and others:
                self.machines.breach(f"I1: {name} would run on {node} while it is on {', '.join(others)}")
        self.actions.act(method, name, timeout_s, None, partial(self.machines.become, node, name, power), lambda: None)

    def set_memory(self, node: str, name: str, mib: int, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        with self._asked("set_memory", node, name, str(mib)):
            vm = self._not_busy(node, name)
            if self.capabilities.bounds and self.machines.memory.used_mib(vm.spec) > mib:
                raise OperationFailedError(f"{name} uses more memory than {mib} MiB")
        self.actions.act(
            "set_memory", name, timeout_s, None, partial(self.machines.memory.set_balloon, name, mib), lambda: None
        )

    def set_cpus(self, node: str, name: str, cpus: int, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        with self._asked("set_cpus", node, name, str(cpus)):
            self._not_busy(node, name)
        self.actions.act("set_cpus", name, timeout_s, None, partial(self.machines.set_cpus, name, cpus), lambda: None)

    def _not_busy(self, node: str, name: str) -> SimulatedVM:
        """The VM on the node, no action on which is under way. Raises NotFoundError, TimedOutError."""
        vm = self.machines.on(node, name)
        if vm.job_running:
            raise TimedOutError(f"another action on {name} is under way")
        return vm

    def _bound(self, spec: VMSpec) -> None:
        """Give a VM that comes its size, where the platform bounds it."""
        if self.capabilities.bounds:
            self.machines.set_cpus(spec.name, spec.resized_cpus)
            self.machines.memory.set_balloon(spec.name, spec.resized_memory_mib or spec.memory_mib)

    def migrate(
        self,
        name: str,
        source: str,
        destination: str,
        *,
        timeout_s: float,
        progress: Progress | None = None,
        epoch: int = FIRST_EPOCH,
    ) -> None:
        """See ``base.Platform``."""
        with self._asked("migrate", source, name, destination):
            if destination in self._unreachable:
                raise UnavailableError(f"the hypervisor of {destination} does not answer")
            guest = self.machines.vms[source].get(name)
            if guest is None:
                if name in self.machines.vms[destination]:
                    return
                raise NotFoundError(f"no VM {name} on {source} nor on {destination}")
            guest.refuse_half()
            guest.refuse_busy()
            if name in self.machines.vms[destination]:
                raise OperationFailedError(f"{name} is on {destination} already, and on {source}")
            self.machines.place(destination, replace(guest.spec, epoch=epoch), moving_from=source)
            power_before = guest.power
            guest.job_running = True
            writing = name in self._writing

        def arrive(power: VMPower) -> None:
            self.machines.remove(source, name)
            self.machines.become(destination, name, power)

        succeed = partial(arrive, power_before)

        def fail() -> None:
            self.machines.remove(destination, name)
            self.machines.become(source, name, power_before)

        def break_off() -> None:
            self.machines.remove(destination, name)
            self.machines.become(source, name, VMPower.HALF)

        def go_over() -> None:
            with self._lock:
                if ("migrate", name) not in self.actions.pending:
                    return  # it has ended meanwhile
                self.actions.pending["migrate", name] = Pending(succeed, break_off)
                self.machines.count(source)
                self.machines.vms[source][name].power = VMPower.PAUSED
                self.machines.vms[destination][name].power = power_before
            self.faults.call_hook("migrate", Point.HANDED_OVER, name)

        lasts = {"auto-converge": _CONVERGES_AFTER, "post-copy": 1.0, "abort": math.inf}[self.converge]
        self.actions.act(
            "migrate",
            name,
            timeout_s,
            progress,
            succeed,
            fail,
            total=guest.spec.memory_mib * MIB,
            lasts=lasts if writing else 1.0,
            half_way=go_over if writing and self.converge == "post-copy" else None,
            # The caller lets it run there.
            alone=None if self.converge == "post-copy" else partial(arrive, VMPower.PAUSED),
        )

    def abort_job(self, node: str, name: str) -> None:
        """See ``base.Platform``."""
        with self._asked("abort_job", node, name):
            guest = self.machines.vms[node].get(name)
            handed_over = guest is not None and guest.power is VMPower.PAUSED and len(self.where(name)) > 1
            if guest is not None and guest.job_running and not handed_over:
                self.actions.abort(name)

    def close(self) -> None:
        """See ``base.Platform``."""

    @contextmanager
    def _asked(self, method: str, node: str, *words: str) -> Iterator[None]:
        """Take a request, and hold the lock while it is carried out; a hook is called before, without the lock."""
        with self._lock:
            self._enter(method, node, *words)
        self.faults.call_hook(method, Point.BEFORE, words[0] if words else None)
        with self._lock:
            yield

    def _refuse(self, what: str, *needs: str) -> NoReturn:
        words = " nor ".join(needs)
        self.machines.violations.append(f"{what} was asked of a platform that has no {words}")
        raise OperationFailedError(f"{what}: the platform has no {words}")

    def _enter(self, method: str, node: str, *words: str) -> None:
        self.calls.append((method, node, *words))
        if node in self._unreachable:
            raise UnavailableError(f"the hypervisor of {node} does not answer")
        needs = _NEEDS.get(method, ())
        if needs and not any(getattr(self.capabilities, name) for name in needs):
            self._refuse(method, *needs)
        if method in ("host_info", "list_vms", "has_vm", "statistics"):
            self.faults.raise_failure(method, words[0] if words else None)
