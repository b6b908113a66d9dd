"""The checks of a platform: what `rmsplugin check` has it say of the nodes, as pure rules on facts.

Contract, for every implementation: nothing is asked and nothing is changed; who calls has the facts. A fact that a node
does not tell, for its release is older, gives no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from rmsplugin.adapters.platform.base import HostInfo
from rmsplugin.finding import Finding


class AgentFacts(Protocol):
    """What a node's agent tells of the platform there: a part of ``adapters.nodes.base.NodeCheck``."""

    @property
    def save_format(self) -> str:
        """How the platform compresses saves; "" unknown."""
        ...

    @property
    def snapshot_format(self) -> str:
        """As ``save_format``, of checkpoints."""
        ...

    @property
    def restorable_formats(self) -> frozenset[str]:
        """The formats for which the node has the programs."""
        ...

    @property
    def vm_hook(self) -> bool | None:
        """Whether the platform's hook refuses VMs that are not ours; None: an older release."""
        ...

    @property
    def filter_tools(self) -> tuple[str, ...]:
        """Missing programs by which the platform filters."""
        ...

    @property
    def writable_images(self) -> frozenset[str]:
        """Image files that root there may write, and give to others."""
        ...

    @property
    def hidden_vm_dir(self) -> str:
        """The first directory on the way to ``vm_dir`` that the account of VMs may not pass."""
        ...

    @property
    def kvm_closed(self) -> bool | None:
        """Whether that account may not open /dev/kvm, which is there; None: not known."""
        ...

    @property
    def platform(self) -> Mapping[str, Any]:
        """What else the platform of the node tells; none: nothing, or an older release."""
        ...


class PlatformChecks(Protocol):
    """The rules of one platform, under the settings of the site. ``subject``: where a finding is, for people."""

    def silent(self, subject: str, node: str, reason: str) -> Iterator[Finding]:
        """Judge a node whose platform does not answer, for this reason."""
        ...

    def host(self, subject: str, info: HostInfo, agent: AgentFacts | None) -> Iterator[Finding]:
        """Judge what the platform says of a node; ``agent`` is None where the node's agent does not answer."""
        ...

    def states(self, subject: str, agent: AgentFacts) -> Iterator[Finding]:
        """Judge how the platform of a node saves VMs."""
        ...

    def guards(self, subject: str, agent: AgentFacts) -> Iterator[Finding]:
        """Judge what the platform of a node lets others do there."""
        ...

    def mounts(self, subject: str, found: Mapping[str, Any]) -> Iterator[Finding]:
        """Judge what a node tells of what guests mount (``PlatformOnNode.mounts``)."""
        ...

    def states_between(self, agents: Mapping[str, AgentFacts]) -> Iterator[Finding]:
        """Judge whether what is saved on one node can be restored on all others; ``agents`` by node."""
        ...

    def open_between(self, subject: str, source: str, destination: str) -> Iterator[Finding]:
        """Say that the platform of one node obeys another node, which it must not."""
        ...
