"""VMs: what the node agent does with the containers of this node, and what it sees of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rmsplugin.adapters.platform.node_base import Call, WantedVM
from rmsplugin.adapters.platform.podman.on_node import (
    acts,
    container,
    criu,
    groups,
    network,
    program,
    size,
    state_file,
    use,
)
from rmsplugin.adapters.platform.podman.on_node.checkpoint import Checkpoint
from rmsplugin.adapters.platform.podman.on_node.groups import Group
from rmsplugin.errors import NotFoundError, OperationFailedError, TimedOutError

#: The bound of what is cleared away after a failure, whatever time the call had.
_CLEARING_S = 30.0
#: The next engine waits for a start: it is a matter of tenths of a second.
_START_S = 15.0
#: A question for a version; there are three within one call, which has 30 s (``NodeAgents``).
_VERSION_S = 5.0


class ContainersOnNode:
    """Implements ``node_base.VMs``."""

    def host(self) -> dict[str, Any]:
        """See ``VMs``."""
        lines = Path("/proc/meminfo").read_text().splitlines()
        total_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
        seen = ", ".join(f"{name} {_version(name)}" for name in program.NAMES)
        return {"cpus": os.cpu_count() or 1, "memory_mib": total_kib >> 10, "hypervisor": seen}

    def list(self) -> dict[str, dict[str, Any]]:
        """See ``VMs``."""
        return {name: _seen(name) for name in groups.names()}

    def has(self, name: str) -> bool:
        """See ``VMs``."""
        return _is_here(name)

    def statistics(self) -> dict[str, dict[str, Any]]:
        """See ``VMs``."""
        found = {}
        for name in groups.names():
            group = Group(name)
            use.see(name, group)
            used_kib, most_kib = group.memory_kib()
            received_bytes, sent_bytes = network.counted(name)
            found[name] = {
                "cpu_time_ns": group.cpu_time_ns(),
                "cpu_delay_ns": group.cpu_delay_ns(),
                "used_kib": used_kib,
                "most_kib": most_kib,
                "cpus": size.cpus(group),
                "time_s": int(time.time()),
                "received_bytes": received_bytes,
                "sent_bytes": sent_bytes,
            }
        return found

    def used(self, name: str) -> dict[str, int]:
        """See ``VMs``."""
        group = Group(name)
        if not group.processes():
            raise NotFoundError(f"{name} is not on this node")
        return use.of(name, group)._asdict()

    def boot(self, vm: WantedVM, call: Call) -> None:
        """See ``VMs``."""
        with acts.act(vm.name, "start", call.deadline, call.still):
            if _is_here_to_stay(vm.name, call.deadline):
                return
            container.require_allowed(vm, call.settings)
            with _nothing_left(vm.name):
                container.remove(vm.name)
                container.require_image(vm.reference)
                container.create(vm, container.prepare(vm, call.settings, call.is_filtered))
                acts.remember(vm.name, acts.Known(vm.uuid, vm.cpus, vm.memory_mib))
                use.begin(vm.name, use.NO_USE)
                with call.turn():
                    network.attach(container.interface_of(vm.name, vm.filtered), call.settings.bridge)
                    program.run("start", vm.name, timeout_s=min(_START_S, _left(call.deadline)))
                _resize(vm)

    def stop(self, name: str, call: Call) -> None:
        """See ``VMs``."""
        acts.ask_to_stop(name)
        with acts.act(name, "change", call.deadline, call.still):
            _end(name, _left(call.deadline))

    def save(self, name: str, path: Path, call: Call) -> None:
        """See ``VMs``."""
        with acts.act(name, "save", call.deadline, call.still):
            _require_here(name, call.deadline)
            checkpoint = Checkpoint(name, path, call.settings.bridge)
            with checkpoint.made(call):
                checkpoint.require_on_disk()
                call.still()
            # It stands still, off the bridge: nobody hears of its end.
            _end(name, _CLEARING_S)

    def checkpoint(self, name: str, path: Path, call: Call) -> None:
        """See ``VMs``."""
        with acts.act(name, "save", call.deadline, call.still):
            _require_here(name, call.deadline)
            checkpoint = Checkpoint(name, path, call.settings.bridge)
            with checkpoint.made(call):
                checkpoint.go_on()
                checkpoint.require_on_disk()

    def restore(self, vm: WantedVM, path: Path, call: Call) -> None:
        """See ``VMs``."""
        with acts.act(vm.name, "start", call.deadline, call.still):
            if _is_here_to_stay(vm.name, call.deadline):
                return
            if not path.exists():
                raise NotFoundError(f"there is no {path}")
            container.require_allowed(vm, call.settings)
            seal = state_file.require(path, vm.name)
            container.require_image(vm.reference, seal.image)
            with _nothing_left(vm.name):
                container.remove(vm.name)
                container.prepare(vm, call.settings, call.is_filtered)
                acts.remember(vm.name, acts.Known(vm.uuid, vm.cpus, vm.memory_mib))
                use.begin(vm.name, seal.use)
                words = ("container", "restore", "--tcp-established", "--file-locks", "--import", str(path))
                with criu.explained(vm.name):
                    program.run(*words, timeout_s=_left(call.deadline))
                if not Group(vm.name).is_frozen():
                    raise OperationFailedError(f"{vm.name} does not stand still: {criu.HOOK} did not stop it")
                _resize(vm)
                call.still()  # from here on it is there, and not before

    def pause(self, name: str, call: Call) -> None:
        """See ``VMs``."""
        with acts.act(name, "change", call.deadline, call.still):
            _require_here(name, call.deadline)
            if not container.freeze(name, _left(call.deadline)):
                raise TimedOutError(f"the processes of {name} did not stand still in time")

    def unpause(self, name: str, call: Call) -> None:
        """See ``VMs``."""
        with acts.act(name, "change", call.deadline, call.still):
            _require_here(name, call.deadline)
            with call.turn():
                container.thaw(name, call.settings.bridge)

    def set_memory(self, name: str, mib: int, call: Call) -> None:
        """See ``VMs``."""
        with self._resized(name, call) as own:
            size.set_memory(Group(name), min(mib, own.memory_mib))

    def set_cpus(self, name: str, cpus: int, call: Call) -> None:
        """See ``VMs``."""
        with self._resized(name, call) as own:
            size.set_cpus(Group(name), min(cpus, own.cpus))

    @contextmanager
    def _resized(self, name: str, call: Call) -> Iterator[acts.Known]:
        """Begin an act that resizes a VM; gives the size that it was made with, which is the most."""
        with acts.act(name, "change", call.deadline, call.still):
            _require_here(name, call.deadline)
            own = acts.known_of(name)
            if not own.cpus:
                raise OperationFailedError(f"an older release has started {name}: it is resized after its next resume")
            with call.turn():
                yield own

    def abort(self, name: str) -> None:
        """See ``VMs``."""
        if acts.under_way(name) == "save":
            acts.ask_to_stop(name)


def forget(name: str) -> None:
    """Remove what is left of a VM, if nothing of it runs here. Raises OperationFailedError."""
    if not acts.is_known(name):
        return
    with acts.act(name, "change", time.monotonic() + _CLEARING_S, lambda: None):
        if not _is_here(name):
            container.remove(name)
            criu.forget(name)
            acts.forget(name)


def _resize(vm: WantedVM) -> None:
    """Give a VM that has just come the size to which it was resized, as far as it can have it.

    One that uses more memory goes on with what it was made with: whoever wants less for it asks again.
    """
    with suppress(OperationFailedError):
        if vm.resized_cpus:
            size.set_cpus(Group(vm.name), min(vm.cpus, vm.resized_cpus))
    with suppress(OperationFailedError):
        if vm.resized_memory_mib:
            size.set_memory(Group(vm.name), min(vm.memory_mib, vm.resized_memory_mib))


def _seen(name: str) -> dict[str, Any]:
    kind = acts.under_way(name)
    if acts.is_ending(name):
        _go_on_ending(name)
        return {"power": "ending", "uuid": acts.known_of(name).uuid, "job_running": kind == "save"}
    power = "incoming" if kind == "start" or _is_being_made(name) else "running"
    if power == "running" and kind != "save" and Group(name).is_frozen():
        power = "paused"
    return {"power": power, "uuid": acts.known_of(name).uuid, "job_running": kind == "save"}


def _is_being_made(name: str) -> bool:
    """Whether one of its processes is none of the container's: CRIU's own, which restores the others."""
    own = os.readlink("/proc/self/ns/pid")
    if Group(name).makers():
        return True
    for pid in Group(name).processes():
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == own:
                return True
        except OSError:
            continue
    return False


def _is_here(name: str) -> bool:
    return bool(Group(name).processes())


def _is_here_to_stay(name: str, deadline: float) -> bool:
    """Whether the VM is here; within an act with it. One that is being ended is ended first. Raises TimedOutError."""
    if acts.is_ending(name):
        _end(name, _left(deadline))
    return _is_here(name)


def _require_here(name: str, deadline: float) -> None:
    if not _is_here_to_stay(name, deadline):
        raise NotFoundError(f"{name} is not on this node")


def _version(name: str) -> str:
    """In a word, for people."""
    try:
        return program.version(name, _VERSION_S) or "missing"
    except TimedOutError:
        return "silent"


def _end(name: str, timeout_s: float) -> None:
    """End the VM, and remove what is left of it. Raises TimedOutError: its processes will end, and have not yet.

    A process that waits for storage ends when the storage answers. Until then it must not be taken for one that goes
    on: the state that was saved of it is all that there will be.
    """
    acts.note_end(name)
    if not Group(name).kill(timeout_s):
        raise TimedOutError(f"the processes of {name} did not end in time: they end when their storage answers")
    acts.note_ended(name)
    container.remove(name)


def _go_on_ending(name: str) -> None:
    """Signal the processes once more: whoever has begun to end the VM may have been ended before it had done so."""
    with suppress(TimedOutError), acts.act(name, "change", time.monotonic(), lambda: None):
        if acts.is_ending(name):
            _end(name, 0.0)


@contextmanager
def _nothing_left(name: str) -> Iterator[None]:
    """Leave nothing of a VM whose start fails."""
    try:
        yield
    except BaseException:
        _end(name, _CLEARING_S)
        raise


def _left(deadline: float) -> float:
    return max(0.01, deadline - time.monotonic())
