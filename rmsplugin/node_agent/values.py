"""Values: what verbs are given, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.node_agent.errors import AgentError

Reply = dict[str, Any]
Report = Callable[[Reply], None]


class Guard(NamedTuple):
    """The addresses that a VM's interface is pinned to."""

    mac: str
    address: str


class VMName:
    """A VM name that was checked, with what it consists of."""

    def __init__(self, name: str) -> None:
        # ASCII: other scripts have digits too, and two names must not mean one VM.
        identity = parse_vm_name(name) if name.isascii() else None
        if identity is None:
            raise AgentError("failed", f"not the name of a VM: {name[:80]!r}")
        self.name = name
        self.identity = identity
