"""The node's half of podman behind its Protocol. Each method imports what it alone needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmsplugin.errors import OperationFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import IO, Any

    from rmsplugin.adapters.platform.node_base import Facts, Identity, MemoryGroups, NodeSettings, Unpacked, VMs


class PodmanOnNode:
    """Implements ``node_base.PlatformOnNode``."""

    def sockets(self, *, look: bool) -> tuple[str, ...]:
        """See ``PlatformOnNode``: no engine reaches podman itself."""
        return ()

    def is_whole(self, state: Path) -> bool:
        """See ``SavedStates``."""
        from rmsplugin.adapters.platform.podman.on_node import state_file

        return state_file.read(state) is not None

    def require_restorable(self, state: Path) -> None:
        """See ``SavedStates``: CRIU says so when it restores."""

    def head_as(self, state: IO[bytes], identity: Identity) -> bytes:
        """See ``SavedStates``."""
        raise OperationFailedError("podman has no templates")

    def unpacked(self, state: IO[bytes]) -> Unpacked:
        """See ``SavedStates``."""
        raise OperationFailedError("podman has no templates")

    def memory_groups(self, root: Path) -> MemoryGroups:
        """See ``Memory``."""
        from rmsplugin.adapters.platform.node_base import MemoryGroups

        return MemoryGroups("", "", "each container has a bound of its own, and all of them together have none")

    def creates(self, words: Sequence[str]) -> bool:
        """See ``Creation``: podman asks nobody."""
        return False

    def refusal(self, words: Sequence[str], description: str, settings: NodeSettings, facts: Facts) -> str:
        """See ``Creation``."""
        return ""

    def silence(self) -> str:
        """See ``Rooms``."""
        from rmsplugin.adapters.platform.podman.on_node import rooms

        return rooms.silence()

    def running_vms(self, proc: Path) -> dict[str, list[int]]:
        """See ``Rooms``."""
        from rmsplugin.adapters.platform.podman.on_node import rooms

        return rooms.running_vms(proc)

    def end_vm(self, name: str) -> None:
        """See ``Rooms``."""
        from rmsplugin.adapters.platform.podman.on_node import rooms

        rooms.end_vm(name)

    def vms(self) -> VMs:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.podman.on_node.vms import ContainersOnNode

        return ContainersOnNode()

    def forget(self, name: str) -> None:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.podman.on_node import vms

        vms.forget(name)

    def make_overlay(self, base: str, overlay: Path) -> None:
        """See ``PlatformOnNode``."""
        raise OperationFailedError("containers have no disks")

    def programs(self) -> tuple[str, ...]:
        """See ``PlatformOnNode``."""
        return ()

    def reach(self, node: str) -> dict[str, Any]:
        """See ``PlatformOnNode``: no node obeys another."""
        return {}

    def check(self, vm_dir: Path, settings: NodeSettings) -> dict[str, Any]:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.podman.on_node import facts

        return {"platform": facts.seen(settings.references)}

    def mounts(self, settings: NodeSettings) -> dict[str, Any]:
        """See ``PlatformOnNode``: a container has directories of its node."""
        from rmsplugin.adapters.platform.podman.on_node import mounted

        return {"mounts": mounted.seen(settings.mount_targets)}
