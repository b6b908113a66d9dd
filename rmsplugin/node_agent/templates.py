"""Templates: the states of VMs that were saved before they knew who they are, from which others start.

A template is named by a key (the engine's digest of the virtual hardware, the node's CPU and its hypervisor) and by
what its image and QEMU were when it was made. One of an older image or QEMU is removed when it is met. The store is
bounded; what was not used for the longest time goes first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rmsplugin.node_agent import files
from rmsplugin.node_agent.config import AgentConfig
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.saved_state import Identity, copy_as, copy_unpacked
from rmsplugin.node_agent.verbs import Reply, VMName

#: What the guest says on its console where a template of it can be saved.
WAITING = b"rmsplugin-guest: waiting"
#: Who makes a template has so long; then another may try.
_CLAIM_S = 600.0
#: After a template has failed VMs of its key are booted for so long.
_REFUSED_S = 3600.0
#: No state of a VM was seen to be so many times as large without its compression.
_UNPACKED_MOST = 10
_POLL_S = 0.1
_QEMU = "qemu-system-x86_64"
_MODE = 0o700


class Template:
    """The template of one key, for one image: its file, and what is noted beside it."""

    def __init__(self, config: AgentConfig, key: str, image: str) -> None:
        if image not in config.image_files:
            raise AgentError("failed", f"not an image of the settings: {image[:80]!r}")
        self._config, self._key = config, key
        self._directory = config.templates
        files.make_private(self._directory, _MODE)
        self._stamps = f"{_stamp(config.image_files[image])}-{_stamp([shutil.which(_QEMU) or _QEMU])}"
        name = f"{key}-{self._stamps}"
        self._state = self._directory / f"{name}.state"
        self._claim = self._directory / f"{name}.claim"
        self._refused = self._directory / f"{name}.refused"

    def use(self, vm: VMName, uuid: str, mac: str) -> Reply:
        """Have a copy for the VM; else say whether it is to make the template, or to boot without ado."""
        self._drop_stale()
        copy = self._copy_of(vm)
        files.remove(copy)
        with suppress(FileNotFoundError):
            copy_as(self._state, copy, Identity(vm.name, *vm.identity, uuid, mac))
            os.utime(self._state)
            return {"template": "copied"}
        if _is_young(self._refused, _REFUSED_S) or not self._config.templates_mib or not self._claimed_by(vm):
            return {"template": "boot"}
        return {"template": "make"}

    def await_guest(self, vm: VMName, seconds: float) -> Reply:
        """Wait until the guest of the VM that makes the template says that it waits, or until the time is over."""
        deadline = time.monotonic() + seconds
        try:
            claimed_by, begin = self._claim.read_text().split()
        except (FileNotFoundError, ValueError):
            raise AgentError("not_found", f"{vm.name} does not make a template") from None
        if claimed_by != vm.name:
            raise AgentError("not_found", f"{claimed_by} makes the template, not {vm.name}")
        while not (waits := WAITING in _text_from(self._console_of(vm), int(begin))):
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        return {"waiting": waits}

    def settle(self, vm: VMName) -> Reply:
        """The VM has started well: the state that it made becomes the template; a copy that it used is removed."""
        copy = self._copy_of(vm)
        if not self._is_made_by(vm):
            files.remove(copy)
            return {"kept": False}
        try:
            kept = files.size_of(copy) is not None and self._keep(copy)
        finally:
            files.remove(copy, self._claim)
        return {"kept": kept}

    def refuse(self, vm: VMName) -> Reply:
        """The template has failed, or could not be made: it is gone, and none is made for a while."""
        files.remove(self._state, self._claim, self._refused, self._copy_of(vm))
        files.create(self._refused).close()
        return {}

    def _claimed_by(self, vm: VMName) -> bool:
        """Whether this VM may make the template: one does at a time."""
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
        """Remove what was made with another QEMU, or from another state of this image."""
        qemu = self._stamps.partition("-")[2]
        for path in self._directory.iterdir():
            key, _, stamps = path.stem.partition("-")
            if stamps.partition("-")[2] != qemu or (key == self._key and stamps != self._stamps):
                files.remove(path)

    def _keep(self, made: Path) -> bool:
        """Have the state as the template, uncompressed: each start from it is the sooner for it."""
        if made.stat().st_size * _UNPACKED_MOST > files.free_bytes(self._directory):
            return False
        partial = self._state.with_suffix(".partial")
        files.remove(partial)
        try:
            copy_unpacked(made, partial)
            kept = self._make_room(partial.stat().st_size)
            if kept:
                partial.rename(self._state)
        finally:
            files.remove(partial)
        return kept

    def _make_room(self, size: int) -> bool:
        """Remove the least recently used templates until one of so many bytes fits. Returns whether it does."""
        bound = self._config.templates_mib << 20
        if size > bound:
            return False
        states = sorted(self._directory.glob("*.state"), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in states)
        while states and (total + size > bound or len(states) >= self._config.templates_number):
            total -= states[0].stat().st_size
            files.remove(states.pop(0))
        return True

    def _copy_of(self, vm: VMName) -> Path:
        """Where the VM's own state lies while it starts: among the files that go when the VM goes."""
        return self._config.vm_dir / f"{vm.name}.template"

    def _console_of(self, vm: VMName) -> Path:
        return self._config.vm_dir / f"{vm.name}.console"


def stored(config: AgentConfig) -> Reply:
    """How many templates the node has, and their size."""
    sizes = [files.size_of(path) or 0 for path in config.templates.glob("*.state")]
    return {"number": len(sizes), "bytes": sum(sizes)}


def _stamp(paths: Iterable[str]) -> str:
    """Changes when one of the files does."""
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
