"""Simulated hypervisor: the nodes, VMs and state files of a cluster in memory, for tests and for the simulator.

It keeps the contract of ``base.Hypervisor`` on an injected clock, fails on command, and watches the invariants that
the engine has to keep: I1 (no VM runs twice, or from an outdated image) and I3 (memory is never overcommitted). A
breach raises InvariantBreachedError and stays in ``violations``, because an engine rightly survives the failure of
one action.
"""

from __future__ import annotations

import enum
import hashlib
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rmsplugin.adapters.hypervisor.base import (
    Converge,
    DiskImage,
    HostInfo,
    Progress,
    VMInfo,
    VMPower,
    VMSpec,
    VMStatistics,
)
from rmsplugin.errors import (
    CorruptStateError,
    NoSpaceError,
    NotFoundError,
    OperationFailedError,
    TimedOutError,
    UnavailableError,
)

MIB = 1 << 20

#: How many times as long the migration of a VM takes whose CPUs have to be slowed down for it.
_CONVERGES_AFTER = 3.0


class InvariantBreachedError(AssertionError):
    """The engine asked for something that must never happen."""


class Point(enum.StrEnum):
    """Where in an action a hook is called."""

    BEFORE = "before"  # nothing has happened yet
    DURING = "during"  # half of it is done; if the hook raises, it stays so until ``settle``
    POSTCOPY = "post-copy"  # a migration has gone over to post-copy
    AFTER = "after"  # all has happened, the caller has not been told


@dataclass(frozen=True, slots=True)
class SimulatedState:
    """The content of one state file."""

    vm: str
    size_bytes: int
    serial: int  # the how manieth save of this VM; of a checkpoint, the last one before it
    checkpoint: int = 0  # the how manieth checkpoint of this VM; 0: a save
    complete: bool = True
    intact: bool = True

    @property
    def blake2b(self) -> str:
        """Stands for the digest of the content: another content, another digest."""
        return hashlib.blake2b(repr(self).encode()).hexdigest()


class SimulatedFiles:
    """State files of all nodes; whatever lies below ``shared_prefix`` is one and the same on every node."""

    def __init__(self, *, shared_prefix: str = "/shared/", capacity_bytes: int = 1 << 50) -> None:
        self._shared_prefix = shared_prefix
        self._capacity_bytes = capacity_bytes
        self._files: dict[tuple[str, str], SimulatedState] = {}
        self._markers: dict[tuple[str, str], str] = {}  # by the key of the store's directory
        self._unmounted: set[str] = set()
        self._lock = threading.RLock()

    def _key(self, node: str, path: str) -> tuple[str, str]:
        shared = path.startswith(self._shared_prefix) and node not in self._unmounted
        return ("", path) if shared else (node, path)

    def mount(self, node: str, mounted: bool) -> None:
        """Mount the shared storage on the node, or unmount it: then the node sees what is below the mount point."""
        (self._unmounted.discard if mounted else self._unmounted.add)(node)

    def marker(self, node: str, store: str) -> str | None:
        """The marker of the store; None if it has none."""
        return self._markers.get(self._key(node, f"{store}/"))

    def mark(self, node: str, store: str, marker: str) -> str:
        """Give the store a marker, unless it has one. Returns the marker that it has then."""
        return self._markers.setdefault(self._key(node, f"{store}/"), marker)

    def wipe(self, node: str, store: str) -> None:
        """The store is a new, empty one: files and marker are gone."""
        with self._lock:
            owner, directory = self._key(node, f"{store}/")
            self._markers.pop((owner, directory), None)
            for key in [key for key in self._files if key[0] == owner and key[1].startswith(directory)]:
                del self._files[key]

    def get(self, node: str, path: str) -> SimulatedState | None:
        """The file's content; None if there is none."""
        with self._lock:
            return self._files.get(self._key(node, path))

    def put(self, node: str, path: str, state: SimulatedState) -> None:
        """Write a file, over an older one. Raises NoSpaceError, and then leaves what was there."""
        with self._lock:
            if state.size_bytes > self.free_bytes(node, path):
                raise NoSpaceError(f"no space on {node} for {path}")
            self._files[self._key(node, path)] = state

    def link(self, node: str, path: str, name: str) -> None:
        """Give a file a second name, which takes no room."""
        with self._lock:
            self._files[self._key(node, name)] = self._files[self._key(node, path)]

    def drop(self, node: str, path: str) -> None:
        """Remove a file if it is there."""
        with self._lock:
            self._files.pop(self._key(node, path), None)

    def damage(self, node: str, path: str) -> None:
        """Change a file's content behind everybody's back."""
        with self._lock:
            self._files[self._key(node, path)] = replace(self._files[self._key(node, path)], intact=False)

    def paths(self, node: str) -> list[str]:
        """All files that the node sees."""
        with self._lock:
            owners = (node,) if node in self._unmounted else ("", node)
            return sorted(path for owner, path in self._files if owner in owners)

    def free_bytes(self, node: str, path: str) -> int:
        """Room on the store that holds ``path``; a file that is there already counts as room for its successor."""
        with self._lock:
            owner, path = self._key(node, path)
            # A file of several names is one object.
            others = {id(state): state for (o, p), state in self._files.items() if o == owner and p != path}
            return self._capacity_bytes - sum(state.size_bytes for state in others.values())

    def set_capacity(self, capacity_bytes: int) -> None:
        """Resize every store."""
        with self._lock:
            self._capacity_bytes = capacity_bytes


