"""Templates: the states of VMs that were saved before they had an identity, from which other VMs start.

A template is named by a key (the engine's digest of the virtual hardware, the node's CPU and its hypervisor) and by
its image and hypervisor at that time. A template of an older image or hypervisor is removed when it is met. The store
is bounded; the template that was not used for the longest time goes first.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rmsplugin.adapters.platform.node_base import Identity, PlatformOnNode
from rmsplugin.node_agent import files
from rmsplugin.node_agent.config import AgentConfig
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.saved_state import copy_as, copy_unpacked, rename
from rmsplugin.node_agent.spare import SUFFIX, Spare
from rmsplugin.node_agent.values import Reply, VMName

#: The guest's message on its console when a template of it can be saved.
WAITING = b"rmsplugin-guest: waiting"
#: The time that a VM has to make a template; then another may try.
_CLAIM_S = 600.0
#: After a template has failed, VMs of its key are booted for so long.
_REFUSED_S = 3600.0
#: No state of a VM was seen to be more than so many times as large without its compression.
_UNPACKED_MOST = 10
_POLL_S = 0.1
COPIED: Reply = {"template": "copied"}
_MODE = 0o700


class Template:
    """The template of one key, for one image: its files, and the notes beside them."""

    def __init__(
        self, config: AgentConfig, platform: PlatformOnNode, key: str, image: str, still: Callable[[], None]
    ) -> None:
        """Meet the template; ``still``: as for ``files.lock``."""
        if image not in config.image_files:
            raise AgentError("failed", f"not an image of the settings: {image[:80]!r}")
        self._config, self._platform, self._key, self._still = config, platform, key, still
        self._directory = config.templates
        files.make_private(self._directory, _MODE)
        self._stamps = f"{_stamp(config.image_files[image])}-{_stamp(platform.programs())}"
        name = f"{key}-{self._stamps}"
        self._state = self._directory / f"{name}.state"
        self._spare = Spare(self._state)
        self._disk = self._directory / f"{name}.disk"
        self._has_disk = not config.bases.isdisjoint(config.image_files[image])
        self._claim = self._directory / f"{name}.claim"
        self._refused = self._directory / f"{name}.refused"
        self._bound = config.templates_mib << 20

    def use(self, vm: VMName, uuid: str, mac: str) -> Reply:
        """Make a copy for the VM; else say whether the VM is to make the template, or simply to boot.

        A call that is late does nothing: the VM may run by now, with the disk that would be replaced.
        """
        self._drop_stale()
        with files.lock(self._config.vm_dir, vm.identity, still=self._still):
            self._drop_files_of(vm)
            try:
                self._copy_for(vm, Identity(vm.name, *vm.identity, uuid, mac))
                return COPIED
            except FileNotFoundError:
                self._drop_files_of(vm)
        if _is_young(self._refused, _REFUSED_S) or not self._config.templates_mib or not self._claimed_by(vm):
            return {"template": "boot"}
        return {"template": "make"}

    def _copy_for(self, vm: VMName, identity: Identity) -> None:
        """Make the copy. Raises FileNotFoundError if there is no template, or it is replaced meanwhile."""
        copy, origin = self._copy_of(vm), self._origin_of(vm)
        with self._spare.lock():
            self._spare.note_origin(origin)
            is_spare = origin.exists() and self._spare.take(copy)
        if is_spare:
            rename(self._platform, copy, identity)
        else:
            copy_as(self._platform, self._state, copy, identity)
        if self._has_disk:
            files.copy_whole(self._disk, self._disk_of(vm))
        if origin.exists() and not self._spare.is_origin(origin):
            raise FileNotFoundError(self._state)
        os.utime(self._state)

    def await_guest(self, vm: VMName, seconds: float) -> Reply:
        """Wait until the guest of the VM that makes the template reports that it waits, or until the time is over."""
        deadline = time.monotonic() + seconds
        begin = self._console_begin(vm)
        while not (waits := WAITING in _text_from(self._console_of(vm), begin)):
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        return {"waiting": waits}

    def keep_disk(self, vm: VMName) -> Reply:
        """Keep the disk of the VM that makes the template, in its state of the moment when its memory was saved."""
        self._console_begin(vm)
        kept = self._kept_disk_of(vm)
        files.remove(kept)
        files.copy_whole(self._disk_of(vm), kept)
        return {}

    def settle(self, vm: VMName) -> Reply:
        """Handle a successful start: the VM's saved state becomes the template, or the copy that it used the spare."""
        copy, disk, origin = self._copy_of(vm), self._kept_disk_of(vm), self._origin_of(vm)
        if not self._is_made_by(vm):
            if self._is_room_for(files.size_of(copy) or 0):
                self._spare.keep(copy, origin)
            files.remove(copy, origin)
            return {"kept": False}
        try:
            is_whole = files.size_of(copy) is not None and (not self._has_disk or files.size_of(disk) is not None)
            kept = is_whole and self._keep(copy, disk)
        finally:
            files.remove(copy, disk, self._claim)
        return {"kept": kept}

    def refuse(self, vm: VMName) -> Reply:
        """Handle a failed template, or one that could not be made: remove it, and have none made for a while."""
        with files.lock(self._config.vm_dir, vm.identity, still=self._still):
            self._drop_files_of(vm)
        with self._spare.lock():
            files.remove(*_files_of(self._state), self._claim, self._refused)
            files.create(self._refused).close()
        return {}

    def _console_begin(self, vm: VMName) -> int:
        """The offset in the VM's console at which it began to make the template."""
        try:
            claimed_by, begin = self._claim.read_text().split()
        except (FileNotFoundError, ValueError):
            raise AgentError("not_found", f"{vm.name} does not make a template") from None
        if claimed_by != vm.name:
            raise AgentError("not_found", f"{claimed_by} makes the template, not {vm.name}")
        return int(begin)

    def _claimed_by(self, vm: VMName) -> bool:
        """Whether this VM may make the template: one VM at a time does."""
        if not _is_young(self._claim, _CLAIM_S) or self._is_made_by(vm):
            files.remove(self._claim)
        try:
            with files.create(self._claim) as file:
                file.write(f"{vm.name} {files.size_of(self._console_of(vm)) or 0}\n".encode())
        except FileExistsError:
            return False
        return True

    def _is_made_by(self, vm: VMName) -> bool:
        try:
            return self._claim.read_text().split()[:1] == [vm.name]
        except FileNotFoundError:
            return False

    def _drop_stale(self) -> None:
        """Remove files that were made with another hypervisor, or from another state of this image."""
        programs = self._stamps.partition("-")[2]
        stale = []
        for path in self._directory.glob("[!.]*"):  # not the lock
            key, _, stamps = path.stem.partition("-")
            if stamps.partition("-")[2] != programs or (key == self._key and stamps != self._stamps):
                stale.append(path)
        if stale:
            with self._spare.lock():
                files.remove(*stale)

    def _keep(self, made: Path, disk: Path) -> bool:
        """Keep the state as the template, uncompressed: so each start from it is faster."""
        if made.stat().st_size * _UNPACKED_MOST > files.free_bytes(self._directory):
            return False
        partial, partial_disk = self._state.with_suffix(".partial"), self._disk.with_suffix(".partial-disk")
        files.remove(partial, partial_disk)
        try:
            copy_unpacked(self._platform, made, partial)
            if self._has_disk:
                files.copy_whole(disk, partial_disk)
            size = sum(files.size_of(path) or 0 for path in (partial, partial_disk))
            with self._spare.lock():
                kept = self._make_room(size)
                if kept:
                    files.remove(self._state, self._spare.path)
                    # The state comes last: without it there is no template.
                    if self._has_disk:
                        partial_disk.rename(self._disk)
                    partial.rename(self._state)
        finally:
            files.remove(partial, partial_disk)
        return kept

    def _make_room(self, size: int) -> bool:
        """Remove spares, and then the least recently used templates, until so many bytes fit.

        Returns whether they do.
        """
        if size > self._bound:
            return False
        if not self._is_room_for(size):
            files.remove(*self._directory.glob(f"*{SUFFIX}"))
        states = sorted(self._directory.glob("*.state"), key=lambda path: path.stat().st_mtime)
        while states and (not self._is_room_for(size) or len(states) >= self._config.templates_number):
            files.remove(*_files_of(states.pop(0)))
        return True

    def _is_room_for(self, size: int) -> bool:
        return sum(map(_size_of, self._directory.glob("*.state"))) + size <= self._bound

    def _drop_files_of(self, vm: VMName) -> None:
        """Remove all states from which the VM starts, and the disk that belongs to them."""
        files.remove(self._copy_of(vm), self._origin_of(vm))
        if self._has_disk:
            files.remove(self._kept_disk_of(vm), self._disk_of(vm))

    def _copy_of(self, vm: VMName) -> Path:
        """The path of the VM's own state while it starts: among the files that go when the VM goes."""
        return self._config.vm_dir / f"{vm.name}.template"

    def _origin_of(self, vm: VMName) -> Path:
        """The path of a link to the state of which the VM's own one is a copy."""
        return self._config.vm_dir / f"{vm.name}.template-origin"

    def _disk_of(self, vm: VMName) -> Path:
        return self._config.vm_dir / f"{vm.name}.qcow2"

    def _kept_disk_of(self, vm: VMName) -> Path:
        return self._config.vm_dir / f"{vm.name}.template-disk"

    def _console_of(self, vm: VMName) -> Path:
        return self._config.vm_dir / f"{vm.name}.console"


def stored(config: AgentConfig) -> Reply:
    """The number of templates that the node has, and their size."""
    sizes = [_size_of(path) for path in config.templates.glob("*.state")]
    return {"number": len(sizes), "bytes": sum(sizes)}


def _size_of(state: Path) -> int:
    """Bytes of a template."""
    return sum(files.size_of(path) or 0 for path in _files_of(state))


def _files_of(state: Path) -> tuple[Path, ...]:
    """The files of a template: its state, and its spare and its disk if it has them."""
    return state, state.with_suffix(SUFFIX), state.with_suffix(".disk")


def _stamp(paths: Iterable[str]) -> str:
    """A stamp that changes when one of the files does."""
    facts = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            facts.append((path, 0, 0))
        else:
            facts.append((path, status.st_size, status.st_mtime_ns))
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def _is_young(path: Path, seconds: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime < seconds
    except FileNotFoundError:
        return False


def _text_from(path: Path, begin: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read()
    except FileNotFoundError:
        return b""
