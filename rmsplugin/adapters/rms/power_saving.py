"""Power saving: which nodes the RMS's own settings keep on. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

#: Slurm's words in SuspendExcStates that are other words in the state of a node.
_SHOWN_AS = {"MAINTENANCE": "MAINT"}


@dataclass(frozen=True, slots=True)
class KeptOn:
    """Nodes of which the RMS wants some to be on and idle (SuspendExcNodes).

    Attributes:
        nodes: their names.
        count: so many of them; None: all of them.
    """

    nodes: frozenset[str]
    count: int | None = None


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """How the RMS powers nodes down and up.

    Attributes:
        suspend_program: what it runs when it powers nodes down; empty: nodes can be powered neither down nor up.
        resume_program: what it runs when it powers nodes up; likewise.
        suspend_timeout_s: so long a node is powering down, whatever happens to it.
        resume_timeout_s: a node that does not register within this time is down.
        nodes: SuspendExcNodes.
        partitions: SuspendExcParts: their nodes stay on.
        states: SuspendExcStates: nodes in such a state stay on.
    """

    suspend_program: str = ""
    resume_program: str = ""
    suspend_timeout_s: int = 30
    resume_timeout_s: int = 60
    nodes: tuple[KeptOn, ...] = ()
    partitions: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether the RMS powers any node down."""
        return bool(self.suspend_program and self.resume_program)

    def keeps_on(self, node: str, partitions: Collection[str], flags: Collection[str], idle: Collection[str]) -> str:
        """Why this node has to stay on, in a sentence; empty: it may be powered down.

        Args:
            node: its name.
            partitions: those that have it.
            flags: the words of its state.
            idle: the other nodes that are on, have no job, and may take one.
        """
        if not self.enabled:
            return "slurm.conf has no SuspendProgram and ResumeProgram, without which Slurm powers nothing down"
        for each in self.nodes:
            if node in each.nodes and (each.count is None or len(each.nodes.intersection(idle)) < each.count):
                some = "" if each.count is None else f": {each.count} of its nodes have to be on and idle"
                return f"SuspendExcNodes of slurm.conf has {node}{some}"
        if named := sorted(set(partitions).intersection(self.partitions)):
            return f"SuspendExcParts of slurm.conf has {named[0]}, a partition of {node}"
        if shown := [state for state in self.states if _SHOWN_AS.get(state, state) in flags]:
            return f"SuspendExcStates of slurm.conf has {shown[0]}, a state of {node}"
        return ""