@dataclass(slots=True)
class _Guest:
    spec: VMSpec
    power: VMPower
    job_running: bool = False
    cpu_time_ns: float = 0.0
    vcpu_delay_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """An action whose caller was killed half-way."""

    succeed: Callable[[], None]
    fail: Callable[[], None]


class SimulatedHypervisor:
    """Implements ``base.Hypervisor`` in memory."""

    def __init__(
        self,
        nodes: Mapping[str, tuple[int, int]],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        durations_s: Mapping[str, float] | None = None,
        files: SimulatedFiles | None = None,
        converge: Converge = "auto-converge",
    ) -> None:
        """Make a cluster without VMs.

        Args:
            nodes: name -> (CPUs, memory in MiB).
            clock: the time, in seconds.
            sleep: called with seconds while an action lasts; no lock is held then.
            durations_s: how long each of the acting methods takes; 0 where not given. May change on the way.
            files: the nodes' state files, shared with SimulatedNodes.
            converge: what is done for VMs that ``set_writing`` says write their memory too fast for a migration.
        """
        self._capacity = dict(nodes)
        self._clock = clock
        self._sleep = sleep
        self._durations_s = durations_s if durations_s is not None else {}
        self.files = files or SimulatedFiles()
        self.converge: Converge = converge
        self.violations: list[str] = []
        self.calls: list[tuple[str, ...]] = []
        self._guests: dict[str, dict[str, _Guest]] = {node: {} for node in nodes}
        self._counted_at = dict.fromkeys(nodes, clock())
        self._demands: dict[str, float] = {}  # CPUs, by VM
        self._writing: set[str] = set()
        self._serials: dict[str, int] = {}
        self._checkpoints: dict[str, int] = {}  # made so far, by VM
        self._unreachable: set[str] = set()
        self._failures: list[tuple[str, str | None, Exception]] = []
        self._hooks: list[tuple[str, Point, str | None, Callable[[], None]]] = []
        self._aborted: set[str] = set()
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._lock = threading.RLock()

    # What tests do to the world.

    def fail_next(self, method: str, error: Exception, *, vm: str | None = None) -> None:
        """Let the next call of ``method`` (for ``vm``, if given) fail with ``error`` in the way the contract says."""
        with self._lock:
            self._failures.append((method, vm, error))

    def hook_next(self, method: str, point: Point, action: Callable[[], None], *, vm: str | None = None) -> None:
        """Call ``action`` once at ``point`` of the next ``method``; what it raises (a kill) leaves all as it is."""
        with self._lock:
            self._hooks.append((method, point, vm, action))

    def settle(self, vm: str, *, succeed: bool) -> None:
        """Let the hypervisor conclude the action on ``vm`` whose caller was killed half-way."""
        with self._lock:
            pending = self._pending.pop(next(key for key in self._pending if key[1] == vm))
            (pending.succeed if succeed else pending.fail)()

    def set_reachable(self, node: str, reachable: bool) -> None:
        """Cut the node's hypervisor off from us, or back on; its VMs run on."""
        with self._lock:
            (self._unreachable.discard if reachable else self._unreachable.add)(node)

    def kill_vm(self, vm: str) -> None:
        """The VM dies, wherever it is, and what is being done to it fails."""
        with self._lock:
            self._fail_pending(vm)
            for node in self._guests:
                self._remove(node, vm)

    def crash_node(self, node: str) -> None:
        """The node loses power: all its VMs are gone and nobody answers; its files stay."""
        with self._lock:
            for vm in list(self._guests[node]):
                self._fail_pending(vm)
            self._guests[node].clear()
            self._unreachable.add(node)

    def set_demand(self, vm: str, cpus: float) -> None:
        """Let the VM, which may not exist yet, want so many CPUs from now on, wherever and whenever it runs.

        ``statistics`` shows how many it gets: its vCPUs at most, and a share where the VMs of a node want more CPUs
        than the node has. For the rest of the time its vCPUs wait.
        """
        with self._lock:
            for node, guests in self._guests.items():
                if vm in guests:
                    self._count(node)
            self._demands[vm] = cpus

    def set_writing(self, vm: str, writing: bool) -> None:
        """Let the VM write its memory faster than a migration can send it, or not any more."""
        with self._lock:
            (self._writing.add if writing else self._writing.discard)(vm)

    def where(self, vm: str) -> list[str]:
        """The nodes where the VM exists in any form."""
        with self._lock:
            return [node for node, guests in self._guests.items() if vm in guests]

    # The Protocol.

    def host_info(self, node: str) -> HostInfo:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("host_info", node)
            cpus, memory_mib = self._capacity[node]
            return HostInfo(node, cpus, memory_mib, "simulated", "qemu", frozenset({"pc-q35-7.2"}))

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("list_vms", node)
            return {
                name: VMInfo(name, node, guest.power, guest.spec.uuid, guest.job_running)
                for name, guest in sorted(self._guests[node].items())
            }

    def has_vm(self, node: str, name: str) -> bool:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("has_vm", node, name)
            return name in self._guests[node]

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("statistics", node)
            self._count(node)
            result = {}
            for name, guest in sorted(self._guests[node].items()):
                memory_kib = guest.spec.memory_mib * 1024
                result[name] = VMStatistics(int(guest.cpu_time_ns), int(guest.vcpu_delay_ns), memory_kib, memory_kib)
            return result

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("boot", node, spec.name)
            if spec.name in self._guests[node]:
                return
            self._place(node, spec)
        succeed = partial(self._become, node, spec.name, VMPower.RUNNING)
        self._act("boot", spec.name, timeout_s, None, succeed, partial(self._remove, node, spec.name))

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("stop", node, name)
            if name not in self._guests[node]:
                return
            self._fail_pending(name)
        self._act("stop", name, timeout_s, None, partial(self._remove, node, name), lambda: None)

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("save", node, name)
            guest = self._guests[node].get(name)
            if guest is None:
                raise NotFoundError(f"no VM {name} on {node}")
            self._refuse_half(guest)
            self._refuse_busy(guest)
            self._serials[name] = self._serials.get(name, 0) + 1
            state = SimulatedState(name, guest.spec.memory_mib * MIB, self._serials[name])
            self.files.put(node, path, replace(state, complete=False))
            self._count(node)
            power_before = guest.power
            guest.power, guest.job_running = VMPower.PAUSED, True

        def succeed() -> None:
            self.files.put(node, path, state)
            self._remove(node, name)

        def fail() -> None:
            self.files.drop(node, path)
            self._become(node, name, power_before)
            self._serials[name] -= 1

        self._act("save", name, timeout_s, progress, succeed, fail, total=state.size_bytes)

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("checkpoint", node, name)
            guest = self._guests[node].get(name)
            if guest is None:
                raise NotFoundError(f"no VM {name} on {node}")
            self._refuse_half(guest)
            self._refuse_busy(guest)
            if isinstance(guest.spec.image, DiskImage):
                raise OperationFailedError(f"{name} on {node} has disks: no checkpoint is made of such a VM")
            self._checkpoints[name] = self._checkpoints.get(name, 0) + 1
            state = SimulatedState(
                name, guest.spec.memory_mib * MIB, self._serials.get(name, 0), self._checkpoints[name]
            )
            self.files.put(node, path, replace(state, complete=False))
            self._count(node)
            power_before = guest.power
            guest.power, guest.job_running = VMPower.PAUSED, True

        def succeed() -> None:
            self.files.put(node, path, state)
            self._become(node, name, power_before)

        def fail() -> None:
            self.files.drop(node, path)
            self._become(node, name, power_before)

        self._act("checkpoint", name, timeout_s, progress, succeed, fail, total=state.size_bytes)

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("restore", node, spec.name)
            if spec.name in self._guests[node]:
                return
            state = self.files.get(node, path)
            if state is None:
                raise NotFoundError(f"no state file {path} on {node}")
            if state.vm != spec.name or not (state.complete and state.intact):
                raise CorruptStateError(f"{path} on {node} is no usable state of {spec.name}")
            if not state.checkpoint and state.serial != self._serials.get(spec.name, state.serial):
                self._breach(f"I1: {spec.name} would be restored from an outdated image, {path} on {node}")
            self._place(node, spec)

        def succeed() -> None:
            self._become(node, spec.name, VMPower.PAUSED)
            if state.checkpoint:
                # Whatever was saved of it before belongs to a life that it has not had now.
                self._serials[spec.name] = self._serials.get(spec.name, 0) + 1

        self._act("restore", spec.name, timeout_s, None, succeed, partial(self._remove, node, spec.name))

    def pause(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        self._let("pause", node, name, VMPower.PAUSED, timeout_s)

    def unpause(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        self._let("unpause", node, name, VMPower.RUNNING, timeout_s)

    def _let(self, method: str, node: str, name: str, power: VMPower, timeout_s: float) -> None:
        with self._lock:
            self._enter(method, node, name)
            guest = self._guests[node].get(name)
            if guest is None:
                raise NotFoundError(f"no VM {name} on {node}")
            if guest.power is power:
                return
            self._refuse_half(guest)
        self._act(method, name, timeout_s, None, partial(self._become, node, name, power), lambda: None)

    def migrate(
        self, name: str, source: str, destination: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("migrate", source, name, destination)
            if destination in self._unreachable:
                raise UnavailableError(f"the hypervisor of {destination} does not answer")
            guest = self._guests[source].get(name)
            if guest is None:
                if name in self._guests[destination]:
                    return
                raise NotFoundError(f"no VM {name} on {source} nor on {destination}")
            self._refuse_half(guest)
            self._refuse_busy(guest)
            self._place(destination, guest.spec, moving_from=source)
            power_before = guest.power
            guest.job_running = True
            writing = name in self._writing

        def succeed() -> None:
            self._remove(source, name)
            self._become(destination, name, power_before)

        def fail() -> None:
            self._remove(destination, name)
            self._become(source, name, power_before)

        def break_off() -> None:
            self._remove(destination, name)
            self._become(source, name, VMPower.POSTCOPY_FAILED)

        def go_over() -> None:
            with self._lock:
                if ("migrate", name) not in self._pending:
                    return  # it has ended meanwhile
                self._pending["migrate", name] = _Pending(succeed, break_off)
                self._count(source)
                self._guests[source][name].power = VMPower.PAUSED
                self._guests[destination][name].power = power_before
            self._call_hook("migrate", Point.POSTCOPY, name)

        lasts = {"auto-converge": _CONVERGES_AFTER, "post-copy": 1.0, "abort": math.inf}[self.converge]
        self._act(
            "migrate",
            name,
            timeout_s,
            progress,
            succeed,
            fail,
            total=guest.spec.memory_mib * MIB,
            lasts=lasts if writing else 1.0,
            half_way=go_over if writing and self.converge == "post-copy" else None,
        )

    def abort_job(self, node: str, name: str) -> None:
        """See ``base.Hypervisor``."""
        with self._lock:
            self._enter("abort_job", node, name)
            guest = self._guests[node].get(name)
            in_postcopy = guest is not None and guest.power is VMPower.PAUSED and len(self.where(name)) > 1
            if guest is not None and guest.job_running and not in_postcopy:
                self._aborted.add(name)

    def close(self) -> None:
        """See ``base.Hypervisor``."""

    # How an action happens.

    def _enter(self, method: str, node: str, *words: str) -> None:
        self.calls.append((method, node, *words))
        if node in self._unreachable:
            raise UnavailableError(f"the hypervisor of {node} does not answer")
        vm = words[0] if words else None
        if method in ("host_info", "list_vms", "has_vm", "statistics"):
            self._raise_failure(method, vm)
        self._call_hook(method, Point.BEFORE, vm)

    def _act(
        self,
        method: str,
        vm: str,
        timeout_s: float,
        progress: Progress | None,
        succeed: Callable[[], None],
        fail: Callable[[], None],
        *,
        total: int = 0,
        lasts: float = 1.0,
        half_way: Callable[[], None] | None = None,
    ) -> None:
        """Let the second half of an action happen, after its duration; the first half is done.

        It ``lasts`` so many times as long as that of others. ``half_way`` is called when half of it is over.
        """
        usual_s = self._durations_s.get(method, 0.0)
        duration_s = usual_s * lasts if math.isfinite(lasts) else math.inf
        with self._lock:
            # Whatever kills the caller from here on leaves the hypervisor to conclude by itself.
            self._pending[method, vm] = _Pending(succeed, fail)
        self._call_hook(method, Point.DURING, vm)
        self._sleep(min(duration_s, timeout_s) / 2)
        if progress:
            progress(total // 2, total)
        if half_way:
            half_way()
        self._sleep(min(duration_s, timeout_s) / 2)
        with self._lock:
            if half_way and duration_s > timeout_s:
                raise TimedOutError(f"{method} of {vm} did not end within {timeout_s:g} s, and goes on")
            if self._pending.pop((method, vm), None) is None:
                raise OperationFailedError(f"{method} of {vm} ended with the VM")
            try:
                self._raise_failure(method, vm)
                if vm in self._aborted:
                    self._aborted.discard(vm)
                    raise OperationFailedError(f"{method} of {vm} was aborted")
                if duration_s > timeout_s:
                    raise TimedOutError(f"{method} of {vm} did not end within {timeout_s:g} s")
                succeed()
            except Exception:
                fail()
                raise
        if progress:
            progress(total, total)
        self._call_hook(method, Point.AFTER, vm)

    def _fail_pending(self, vm: str) -> None:
        for key in [key for key in self._pending if key[1] == vm]:
            self._pending.pop(key).fail()

    def _refuse_half(self, guest: _Guest) -> None:
        if guest.power is VMPower.POSTCOPY_FAILED:
            raise OperationFailedError(f"{guest.spec.name} is only half there: its post-copy migration broke off")

    def _refuse_busy(self, guest: _Guest) -> None:
        if guest.job_running:
            raise OperationFailedError(f"another action on {guest.spec.name} is under way")

    def _raise_failure(self, method: str, vm: str | None) -> None:
        for failure in self._failures:
            if failure[0] == method and failure[1] in (None, vm):
                self._failures.remove(failure)
                raise failure[2]

    def _call_hook(self, method: str, point: Point, vm: str | None) -> None:
        with self._lock:
            found = next((h for h in self._hooks if h[:2] == (method, point) and h[2] in (None, vm)), None)
            if found is None:
                return
            self._hooks.remove(found)
        found[3]()

    def _place(self, node: str, spec: VMSpec, moving_from: str | None = None) -> None:
        elsewhere = [other for other in self.where(spec.name) if other != moving_from]
        if elsewhere:
            self._breach(f"I1: {spec.name} would run on {node} while it is on {', '.join(elsewhere)}")
        capacity_mib = self._capacity[node][1]
        used_mib = sum(guest.spec.memory_mib for guest in self._guests[node].values())
        free_mib = capacity_mib - used_mib
        if spec.memory_mib > free_mib:
            self._breach(
                f"I3: {spec.name} needs {spec.memory_mib} MiB on {node}, {free_mib} of {capacity_mib} are free"
            )
        self._guests[node][spec.name] = _Guest(spec, VMPower.INCOMING, job_running=True)

    def _become(self, node: str, vm: str, power: VMPower) -> None:
        self._count(node)
        guest = self._guests[node].get(vm)
        if guest is not None:
            guest.power, guest.job_running = power, False

    def _remove(self, node: str, vm: str) -> None:
        self._count(node)
        self._guests[node].pop(vm, None)

    def _count(self, node: str) -> None:
        """Bring the counters of the node up to date: to be called before anything that changes who runs there."""
        now = self._clock()
        passed_ns = max(0.0, now - self._counted_at[node]) * 1e9
        self._counted_at[node] = now
        running = [guest for guest in self._guests[node].values() if guest.power is VMPower.RUNNING]
        wanted = {guest.spec.name: min(self._demands.get(guest.spec.name, 0.0), guest.spec.cpus) for guest in running}
        share = min(1.0, self._capacity[node][0] / (sum(wanted.values()) or 1.0))
        for guest in running:
            guest.cpu_time_ns += passed_ns * wanted[guest.spec.name] * share
            guest.vcpu_delay_ns += passed_ns * wanted[guest.spec.name] * (1 - share)

    def _breach(self, what: str) -> None:
        self.violations.append(what)
        raise InvariantBreachedError(what)
