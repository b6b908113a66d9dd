"""Memory: the control group in which libvirt puts the VMs whose memory is observed."""

from __future__ import annotations

from pathlib import Path

from rmsplugin.adapters.platform.libvirt.on_node.qemu_conf import QEMU_CONF, lines_of
from rmsplugin.adapters.platform.node_base import MemoryGroups

#: libvirt's groups for the partition /rmsplugin (libvirt/domain_xml.py): made by itself, and through systemd.
_PLAIN, _OF_SYSTEMD = "rmsplugin.partition", "rmsplugin.slice"


def groups(root: Path) -> MemoryGroups:
    """See ``Memory``."""
    return MemoryGroups(_PLAIN, _OF_SYSTEMD, _fault(root / QEMU_CONF.relative_to("/")))


def _fault(qemu_conf: Path) -> str:
    """Why libvirt, which puts VMs into groups of the memory controller unless told otherwise, does not."""
    named = lines_of("cgroup_controllers", qemu_conf)
    return "cgroup_controllers in libvirt's qemu.conf leaves out memory" if named and '"memory"' not in named[0] else ""
