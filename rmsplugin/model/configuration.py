"""Configuration: a mapping of VMs to nodes, with each VM's state; viable if every running VM has its demand.

A contradiction is refused when a configuration is made, with the place of each fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from rmsplugin.model.elements import VM, Location, Node, VJob, VMState, held, state_of
from rmsplugin.model.joint import Concerning, Joint, Spread
from rmsplugin.model.resources import Resources
from rmsplugin.model.validation import InvalidConfigurationError, misplaced, problems
from rmsplugin.model.vjob import VJobState

#: Values that depend only on nodes and vjobs, and are handed on to a configuration with other locations.
_HANDED_ON = ("node_by_name", "vm_by_name", "vjob_by_vm", "joint", "concerning", "concerning_steps", "apart")
#: Values that depend only on nodes, VMs, rules about VMs beside each other, and locations.
_OF_SAME_VMS = (
    *(each for each in _HANDED_ON if each not in ("vjob_by_vm", "apart")),
    *("homes", "kept", "_states", "used", "_overloaded"),
)
#: Values that do not depend on the order of the vjobs.
_OF_ANY_ORDER = (*_HANDED_ON, "_states", "used", "_overloaded")


@dataclass(frozen=True)
class Configuration:
    """Nodes in file order, vjobs in the order of the queue (head first), and the location of each VM.

    Raises:
        InvalidConfigurationError: it contradicts itself (see ``rmsplugin.model.validation``).
    """

    nodes: tuple[Node, ...]
    vjobs: tuple[VJob, ...]
    locations: Mapping[str, Location]  # by VM name
    checked: bool = field(default=False, compare=False, repr=False)  # made from one that was checked already

    def __post_init__(self) -> None:
        """Refuse contradictions, and copy the caller's mapping, so that its later changes have no effect here."""
        if not self.checked:
            object.__setattr__(self, "locations", dict(self.locations))
            found = list(problems(self.nodes, self.vjobs, self.locations))
            if found:
                raise InvalidConfigurationError(found)

    def __hash__(self) -> int:
        """Equal configurations have equal hashes; computed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.nodes, self.vjobs, frozenset(self.locations.items())))

    def __getstate__(self) -> dict[str, Any]:
        """The state that a copy in another process needs: the fields. The rest is derived (string hashes differ)."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def node_by_name(self) -> Mapping[str, Node]:
        """Each node by its name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def vm_by_name(self) -> Mapping[str, VM]:
        """Each VM by its name."""
        return {vm.name: vm for vjob in self.vjobs for vm in vjob.vms}

    @cached_property
    def vjob_by_vm(self) -> Mapping[str, VJob]:
        """The vjob of each VM, by the VM's name."""
        return {vm.name: vjob for vjob in self.vjobs for vm in vjob.vms}

    @cached_property
    def joint(self) -> tuple[Joint, ...]:
        """The rules of vjobs about VMs beside each other, each once, in the order of their words."""
        sets = {id(vjob.rules): vjob.rules for vjob in self.vjobs if vjob.rules}.values()  # most vjobs share theirs
        found = {rule for rules in sets for rule in rules if isinstance(rule, Joint)}
        return tuple(sorted(found, key=lambda rule: (str(rule), rule.label))) if found else ()

    @cached_property
    def concerning(self) -> Concerning:
        """The same rules, found by the VMs that they are about."""
        return Concerning(self.joint)

    @cached_property
    def concerning_steps(self) -> Concerning:
        """Those of them that hold at every step of a plan."""
        if not any(rule.discrete for rule in self.joint):
            return self.concerning
        return Concerning(rule for rule in self.joint if not rule.discrete)

    @cached_property
    def apart(self) -> Mapping[str, Spread]:
        """The vjobs of which no two VMs may be on one node, by name, each with the rule about all its VMs.

        A vjob in transit is none of them: its VMs here stand for its holdings, and stay where they are.
        """
        if not any(isinstance(rule, Spread) for rule in self.joint):
            return {}
        found = {}
        for vjob in self.vjobs:
            spreads = (rule for rule in vjob.rules if isinstance(rule, Spread))
            if len(vjob.vms) > 1 and not vjob.in_transit:
                whole = next((rule for rule in spreads if all(vm.name in rule.vms for vm in vjob.vms)), None)
                if whole is not None:
                    found[vjob.name] = whole
        return found

    @cached_property
    def homes(self) -> dict[str, str]:
        """The node of each VM that has memory, by its name."""
        return {name: at.node for name, at in self.locations.items() if at.state.holds_memory and at.node is not None}

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What those who decide keep for further decisions about the same VMs, by names of their own."""
        return {}

    @cached_property
    def _states(self) -> dict[str, VJobState]:
        """Results of ``state``, by vjob name: a decision asks for most of them several times."""
        return {}

    @cached_property
    def used(self) -> Mapping[str, Resources]:
        """The summed demand of each node's running VMs, and the memory of its paused ones, by node name."""
        cpus = {node.name: 0.0 for node in self.nodes}
        memory = {node.name: 0 for node in self.nodes}
        running, paused, locations = VMState.RUNNING, VMState.PAUSED, self.locations
        for vjob in self.vjobs:
            for vm in vjob.vms:
                location = locations[vm.name]
                if location.state is running and location.node is not None:
                    cpus[location.node] += vm.demand.cpus
                    memory[location.node] += vm.demand.memory_mib
                elif location.state is paused and location.node is not None:
                    memory[location.node] += vm.demand.memory_mib
        return {name: Resources(cpus[name], memory[name]) for name in cpus}

    def free(self, node: str) -> Resources:
        """The free resources of a node; below 0 where its VMs demand more than it has."""
        return self.node_by_name[node].capacity - self.used[node]

    def overloaded(self) -> list[str]:
        """Nodes whose VMs demand more than they have: empty if the configuration is viable."""
        return list(self._overloaded)

    @cached_property
    def _overloaded(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if not node.capacity.holds(self.used[node.name]))

    def state(self, vjob: VJob) -> VJobState:
        """The state of a vjob, also while its VMs differ (see ``state_of``)."""
        found = self._states.get(vjob.name)
        if found is None:
            found = self._states[vjob.name] = state_of(vjob, self.locations)
        return found

    def in_order(self, vjobs: Sequence[VJob]) -> Configuration:
        """The same nodes, vjobs and locations, with the vjobs in another order. ``vjobs``: all of them, each once."""
        assert len(vjobs) == len(self.vjobs), "an order has all vjobs"
        found = Configuration(self.nodes, tuple(vjobs), self.locations, checked=True)
        found.__dict__["_states"] = self._states  # each of the two tells the other what it finds
        found.__dict__.update((name, self.__dict__[name]) for name in _OF_ANY_ORDER if name in self.__dict__)
        return found

    def with_vjobs(self, vjobs: Sequence[VJob]) -> Configuration:
        """The same nodes, VMs and locations, with vjobs of the same names and order that differ in other facts.

        Their rules about VMs beside each other are the same.
        """
        found = Configuration(self.nodes, tuple(vjobs), self.locations, checked=True)
        found.__dict__.update((name, self.__dict__[name]) for name in _OF_SAME_VMS if name in self.__dict__)
        return found

    def with_locations(self, updates: Mapping[str, Location]) -> Configuration:
        """The same nodes and vjobs with some VMs elsewhere. Costs little more than ``updates`` is long.

        Raises:
            InvalidConfigurationError: a VM or node of ``updates`` is unknown, or a location does not suit a VM's state.
        """
        known = self.locations
        moves = {name: at for name, at in updates.items() if known.get(name) is not at and known.get(name) != at}
        if not moves:
            return self
        found = list(misplaced(moves, self.vm_by_name, self.node_by_name))
        if found:
            raise InvalidConfigurationError(found)
        changed = Configuration(self.nodes, self.vjobs, {**known, **moves}, checked=True)
        # A plan of thousands of actions is applied step by step: deriving these values anew each time would be
        # quadratic.
        for name in _HANDED_ON:
            if name in self.__dict__:
                changed.__dict__[name] = self.__dict__[name]
        if "used" in self.__dict__:
            changed.__dict__["used"] = self._used_after(moves)
        if "_states" in self.__dict__:
            states = changed.__dict__["_states"] = dict(self._states)
            for name in moves:
                states.pop(self.vjob_by_vm[name].name, None)
        return changed

    def _used_after(self, updates: Mapping[str, Location]) -> Mapping[str, Resources]:
        used = dict(self.used)
        for name, location in updates.items():
            vm, before = self.vm_by_name[name], self.locations[name]
            if before.state.holds_memory and before.node is not None:
                used[before.node] -= held(vm, before.state)
            if location.state.holds_memory and location.node is not None:
                used[location.node] += held(vm, location.state)
        return used
