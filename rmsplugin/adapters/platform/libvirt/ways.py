"""Ways: how the engine connects to the libvirt of a node."""

from __future__ import annotations

from typing import Protocol

import libvirt

from rmsplugin.adapters.platform.base import WaysThroughAgents


class Way(Protocol):
    """The way to all nodes. Several threads may call."""

    def open(self, node: str) -> libvirt.virConnect:
        """Connect; blocks. Raises libvirtError, and what the way itself meets."""
        ...

    def close(self) -> None:
        """Let everything go."""
        ...


class ByUri:
    """A ``Way`` of libvirt's own, such as TLS."""

    def __init__(self, template: str) -> None:
        """``template``: the URI of the libvirtd of ``{node}``."""
        self._template = template

    def open(self, node: str) -> libvirt.virConnect:
        """See ``Way``."""
        return libvirt.open(self._template.format(node=node))

    def close(self) -> None:
        """See ``Way``: nothing is kept."""


class ThroughAgents:
    """A ``Way`` on which no engine passes whose turn is over."""

    def __init__(self, ways: WaysThroughAgents) -> None:
        """Connect to nothing yet."""
        self._ways = ways

    def open(self, node: str) -> libvirt.virConnect:
        """See ``Way``. Raises as ``WaysThroughAgents.path``, too."""
        with self._ways.path(node) as path:
            uri = f"qemu+unix:///system?socket={path}"
            return libvirt.openReadOnly(uri) if self._ways.only_looks else libvirt.open(uri)

    def close(self) -> None:
        """See ``Way``."""
        self._ways.close()
