"""Verbs: the work of the node agent (docs/protocols.md, section 4). Each takes checked words and returns its answer."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin import __version__
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.node_agent import epoch, files, group_store, owner, store
from rmsplugin.node_agent.config import AgentConfig
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.values import Guard, Reply, Report, VMName

if TYPE_CHECKING:
    from rmsplugin.adapters.platform.node_base import PlatformOnNode
    from rmsplugin.node_agent.owner import Claim

CONFIG_LIMIT_BYTES = 64 * 1024
SEED_LIMIT_BYTES = 4 << 20

#: Only root reads the saved states: they are the guests' memory. The VMs' directory shows nothing to other users
#: either. But the hypervisor, which need not run as root, has to reach those files in it that are given to it.
_STORE_MODE = 0o700


#: The beginning of the names of checkpoints; no verb takes such a file for a VM's state.
_CHECKPOINT = "checkpoint-"

#: The suffixes of the names of states that nobody may restore.
_UNFINISHED = (".state.partial", ".state.incoming")
_VM_DIR_MODE = 0o711

_PROC = Path("/proc")

#: The end of the name of the file that says that the node filters the VM's interface.
_RULES = ".nft"


class Agent:
    """The verbs, on the directories of one configuration."""

    def __init__(self, config: AgentConfig, platform: PlatformOnNode) -> None:
        self._config = config
        self._platform = platform
        self._turn: tuple[int, bool] | None = None  # of the asking engine; None: it was not asked for

    def store(self, shared: bool) -> Path:
        """The store. It is never made here: a store that is not mounted looks like one that never existed."""
        directory = self._config.store_of(shared)
        if store.marker_of(directory) is None:
            raise AgentError("no_store", f"{directory} shows no {store.MARKER}: is it mounted?")
        files.make_private(directory, _STORE_MODE)
        return directory

    def obey(self, of_engine: int, on_shared_store: bool, claim: Claim | None = None) -> None:
        """Refuse an engine of this epoch if one of a higher epoch has acted here, or on the shared store if it is told.

        Refuse any if the node has come up anew, and none has shown that it leads; ``claim``: the engine does it now.
        What this call waits for later asks again.
        """
        self._turn = of_engine, on_shared_store
        if claim is not None:
            owner.require_in_time(claim)
        elif self._config.several_engines:
            owner.require(self._config.vm_path)
        vm_dir = self._config.vm_dir if of_engine == FIRST_EPOCH and claim is None else self._vm_dir()
        epoch.obey(epoch.of_node(vm_dir), of_engine)
        if claim is not None:
            owner.keep(vm_dir, claim)
        if on_shared_store:
            self._obey_on_shared_store(of_engine)

    def _obey_on_shared_store(self, of_engine: int) -> None:
        directory, whole = self._config.shared_store, self._config.whole_store
        if directory is not None and store.marker_of(directory) is not None:
            epoch.obey(epoch.of_store(directory), of_engine)
        if whole is not None and whole != directory and store.marker_of(whole) is not None:
            # The engine of all groups before it takes no state away any more. Groups do not refuse each other.
            epoch.remember(epoch.of_store(whole), of_engine)

    def let_through(self, report: Report, *, look: bool) -> None:
        """Pass on, between standard streams and the platform, what an engine says that is obeyed, until it is not.

        ``look``: nothing can be changed there, and each engine is let through.
        """
        if not self._config.lets_through:
            raise AgentError("failed", "the settings of this node let no engine through: see hypervisor.connect")
        from contextlib import nullcontext

        from rmsplugin.node_agent import passage  # here: the other verbs start faster without it

        with passage.reach(self._platform.sockets(look=look)) as reached:
            report({"through": 1})
            if self._turn is None:
                passage.pass_on(reached, lambda: nullcontext(True))
            else:
                own, path = self._turn[0], epoch.of_node(self._vm_dir())
                passage.pass_on(reached, lambda: epoch.obeyed(path, own))

    def still_wanted(self) -> None:
        """Go on with a call that has waited: somebody listens, and the turn of the engine is not over.

        Raises:
            BrokenPipeError: nobody listens to its answer any more.
            AgentError: an engine of a higher epoch has acted meanwhile.
        """
        files.require_listener()
        if self._turn is not None:
            self.obey(*self._turn)

    def init_store(self, identity: str, expected: VMName | None, shared: bool) -> Reply:
        """Set up the store; one that has a marker keeps it. ``expected``: a VM whose state must be visible there."""
        directory, whole = self._config.store_of(shared), self._config.whole_store
        if shared and whole is not None and not whole.is_dir():
            raise AgentError("no_store", f"{whole} is not there: is it mounted?")
        if expected is not None and not self._is_there(directory, f"{expected.name}.state", shared):
            raise AgentError("no_store", f"{directory} has no state of {expected.name}, which was saved there")
        if shared and whole is not None and whole != directory:
            files.make_private(whole, _STORE_MODE)
            files.make_private(directory.parent, _STORE_MODE)
        files.make_private(directory, _STORE_MODE)
        return {"marker": store.mark(directory, identity)}

    def _is_there(self, directory: Path, name: str, shared: bool) -> bool:
        """Whether the store has a file, or the whole of a shared store has it for this group."""
        places = [directory, *([self._config.whole_store] if shared and self._config.whole_store else [])]
        return any(files.size_of(place / name) is not None for place in places)

    def _vm_dir(self) -> Path:
        files.make_private(self._config.vm_dir, _VM_DIR_MODE)
        return self._config.vm_dir

    def one_act(self) -> AbstractContextManager[None]:
        """Do something before an engine of a higher epoch begins to be obeyed. Raises AgentError ``deposed``."""
        assert self._turn is not None  # it is an act: `obey` came first
        return epoch.one_act(epoch.of_node(self._vm_dir()), self._turn[0])

    @property
    def config(self) -> AgentConfig:
        """The agent's settings."""
        return self._config

    @property
    def platform(self) -> PlatformOnNode:
        """The program that runs the VMs of this node."""
        return self._platform

    def put_config(self, vm: VMName, guard: Guard | None = None) -> Reply:
        """Write standard input as the VM's configuration; its console log is made here too, so that it is private."""
        self.keep_guard(vm, guard)
        return self._keep_config(vm, standard_input(CONFIG_LIMIT_BYTES))

    def keep_guard(self, vm: VMName, guard: Guard | None) -> None:
        """Pin the future interface of the VM to its addresses; None: nothing is to be done for it."""
        if guard is not None:
            from rmsplugin.node_agent import guest_filter  # here: the other verbs start faster without it

            with files.lock(self._vm_dir(), vm.identity, still=self.still_wanted):
                guest_filter.keep(self._config.filters, vm.name, guard)

    def put_files(self, vm: VMName, content: bytes, config_bytes: int) -> None:
        """Write the first bytes as the VM's configuration, and the others, if there are any, as its seed ISO."""
        if not 0 < config_bytes <= min(CONFIG_LIMIT_BYTES, len(content)):
            raise AgentError(
                "failed", f"no configuration of {config_bytes} bytes can be taken from {len(content)} bytes"
            )
        self._keep_config(vm, content[:config_bytes])
        if len(content) > config_bytes:
            self._keep_seed(vm, content[config_bytes:])

    def _keep_config(self, vm: VMName, content: bytes) -> Reply:
        directory = self._vm_dir()
        with files.lock(directory, vm.identity, still=self.still_wanted):
            files.write_whole(directory / f"{vm.name}.config", content)
            console = directory / f"{vm.name}.console"
            if files.size_of(console) is None:
                files.create(console).close()
        return {"bytes": len(content)}

    def put_seed(self, vm: VMName) -> Reply:
        """Write standard input as the VM's seed ISO."""
        return self._keep_seed(vm, standard_input(SEED_LIMIT_BYTES))

    def _keep_seed(self, vm: VMName, content: bytes) -> Reply:
        directory = self._vm_dir()
        with files.lock(directory, vm.identity, still=self.still_wanted):
            files.write_whole(directory / f"{vm.name}.iso", content)
        return {"bytes": len(content)}

    def make_overlay(self, vm: VMName, base: str) -> Reply:
        """Make an overlay on a base that the settings name."""
        if base not in self._config.bases:
            raise AgentError("failed", f"not the base of an image in the settings: {base[:200]!r}")
        directory = self._vm_dir()
        final, temporary = directory / f"{vm.name}.qcow2", directory / f"{vm.name}.qcow2.partial"
        with files.lock(directory, vm.identity, still=self.still_wanted):
            if files.size_of(final) is None:
                files.remove(temporary)
                try:
                    self._platform.make_overlay(base, temporary)
                except OperationFailedError:
                    files.remove(temporary)
                    raise
                temporary.rename(final)
                files.sync_directory(directory)
        return {}

    def drop_config(self, vm: VMName) -> Reply:
        """Remove all of this VM's files in the VMs' directory, rotated console logs included, and its filter."""
        directory = self._vm_dir()
        with files.lock(directory, vm.identity, still=self.still_wanted):
            if files.size_of(self._config.filters / f"{vm.name}{_RULES}") is not None:
                from rmsplugin.node_agent import guest_filter

                guest_filter.drop(self._config.filters, vm.name)
            files.remove(*(path for path in directory.glob(f"{vm.name}.*")))
            self._platform.forget(vm.name)
        return {}

    def stat(self, vm: VMName, shared: bool, checkpoint: int = 0) -> Reply:
        """The facts about the VM's state."""
        final, partial = self.state_paths(vm, shared, checkpoint)
        final_bytes, partial_bytes = files.size_of(final), files.size_of(partial)
        return {
            "final": None if final_bytes is None else {"bytes": final_bytes},
            "partial": None
            if partial_bytes is None
            else {"bytes": partial_bytes, "complete": self._platform.is_whole(partial)},
            "free_bytes": files.free_bytes(final.parent),
        }

    def seal(self, vm: VMName, shared: bool, report: Report, checkpoint: int = 0) -> Reply:
        """Put the partial file on disk, digest it and give it its final name, all in one reading.

        If called again, because the answer did not reach the engine, it digests the final file.
        """
        from rmsplugin.node_agent import digests

        final, partial = self.state_paths(vm, shared, checkpoint)
        with lock_state(final, vm, self.still_wanted, checkpoint):
            path = final if files.size_of(partial) is None else partial
            size = files.size_of(path)
            if size is None:
                raise AgentError("not_found", f"no state of {vm.name} to seal")
            if not self._platform.is_whole(path):
                raise AgentError("corrupt", f"the state of {vm.name} is incomplete")
            size, blake2b = digests.sync_and_digest(path, files.Pulse(report, size).beat)
            if path == partial:
                # The engine may have given this call up meanwhile, and begun another operation with the file.
                report({"bytes_done": size, "bytes_total": size})
                self.still_wanted()
                partial.rename(final)
            files.sync_directory(final.parent)
        return {"bytes": size, "blake2b": blake2b}

    def verify(self, vm: VMName, size: int, blake2b: str, shared: bool, checkpoint: int = 0) -> Reply:
        """Read and digest the final file."""
        final, _ = self.state_paths(vm, shared, checkpoint)
        with lock_state(final, vm, self.still_wanted, checkpoint, shared=True):
            _require_digest(vm, final, size, blake2b)
            self._platform.require_restorable(final)
        return {}

    def drop_state(self, vm: VMName, shared: bool, checkpoint: int = 0) -> Reply:
        """Remove final and partial file, and the rest of a broken-off copy."""
        final, partial = self.state_paths(vm, shared, checkpoint)
        with lock_state(final, vm, self.still_wanted, checkpoint):
            files.remove(final, partial, incoming_path(final))
        return {}

    def use_checkpoint(self, vm: VMName, number: int, shared: bool) -> Reply:
        """Make a checkpoint the VM's state, by a second name of the same file; nothing happens if it is already."""
        final, _ = self.state_paths(vm, shared)
        source, _ = self.state_paths(vm, shared, number)
        with (
            files.lock(final.parent, vm.identity, still=self.still_wanted),
            lock_state(source, vm, self.still_wanted, number, shared=True),
        ):
            if files.size_of(source) is None:
                raise AgentError("not_found", f"no checkpoint {number} of {vm.name}")
            if files.size_of(final) is not None:
                if not final.samefile(source):
                    raise AgentError("exists", f"another state of {vm.name} is here")
                return {}
            final.hardlink_to(source)
            files.sync_directory(final.parent)
        return {}

    def adopt(self, names: bytes) -> Reply:
        """Move all states of these VMs, one a line, that an engine of all groups has left in the whole store."""
        vms = {VMName(name).name for name in names.decode("ascii", "replace").split()}
        directory, whole = self.store(True), self._config.whole_store
        if whole is None or whole == directory:
            raise AgentError("failed", "adopt needs the name of a group")
        return {"adopted": group_store.adopt(whole, directory, vms)}

    def lend(self, vm: VMName, group: str, size: int) -> Reply:
        """Give another group the VM's state, by a second name of the same file in its part of the shared store."""
        final, _ = self.state_paths(vm, True)
        there = self._config.part_of(group)
        assert there is not None  # state_paths has asked for a shared store
        if there == final.parent:
            raise AgentError("failed", f"{vm.name} is of group {group} already")
        if store.marker_of(there) is None:
            raise AgentError("failed", f"{there} shows no {store.MARKER}: the engine of group {group} sets it up")
        with lock_state(final, vm, self.still_wanted, shared=True):
            found = files.size_of(final)
            if found is None:
                raise AgentError("not_found", f"no state of {vm.name}")
            if found != size:
                raise AgentError("corrupt", f"the state of {vm.name} has {found} bytes, not {size}")
            name = there / final.name
            if files.size_of(name) is None:
                name.hardlink_to(final)
            elif not name.samefile(final):
                raise AgentError("exists", f"another state of {vm.name} is there")
            files.sync_directory(there)
        return {}

    def list_files(self, shared: bool) -> Reply:
        """All VMs of which there are files; a VM with only a console log or a half-written file left counts too."""
        names = [path.name for path in self.store(shared).iterdir()]
        configs = {path.name.partition(".")[0] for path in self._vm_dir().iterdir()}
        return {
            "states": _vms(name.removesuffix(".state") for name in names if name.endswith(".state")),
            "partials": _vms({name.removesuffix(end) for end in _UNFINISHED for name in names if name.endswith(end)}),
            "configs": _vms(configs),
        }

    def space(self, shared: bool) -> Reply:
        """Room in the store, and its marker; nothing is made."""
        directory = self._config.store_of(shared)
        there = next(path for path in (directory, *directory.parents) if path.is_dir())
        return {"free_bytes": files.free_bytes(there), "marker": store.marker_of(directory)}

    def put_aside(self, vm: VMName, number: int, shared: bool) -> Reply:
        """Give state and disk of the VM names under which nothing uses or drops them; missing files are left out."""
        return self._rename(vm, [(plain, aside) for plain, aside in self._aside_paths(vm, number, shared)], shared)

    def take_back(self, vm: VMName, number: int, shared: bool) -> Reply:
        """Undo ``put_aside``."""
        return self._rename(vm, [(aside, plain) for plain, aside in self._aside_paths(vm, number, shared)], shared)

    def drop_aside(self, vm: VMName, number: int, shared: bool) -> Reply:
        """Remove the files of ``put_aside``."""
        paths = self._aside_paths(vm, number, shared)
        with files.lock(self.store(shared), vm.identity, still=self.still_wanted):
            files.remove(*(aside for _, aside in paths))
        return {}

    def verify_aside(self, vm: VMName, number: int, size: int, blake2b: str, shared: bool) -> Reply:
        """Read the state that was put aside."""
        _, aside = self._aside_paths(vm, number, shared)[0]
        with files.lock(aside.parent, vm.identity, still=self.still_wanted, shared=True):
            _require_digest(vm, aside, size, blake2b)
        return {}

    def _aside_paths(self, vm: VMName, number: int, shared: bool) -> list[tuple[Path, Path]]:
        """Plain and other name: of the state, then of the disk's files. No other verb takes the latter for the VM's."""
        state, _ = self.state_paths(vm, shared)
        plain = [state, *(self._vm_dir() / f"{vm.name}.{kind}" for kind in ("qcow2", "iso"))]
        return [(path, path.with_name(f"aside-{number}.{path.name}")) for path in plain]

    def _rename(self, vm: VMName, pairs: list[tuple[Path, Path]], shared: bool) -> Reply:
        with files.lock(self.store(shared), vm.identity, still=self.still_wanted):
            if all(files.size_of(path) is None for pair in pairs for path in pair):
                raise AgentError("not_found", f"no state of {vm.name}")
            for source, destination in pairs:
                if files.size_of(source) is None:
                    continue  # done already, or never existed
                if files.size_of(destination) is not None:
                    raise AgentError("failed", f"{destination} is in the place of {source.name}")
                source.rename(destination)
                files.sync_directory(source.parent)
        return {"state": files.size_of(pairs[0][1]) is not None}

    def end_room(self, job: int) -> Reply:
        """End the engine's room of this job, unless a VM of ours is here: its epilog would end that VM, too.

        No engine of a higher epoch is obeyed between the look and the end, so none has VMs created meanwhile.
        """
        from rmsplugin.node_agent import room  # here: the other verbs start faster without it

        with self.one_act():
            files.require_listener()
            vms = sorted(self._platform.running_vms(_PROC))
            return {"vms": vms, "ended": not vms and room.end(job, self._config.engine_user, _PROC)}

    def check(self) -> Reply:
        """Describe the node without changing it."""
        from rmsplugin.node_agent import (
            guards,
            templates,
        )  # here: it imports this module, and other verbs start faster without it

        config = self._config
        return {
            "version": __version__,
            "time": time.time(),
            "bridge": os.path.isdir(os.path.join("/sys/class/net", os.path.basename(config.bridge), "bridge")),
            "store": _describe(config.store),
            "vm_dir": _describe(config.vm_dir),
            "shared_store": _describe(config.shared_store) if config.shared_store else None,
            "node_key": _describe(Path(config.node_key)),
            "known_hosts": _describe(Path(config.known_hosts)),
            "images": {path: os.access(path, os.R_OK) for path in config.images},
            "writable_images": [path for path in config.images if os.access(path, os.W_OK)],
            "templates": templates.stored(config),
            "epoch": epoch.highest(epoch.of_node(config.vm_dir)),
            **guards.seen(config.filters),
            **self._platform.check(config.vm_dir, config),
        }

    def look_at_mounts(self) -> Reply:
        """Tell whether the node has what guests mount, or reaches it; a verb of its own, since it may take 5 s."""
        return self._platform.mounts(self._config)

    def state_paths(self, vm: VMName, shared: bool, checkpoint: int = 0) -> tuple[Path, Path]:
        """Final and temporary name of the VM's state, or of the checkpoint with this number."""
        directory = self.store(shared)
        name = f"{_CHECKPOINT}{checkpoint}.{vm.name}.state" if checkpoint else f"{vm.name}.state"
        return directory / name, directory / f"{name}.partial"


