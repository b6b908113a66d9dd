"""Rules for what is between VMs and others: network filters, and what whoever breaks out of a VM has."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.adapters.platform.base import NODE_FILTER, OUR_FILTER, HostInfo
from rmsplugin.adapters.platform.checks_base import AgentFacts
from rmsplugin.finding import Finding, error, ok, warning

_VM_ACCOUNT = "libvirt-qemu"


def judge_filter(wanted: str, subject: str, has: frozenset[str] | str) -> Iterator[Finding]:
    """Say whether VMs can have the network filter of the settings there: without it none of them starts."""
    if not wanted:
        yield warning(
            subject,
            "network.filter is empty: root in a guest can take the address of any VM or node",
            "remove the line from the settings: the default is nftables; see docs/operator/networks.md",
        )
    elif wanted == NODE_FILTER:
        return  # the node agent says whether it can
    elif isinstance(has, str):
        yield error(
            subject,
            f"libvirt has no network filters ({has}): no VM starts there, or comes there",
            "install libvirt's nwfilter driver (Debian: libvirt-daemon-config-nwfilter) and restart libvirtd; or take "
            "network.filter out of the settings: nodes filter without it",
        )
    elif wanted != OUR_FILTER and wanted not in has:
        yield error(
            subject,
            f"libvirt has no network filter {wanted}, which network.filter names: no VM starts there, or comes there",
            "`virsh nwfilter-define` it there; or take network.filter out of the settings: nodes filter without it",
        )
    else:
        yield ok(subject, f"VMs have the network filter {wanted}")


def judge_confinement(subject: str, info: HostInfo, agent: AgentFacts | None) -> Iterator[Finding]:
    """Judge what whoever breaks out of a VM has there; nothing of a node that does not tell."""
    if info.account_uid == 0:
        yield warning(
            subject,
            "QEMU runs as root: whoever breaks out of a VM is root of this node",
            f'set user = "{_VM_ACCOUNT}" and group = "{_VM_ACCOUNT}" in /etc/libvirt/qemu.conf (Debian has these), '
            "restart libvirtd; VMs that run keep their account until they are suspended and resumed",
        )
    if info.confined_by == "":
        yield warning(
            subject,
            "neither AppArmor nor SELinux confines QEMU: whoever breaks out of a VM has the files of all VMs there",
            "boot a kernel with AppArmor, install Debian's package apparmor, leave security_driver of qemu.conf unset, "
            "restart libvirtd (docs/operator/certificates-and-keys.md)",
        )
    if not info.account_uid:
        return
    if agent is None:
        return  # which is told already
    if agent.hidden_vm_dir:
        yield error(
            subject,
            f"QEMU runs with uid {info.account_uid}, which cannot pass {agent.hidden_vm_dir} to the files of its VM",
            f"chmod o+x {agent.hidden_vm_dir} on this node",
        )
    if agent.kvm_closed:
        yield warning(
            subject,
            f"QEMU runs with uid {info.account_uid}, which cannot open /dev/kvm: VMs are emulated, "
            "and libvirt starts a QEMU at each look, to learn what it can do",
            "give that account the group of /dev/kvm (Debian: usermod -a -G kvm libvirt-qemu) and restart libvirtd",
        )
    if agent.writable_images and not info.confined_by:
        yield warning(
            subject,
            f"libvirt gives {', '.join(sorted(agent.writable_images))} to QEMU's account (uid {info.account_uid}): "
            "whoever breaks out of a VM can write what the next ones boot",
            "mount the directory of the images read-only, if only over itself (mount --bind, then -o remount,bind,ro)",
        )
