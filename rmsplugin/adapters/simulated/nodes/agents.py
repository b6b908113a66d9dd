"""Simulated node agents: in memory, on the state files of a simulated hypervisor, failing on command."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.nodes.base import (
    Digest,
    Guard,
    MemoryReport,
    NodeCheck,
    NodeFiles,
    PartialFile,
    Reach,
    RoomEnd,
    Space,
    StateFiles,
    Template,
    TemplateUse,
)
from rmsplugin.adapters.platform.base import Progress
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles, SimulatedState
from rmsplugin.adapters.simulated.hypervisor.machines import SimulatedMachines
from rmsplugin.adapters.simulated.nodes.bounds import SimulatedBounds
from rmsplugin.adapters.simulated.nodes.templates import SimulatedTemplates
from rmsplugin.defaults import GROUPS_DIR
from rmsplugin.errors import (
    CorruptStateError,
    DeposedError,
    NoStoreError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import parse_vm_name

#: Of an engine that may act for ever.
NO_BOUND: Permit = nullcontext

#: The verbs that change nothing, and are open to an engine whose turn is over.
_LOOKS = {"stat", "verify", "verify_aside", "list_files", "space", "check", "mounts", "reach", "await_guest"}


class SimulatedNodes:
    """``Nodes`` in memory, on the state files of a SimulatedHypervisor."""

    def __init__(
        self,
        files: SimulatedFiles,
        *,
        store: str = "/store",
        shared_store: str = "/shared",
        vm_dir: str = "/var/lib/rmsplugin/vm",
        machines: SimulatedMachines | None = None,
    ) -> None:
        """Use ``files``, and bound the VMs of ``machines``; the directories are those of the settings."""
        self.bounds = SimulatedBounds(machines)
        self.templates = SimulatedTemplates(files, vm_dir)
        self._files = files
        self._stores = {False: store, True: shared_store}
        self._whole = shared_store
        self._lock = threading.RLock()
        self._configs: dict[tuple[str, str], bytes] = {}
        self.guards: dict[tuple[str, str], Guard] = {}  # by node and VM
        self._unreachable: set[str] = set()
        self._hanging: set[str] = set()
        self._failures: list[tuple[str, RmspluginError]] = []
        self.calls: list[tuple[str, ...]] = []
        self.end_script: Callable[[int], bool] = lambda job_id: False  # of a room's job; whether its process was there
        self._machines = machines
        self._epoch, self._permit = FIRST_EPOCH, NO_BOUND
        self._highest = machines.epochs if machines is not None else {}

    def of_epoch(self, epoch: int, permit: Permit = NO_BOUND) -> SimulatedNodes:
        """The same nodes as seen by an engine of this epoch; ``permit``: of an act of it."""
        other = copy.copy(self)
        other._epoch, other._permit = epoch, permit
        return other

    def of_group(self, group: str) -> SimulatedNodes:
        """The same nodes as seen by the engine of a group, which has a part of the shared store of its own."""
        other = copy.copy(self)
        other._stores = {**self._stores, True: f"{self._whole}/{GROUPS_DIR}/{group}"}
        return other

    def set_reachable(self, node: str, reachable: bool) -> None:
        """Cut the node's agent off from us, or back on."""
        (self._unreachable.discard if reachable else self._unreachable.add)(node)

    def set_hanging(self, node: str, hangs: bool) -> None:
        """Let what the node's stores lie on take requests and answer none, or answer again."""
        (self._hanging.add if hangs else self._hanging.discard)(node)

    def fail_next(self, method: str, error: RmspluginError) -> None:
        """Let the next call of ``method`` raise ``error`` without having done anything."""
        self._failures.append((method, error))

    def config(self, node: str, vm: str) -> bytes | None:
        """The configuration that put_config wrote; None if there is none."""
        return self._configs.get((node, vm))

    def configs(self, node: str) -> list[str]:
        """The VMs that have configuration files."""
        with self._lock:
            return sorted(vm for owner, vm in self._configs if owner == node)

    def put_config(self, node: str, vm: str, content: bytes, guard: Guard | None = None) -> None:
        """See ``Nodes``."""
        self._enter("put_config", node, vm)
        self._guard(node, vm, guard)
        with self._lock:
            self._configs[node, vm] = content

    def _guard(self, node: str, vm: str, guard: Guard | None) -> None:
        if guard is not None:
            with self._lock:
                self.guards[node, vm] = guard

    def put_seed(self, node: str, vm: str, content: bytes) -> None:
        """See ``Nodes``."""
        self._enter("put_seed", node, vm)
        with self._lock:
            self._configs.setdefault((node, vm), content)

    def make_overlay(self, node: str, vm: str, base: str) -> None:
        """See ``Nodes``."""
        self._enter("make_overlay", node, vm)
        with self._lock:
            self._configs.setdefault((node, vm), base.encode())
        self.templates.make_disk(node, vm, base)

    def drop_config(self, node: str, vm: str) -> None:
        """See ``Nodes``."""
        self._enter("drop_config", node, vm)
        with self._lock:
            self._configs.pop((node, vm), None)
            self.guards.pop((node, vm), None)
        self.templates.drop(node, vm)

    def obey(self, node: str) -> None:
        """See ``Nodes``."""
        self._enter("obey", node)
        self._obey_on_shared("obey")

    def end_room(self, node: str, job_id: int) -> RoomEnd:
        """See ``Nodes``."""
        self._enter("end_room", node, str(job_id))
        vms = tuple(sorted(self._machines.seen().get(node, ()))) if self._machines is not None else ()
        return RoomEnd(not vms and self.end_script(job_id), vms)

    def stat(self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0) -> StateFiles:
        """See ``Nodes``."""
        self._enter_store("stat", node, shared, vm)
        final, part = self._final(node, vm, shared, checkpoint), self._partial(node, vm, shared, checkpoint)
        return StateFiles(
            final.size_bytes if final else None,
            PartialFile(part.size_bytes, part.complete) if part else None,
            self._files.free_bytes(node, self._path(vm, shared)),
        )

    def seal(
        self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0, progress: Progress | None = None
    ) -> Digest:
        """See ``Nodes``."""
        self._enter_store("seal", node, shared, vm)
        part = self._partial(node, vm, shared, checkpoint)
        state = part or self._final(node, vm, shared, checkpoint)
        if state is None:
            raise NotFoundError(f"{node} has no state of {vm} to seal")
        if not state.complete:
            raise CorruptStateError(f"the state of {vm} on {node} is incomplete")
        if progress:
            progress(state.size_bytes, state.size_bytes)
        if part is not None:
            self._files.drop(node, self._path(vm, shared, checkpoint) + ".partial")
            self._files.put(node, self._path(vm, shared, checkpoint), part)
        return Digest(state.size_bytes, state.blake2b)

    def verify(
        self, node: str, vm: str, digest: Digest, *, timeout_s: float, shared: bool = False, checkpoint: int = 0
    ) -> None:
        """See ``Nodes``."""
        self._enter_store("verify", node, shared, vm)
        self._verified(node, vm, digest, shared, checkpoint)

    def send(
        self,
        source: str,
        destination: str,
        vm: str,
        digest: Digest,
        *,
        timeout_s: float,
        checkpoint: int = 0,
        progress: Progress | None = None,
        replaces: bool = True,
    ) -> None:
        """See ``Nodes``."""
        self._enter_store("send", source, False, vm, destination)
        state = self._verified(source, vm, digest, False, checkpoint)
        if destination in self._unreachable:
            raise OperationFailedError(f"{source} cannot reach {destination}")
        if self._files.marker(destination, self._stores[False]) is None:
            raise OperationFailedError(f"{destination}: its store shows no marker")
        there = self._final(destination, vm, False, checkpoint)
        if not replaces and there is not None and there.blake2b != state.blake2b:
            raise OperationFailedError(f"{destination}: another state of {vm} is here")
        self._files.put(destination, self._path(vm, False, checkpoint), replace(state))
        if progress:
            progress(state.size_bytes, state.size_bytes)

    def drop_state(self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0) -> None:
        """See ``Nodes``."""
        self._enter_store("drop_state", node, shared, vm)
        self._files.drop(node, self._path(vm, shared, checkpoint))
        self._files.drop(node, self._path(vm, shared, checkpoint) + ".partial")

    def use_checkpoint(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._enter_store("use_checkpoint", node, shared, vm)
        state, there = self._final(node, vm, shared, number), self._final(node, vm, shared)
        if state is None:
            raise NotFoundError(f"{node} has no checkpoint {number} of {vm}")
        if there not in (None, state):
            raise OperationFailedError(f"{node} has another state of {vm}")
        self._files.link(node, self._path(vm, shared, number), self._path(vm, shared))

    def adopt(self, node: str, vms: Collection[str]) -> None:
        """See ``Nodes``."""
        self._enter_store("adopt", node, True, *vms)
        if self._stores[True] == self._whole:
            raise OperationFailedError("adopt needs the name of a group")
        prefix = f"{self._whole}/"
        for path in self._files.paths(node):
            name = path.removeprefix(prefix)
            there = f"{self._stores[True]}/{name}"
            is_own = path.startswith(prefix) and not {*name.split(".")[:2]}.isdisjoint(vms)
            if is_own and self._files.get(node, there) is None:
                self._files.link(node, path, there)
                self._files.drop(node, path)

    def lend(self, node: str, vm: str, group: str, digest: Digest) -> None:
        """See ``Nodes``."""
        self._enter_store("lend", node, True, vm, group)
        store = f"{self._whole}/{GROUPS_DIR}/{group}"
        if store == self._stores[True]:
            raise OperationFailedError(f"{vm} is of group {group} already")
        if self._files.marker(node, store) is None:
            raise OperationFailedError(f"{store} shows no marker")
        state, there = self._final(node, vm, True), self._files.get(node, f"{store}/{vm}.state")
        if state is None:
            raise NotFoundError(f"{node} has no state of {vm}")
        if state.size_bytes != digest.size_bytes:
            raise CorruptStateError(f"the state of {vm} on {node} is not what was saved")
        if there not in (None, state):
            raise OperationFailedError(f"another state of {vm} is there")
        self._files.link(node, self._path(vm, True), f"{store}/{vm}.state")

    def put_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """See ``Nodes``. Disks are not simulated."""
        self._enter_store("put_aside", node, shared, vm)
        return self._rename(node, vm, self._path(vm, shared), self._aside(vm, number, shared))

    def take_back(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """See ``Nodes``."""
        self._enter_store("take_back", node, shared, vm)
        return self._rename(node, vm, self._aside(vm, number, shared), self._path(vm, shared))

    def drop_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """See ``Nodes``."""
        self._enter_store("drop_aside", node, shared, vm)
        self._files.drop(node, self._aside(vm, number, shared))

    def verify_aside(
        self, node: str, vm: str, number: int, digest: Digest, *, timeout_s: float, shared: bool = False
    ) -> None:
        """See ``Nodes``."""
        self._enter_store("verify_aside", node, shared, vm)
        _require_digest(node, vm, self._files.get(node, self._aside(vm, number, shared)), digest)

    def init_store(self, node: str, marker: str, *, expected: str = "", shared: bool = False) -> str:
        """See ``Nodes``."""
        self._enter_files("init_store", node)
        if shared:
            self._obey_on_shared("init_store")
        places = {self._stores[shared], *([self._whole] if shared else [])}
        if expected and all(self._files.get(node, f"{place}/{expected}.state") is None for place in places):
            raise NoStoreError(f"the store of {node} has no state of {expected}, which was saved there")
        return self._files.mark(node, self._stores[shared], marker)

    def space(self, node: str, *, shared: bool = False) -> Space:
        """See ``Nodes``."""
        self._enter_files("space", node)
        store = self._stores[shared]
        return Space(self._files.free_bytes(node, store + "/"), self._files.marker(node, store))

    def list_files(self, node: str, *, shared: bool = False) -> NodeFiles:
        """See ``Nodes``."""
        self._enter_store("list_files", node, shared)
        prefix = self._stores[shared] + "/"
        names = [path.removeprefix(prefix) for path in self._files.paths(node) if path.startswith(prefix)]
        names = [name for name in names if parse_vm_name(name.partition(".")[0])]
        return NodeFiles(
            frozenset(name.removesuffix(".state") for name in names if name.endswith(".state")),
            frozenset(name.removesuffix(".state.partial") for name in names if name.endswith(".state.partial")),
            frozenset(self.configs(node)),
        )

    def check(self, node: str) -> NodeCheck:
        """See ``Nodes``."""
        self._enter("check", node)
        return NodeCheck(
            "simulated", {}, {}, 0.0, True, "raw", frozenset({"raw"}), templates=(self.templates.kept(node), 0)
        )

    def bound_memory(self, node: str, mib: int) -> MemoryReport:
        """See ``Nodes``."""
        self._enter("bound_memory", node, str(mib))
        return self.bounds.bound(node, mib)

    def use_template(
        self,
        node: str,
        vm: str,
        template: Template,
        uuid: str,
        mac: str,
        config: bytes,
        seed: bytes = b"",
        guard: Guard | None = None,
    ) -> TemplateUse:
        """See ``Nodes``."""
        self._enter("use_template", node, vm)
        self._guard(node, vm, guard)
        use = self.templates.use(node, vm, template)
        if use is TemplateUse.COPIED:
            with self._lock:
                self._configs[node, vm] = config
        return use

    def await_guest(self, node: str, vm: str, template: Template, *, timeout_s: float) -> bool:
        """See ``Nodes``."""
        self._enter("await_guest", node, vm)
        return self.templates.await_guest(node, vm, template)

    def keep_disk(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes``."""
        self._enter("keep_disk", node, vm)
        self.templates.keep_disk(node, vm, template)

    def settle_template(self, node: str, vm: str, template: Template) -> bool:
        """See ``Nodes``."""
        self._enter("settle_template", node, vm)
        return self.templates.settle(node, vm, template)

    def refuse_template(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes``."""
        self._enter("refuse_template", node, vm)
        self.templates.refuse(node, vm, template)

    def mounts(self, node: str) -> Mapping[str, Any]:
        """See ``Nodes``: simulated guests mount nothing."""
        self._enter("mounts", node)
        return {}

    def reach(self, node: str, other: str) -> Reach:
        """See ``Nodes``."""
        self._enter("reach", node, other)
        return Reach(f"{other} is cut off" if other in self._unreachable else "")

    def close(self) -> None:
        """See ``Nodes``."""

    def _path(self, vm: str, shared: bool, checkpoint: int = 0) -> str:
        return f"{self._stores[shared]}/{f'checkpoint-{checkpoint}.' if checkpoint else ''}{vm}.state"

    def _final(self, node: str, vm: str, shared: bool, checkpoint: int = 0) -> SimulatedState | None:
        return self._files.get(node, self._path(vm, shared, checkpoint))

    def _partial(self, node: str, vm: str, shared: bool, checkpoint: int = 0) -> SimulatedState | None:
        return self._files.get(node, self._path(vm, shared, checkpoint) + ".partial")

    def _verified(self, node: str, vm: str, digest: Digest, shared: bool, checkpoint: int = 0) -> SimulatedState:
        return _require_digest(node, vm, self._final(node, vm, shared, checkpoint), digest)

    def _aside(self, vm: str, number: int, shared: bool) -> str:
        return f"{self._stores[shared]}/aside-{number}.{vm}.state"

    def _rename(self, node: str, vm: str, source: str, destination: str) -> bool:
        there, before = self._files.get(node, source), self._files.get(node, destination)
        if there is None and before is None:
            raise NotFoundError(f"{node} has no state of {vm}")
        if there is not None:
            if before is not None:
                raise OperationFailedError(f"{node}: {destination} is in the place of {source}")
            self._files.drop(node, source)
            self._files.put(node, destination, there)
        return True

    def _enter_files(self, method: str, node: str, *words: str) -> None:
        self._enter(method, node, *words)
        if node in self._hanging:
            raise TimedOutError(f"{method} on {node} did not end in time")

    def _enter_store(self, method: str, node: str, shared: bool, *words: str) -> None:
        self._enter_files(method, node, *words)
        if shared:
            self._obey_on_shared(method)
        if self._files.marker(node, self._stores[shared]) is None:
            raise NoStoreError(f"the store of {node} shows no marker: is it mounted?")

    def _enter(self, method: str, node: str, *words: str) -> None:
        self.calls.append((method, node, *words))
        if node in self._unreachable:
            raise UnavailableError(f"the node agent of {node} cannot be reached")
        if method not in _LOOKS:
            self._show(node)
        self._obey(method, node)
        with self._lock:
            for failure in self._failures:
                if failure[0] == method:
                    self._failures.remove(failure)
                    raise failure[1]

    def _show(self, node: str) -> None:
        """Show a node that asks for it that the engine leads. Raises DeposedError if it does not."""
        owned = self._machines.owned if self._machines is not None else None
        if owned is not None and node not in owned:
            with self._permit():
                owned.add(node)

    def _obey_on_shared(self, method: str) -> None:
        with self._lock:
            self._obey(method, self._stores[True])
            if method not in _LOOKS:
                self._highest[self._whole] = max(self._highest.get(self._whole, FIRST_EPOCH), self._epoch)

    def _obey(self, method: str, place: str) -> None:
        """Remember the epoch of an act at a node, or on the shared store. Raises DeposedError for one that is lower."""
        with self._lock:
            highest = self._highest.get(place, FIRST_EPOCH)
            if method not in _LOOKS:
                if self._epoch < highest:
                    raise DeposedError(f"{place}: the turn of this engine (epoch {self._epoch}) is over")
                self._highest[place] = max(highest, self._epoch)


def _require_digest(node: str, vm: str, state: SimulatedState | None, digest: Digest) -> SimulatedState:
    if state is None:
        raise NotFoundError(f"{node} has no state of {vm}")
    if (state.size_bytes, state.blake2b) != (digest.size_bytes, digest.blake2b):
        raise CorruptStateError(f"the state of {vm} on {node} is not what was saved")
    return state
