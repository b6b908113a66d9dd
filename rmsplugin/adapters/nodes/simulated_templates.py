"""Simulated templates: those of all nodes, in memory."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.adapters.hypervisor.simulated_files import SimulatedFiles, SimulatedState
from rmsplugin.adapters.nodes.base import Template, TemplateUse
from rmsplugin.errors import CorruptStateError, NotFoundError


class SimulatedTemplates:
    """The templates of all nodes; there is no bound, and a refusal lasts for ever."""

    def __init__(self, files: SimulatedFiles, vm_dir: str) -> None:
        """Copies lie among ``files``, in ``vm_dir``."""
        self.guests_wait = True  # whether guests that are told to wait do so
        self._files, self._vm_dir = files, vm_dir
        self._states: dict[tuple[str, Template], SimulatedState] = {}
        self._claims: dict[tuple[str, Template], str] = {}  # the VM that makes it
        self._refused: set[tuple[str, Template]] = set()

    def kept(self, node: str) -> int:
        """How many templates the node has."""
        return sum(owner == node for owner, _ in self._states)

    def damage(self, node: str) -> None:
        """Make all templates of the node unusable, behind everybody's back."""
        for key, state in self._states.items():
            if key[0] == node:
                self._states[key] = replace(state, intact=False)

    def use(self, node: str, vm: str, template: Template) -> TemplateUse:
        """See ``Nodes.use_template``."""
        self.drop_copy(node, vm)
        if (node, template) in self._states:
            state = self._states[node, template]
            if not state.intact:
                raise CorruptStateError("the template is of a format that is not known")
            self._files.put(node, self._copy(vm), replace(state, vm=vm, template=True))
            return TemplateUse.COPIED
        if (node, template) in self._refused or self._claims.setdefault((node, template), vm) != vm:
            return TemplateUse.BOOT
        return TemplateUse.MAKE

    def await_guest(self, node: str, vm: str, template: Template) -> bool:
        """See ``Nodes.await_guest``."""
        if self._claims.get((node, template)) != vm:
            raise NotFoundError(f"{vm} does not make a template")
        return self.guests_wait

    def settle(self, node: str, vm: str, template: Template) -> bool:
        """See ``Nodes.settle_template``."""
        state = self._files.get(node, self._copy(vm))
        makes = self._claims.get((node, template)) == vm
        if makes:
            del self._claims[node, template]
        if makes and state is not None:
            self._states[node, template] = state
        self.drop_copy(node, vm)
        return makes and state is not None

    def refuse(self, node: str, vm: str, template: Template) -> None:
        """See ``Nodes.refuse_template``."""
        self._states.pop((node, template), None)
        self._claims.pop((node, template), None)
        self._refused.add((node, template))
        self.drop_copy(node, vm)

    def drop_copy(self, node: str, vm: str) -> None:
        """The VM's own state goes."""
        self._files.drop(node, self._copy(vm))

    def _copy(self, vm: str) -> str:
        return f"{self._vm_dir}/{vm}.template"
