"""Small queues on small clusters, written down in a line each."""

from __future__ import annotations

from typing import Any

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import TERMINATED, VM, WAITING, Location, Node, NodeState, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources


class Queue:
    """Vjobs in queue order, and where their VMs are."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes
        self.vjobs: list[VJob] = []
        self.locations: dict[str, Location] = {}

    def add(
        self, name: str, *where: str, cpus: float = 1, memory_mib: int = 0, vms: int | None = None, **known: Any
    ) -> Queue:
        """A vjob of equal VMs: running on the nodes ``where``; ``zz:n1`` = asleep there; of ``vms`` VMs if it waits."""
        count = vms if vms is not None else max(1, len(where))
        members = tuple(VM(f"{name}-{i}", Resources(cpus, memory_mib)) for i in range(count))
        self.vjobs.append(VJob(name, members, **known))
        for i, vm in enumerate(members):
            self.locations[vm.name] = _location(where[i] if i < len(where) else "")
        return self

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.nodes, tuple(self.vjobs), self.locations)

    def decide(self, policy: str, **tunables: Any) -> Decision:
        decision = decide(policy, self.configuration, Parameters(**tunables))
        assert isinstance(decision, Decision), decision
        return decision


def _location(where: str) -> Location:
    if where.startswith("zz:"):
        return sleeping_on(where.removeprefix("zz:"))
    return TERMINATED if where == "ended" else running_on(where) if where else WAITING


def nodes(count: int, cpus: float = 1, memory_mib: int = 4096, state: NodeState = NodeState.UP) -> list[Node]:
    return [Node(f"n{i}", Resources(cpus, memory_mib), state) for i in range(1, count + 1)]


def states(decision: Decision) -> dict[str, str]:
    return {name: str(state) for name, state in decision.states.items()}


def running(decision: Decision) -> set[str]:
    return {name for name, state in decision.states.items() if state == "running"}