def lock_state(
    final: Path, vm: VMName, still: Callable[[], None], checkpoint: int = 0, *, shared: bool = False
) -> AbstractContextManager[None]:
    """Keep other agents off the VM's states, or off this checkpoint of it; ``still``: as for ``files.lock``.

    Each checkpoint has a lock of its own: a copy whose sender has died does not block the checkpoint before.
    """
    if not checkpoint:
        return files.lock(final.parent, vm.identity, still=still, shared=shared)
    _, index = vm.identity
    return files.lock(final.parent, (checkpoint, index), still=still, shared=shared, kind=_CHECKPOINT)


def incoming_path(final: Path) -> Path:
    """The path to which a copy from another node is written: never over a file that the platform writes on this one."""
    return final.with_name(f"{final.name}.incoming")


def _require_digest(vm: VMName, path: Path, size: int, blake2b: str) -> None:
    from rmsplugin.node_agent import digests

    found = files.size_of(path)
    if found is None:
        raise AgentError("not_found", f"no state of {vm.name}")
    if found != size:
        raise AgentError("corrupt", f"the state of {vm.name} has {found} bytes, not {size}")
    if digests.digest_of(path) != (size, blake2b):
        raise AgentError("corrupt", f"the state of {vm.name} is not what was saved")


def _vms(names: Any) -> list[str]:
    return sorted(name for name in names if parse_vm_name(name))


def _describe(path: Path) -> Reply:
    try:
        status = path.stat()
    except OSError:
        return {"path": str(path), "exists": False}
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    mode = f"{status.st_mode & 0o7777:04o}"
    return {"path": str(path), "exists": True, "owner": owner, "mode": mode, "free_bytes": files.free_bytes(path)}


def standard_input(limit: int) -> bytes:
    """All of standard input, if there is some and no more than ``limit`` bytes."""
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise AgentError("failed", f"more than {limit} bytes")
    if not content:
        raise AgentError("failed", "standard input is empty")
    return content
