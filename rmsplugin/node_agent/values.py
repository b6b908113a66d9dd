"""Values: arguments and answers of the verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.node_agent.errors import AgentError

Reply = dict[str, Any]
Report = Callable[[Reply], None]


class Guard(NamedTuple):
    """The addresses to which a VM's interface is pinned."""

    mac: str
    address: str


class VMName:
    """A checked VM name, with its parts."""

    def __init__(self, name: str) -> None:
        # ASCII: other scripts have digits too, and two names must not mean one VM.
        identity = parse_vm_name(name) if name.isascii() else None
        if identity is None:
            raise AgentError("failed", f"not the name of a VM: {name[:80]!r}")
        self.name = name
        self.identity = identity
