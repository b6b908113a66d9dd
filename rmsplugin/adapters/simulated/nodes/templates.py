"""Simulated templates: the templates of all nodes, in memory."""

from __future__ import annotations

import threading
from dataclasses import replace

from rmsplugin.adapters.nodes.base import Template, TemplateUse
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles, SimulatedState
from rmsplugin.errors import CorruptStateError, NotFoundError


class SimulatedTemplates:
    """The templates of all nodes; there is no bound, and a refusal lasts for ever."""

    def __init__(self, files: SimulatedFiles, vm_dir: str) -> None:
        """Take the ``files`` among which copies lie, in ``vm_dir``."""
        self.guests_wait = True  # whether guests wait when told to
        self._files, self._vm_dir = files, vm_dir
        self.disks: dict[tuple[str, str], str] = {}  # of VMs: the base of each, or the source of its copy
        self._kept_disks: dict[
            tuple[str, str], str
        ] = {}  # of VMs that make templates, as of the moment when these were saved
        self._states: dict[tuple[str, Template], SimulatedState] = {}
        self._template_disks: dict[tuple[str, Template], str] = {}
        self._claims: dict[tuple[str, Template], str] = {}  # the VM that makes it
        self._refused: set[tuple[str, Template]] = set()
        self._lock = threading.RLock()

    def kept(self, node: str) -> int:
        """The number of templates that the node has."""
        with self._lock:
            return sum(owner == node for owner, _ in self._states)

    def damage(self, node: str) -> None:
        """Make all templates of the node unusable, unnoticed."""
        with self._lock:
            for key, state in self._states.items():
                if key[0] == node:
                    self._states[key] = replace(state, intact=False)

    def make_disk(self, node: str, vm: str, base: str) -> None:
        """Give the VM a disk of its own on ``base``, if it has none."""
        with self._lock:
            self.disks.setdefault((node, vm), base)

    def use(self, node: str, vm: str, template: Template) -> TemplateUse:
        """See ``Nodes.use_template``."""
        with self._lock:
            self.drop(node, vm)
            if (node, template) in self._states:
                state = self._states[node, template]
                if not state.intact:
                    raise CorruptStateError("the template is of a format that is not known")
                self._files.put(node, self._copy(vm), replace(state, vm=vm, template=True))
                if disk := self._template_disks.get((node, template)):
                    self.disks[node, vm] = disk
                return TemplateUse.COPIED
            if (node, template) in self._refused or self._claims.setdefault((node, template), vm) != vm:
                return TemplateUse.BOOT
            return TemplateUse.MAKE

    def await_guest(self, node: str, vm: str, template: Template) -> bool:
        """See ``Nodes.await_guest``."""
        with self._lock:
            self._require_maker(node, vm, template)
            return self.guests_wait

    def keep_disk(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes.keep_disk``."""
        with self._lock:
            self._require_maker(node, vm, template)
            self._kept_disks[node, vm] = f"{self.disks[node, vm]}, as {vm} left it"

    def settle(self, node: str, vm: str, template: Template) -> bool:
        """See ``Nodes.settle_template``."""
        with self._lock:
            state, disk = self._files.get(node, self._copy(vm)), self._kept_disks.get((node, vm))
            made = self._claims.get((node, template)) == vm
            if made:
                del self._claims[node, template]
            kept = made and state is not None and (disk is not None or (node, vm) not in self.disks)
            if kept and state is not None:
                self._states[node, template] = state
                if disk is not None:
                    self._template_disks[node, template] = disk
            self._drop_copies(node, vm)
            return kept

    def refuse(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes.refuse_template``."""
        with self._lock:
            self._states.pop((node, template), None)
            self._template_disks.pop((node, template), None)
            self._claims.pop((node, template), None)
            self._refused.add((node, template))
            self.drop(node, vm)

    def drop(self, node: str, vm: str) -> None:
        """Remove the VM's own state and disk."""
        with self._lock:
            self._drop_copies(node, vm)
            self.disks.pop((node, vm), None)

    def _drop_copies(self, node: str, vm: str) -> None:
        self._files.drop(node, self._copy(vm))
        self._kept_disks.pop((node, vm), None)

    def _require_maker(self, node: str, vm: str, template: Template) -> None:
        if self._claims.get((node, template)) != vm:
            raise NotFoundError(f"{vm} does not make a template")

    def _copy(self, vm: str) -> str:
        return f"{self._vm_dir}/{vm}.template"
