"""The node's half of libvirt behind its Protocol. Each method imports what it alone needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import IO, Any

    from rmsplugin.adapters.platform.node_base import Facts, Identity, MemoryGroups, NodeSettings, Unpacked


class LibvirtOnNode:
    """Implements ``node_base.PlatformOnNode``."""

    def sockets(self, *, look: bool) -> tuple[str, ...]:
        """See ``PlatformOnNode``: libvirtd's, or virtproxyd's, comes first, as for libvirt's own clients."""
        return tuple(f"/run/libvirt/{name}{'-ro' if look else ''}" for name in ("libvirt-sock", "virtqemud-sock"))

    def is_whole(self, state: Path) -> bool:
        """See ``SavedStates``."""
        from rmsplugin.adapters.platform.libvirt.on_node import formats

        return formats.is_whole(state)

    def require_restorable(self, state: Path) -> None:
        """See ``SavedStates``."""
        from rmsplugin.adapters.platform.libvirt.on_node import formats

        formats.require_program(state)

    def head_as(self, state: IO[bytes], identity: Identity) -> bytes:
        """See ``SavedStates``."""
        from rmsplugin.adapters.platform.libvirt.on_node import saved_state

        return saved_state.head_as(state, identity)

    def unpacked(self, state: IO[bytes]) -> Unpacked:
        """See ``SavedStates``."""
        from rmsplugin.adapters.platform.libvirt.on_node import saved_state

        return saved_state.unpacked(state)

    def memory_groups(self, root: Path) -> MemoryGroups:
        """See ``Memory``."""
        from rmsplugin.adapters.platform.libvirt.on_node import memory

        return memory.groups(root)

    def creates(self, words: Sequence[str]) -> bool:
        """See ``Creation``."""
        from rmsplugin.adapters.platform.libvirt.on_node import creation

        return creation.is_asked(words)

    def refusal(self, words: Sequence[str], description: str, settings: NodeSettings, facts: Facts) -> str:
        """See ``Creation``."""
        from rmsplugin.adapters.platform.libvirt.on_node import creation

        return creation.refusal(words[0], words[1], description, settings, facts)

    def silence(self) -> str:
        """See ``Rooms``."""
        from rmsplugin.adapters.platform.libvirt.on_node import rooms

        return rooms.silence()

    def running_vms(self, proc: Path) -> dict[str, list[int]]:
        """See ``Rooms``."""
        from rmsplugin.adapters.platform.libvirt.on_node import rooms

        return rooms.running_vms(proc)

    def end_vm(self, name: str) -> None:
        """See ``Rooms``."""
        from rmsplugin.adapters.platform.libvirt.on_node import rooms

        rooms.end_vm(name)

    def vms(self) -> None:
        """See ``PlatformOnNode``: engines reach libvirt itself."""

    def forget(self, name: str) -> None:
        """See ``PlatformOnNode``: libvirt keeps nothing of a transient VM."""

    def make_overlay(self, base: str, overlay: Path) -> None:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.libvirt.on_node import disks

        disks.make_overlay(base, overlay)

    def programs(self) -> tuple[str, ...]:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.libvirt.on_node import saved_state

        return saved_state.programs()

    def reach(self, node: str) -> dict[str, Any]:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.libvirt.on_node import reach

        return {"libvirt_open": reach.is_open(node)}

    def check(self, vm_dir: Path, settings: NodeSettings) -> dict[str, Any]:
        """See ``PlatformOnNode``."""
        from rmsplugin.adapters.platform.libvirt.on_node import account, formats, guards

        return {**formats.seen(), **guards.seen(), **account.seen(vm_dir)}

    def mounts(self, settings: NodeSettings) -> dict[str, Any]:
        """See ``PlatformOnNode``: VMs mount from servers by themselves."""
        from rmsplugin.adapters.platform.libvirt.on_node import servers

        return {"file_servers": servers.seen(settings.file_servers)}
