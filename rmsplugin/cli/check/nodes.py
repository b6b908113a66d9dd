"""Rules for the nodes: libvirt, the node agent, files, clocks, and the ways between the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rmsplugin import __version__
from rmsplugin.adapters.nodes.base import NodeCheck, Reach
from rmsplugin.adapters.platform.base import NODE_FILTER, OUR_FILTER, HostInfo
from rmsplugin.cli.check.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

#: A munge credential is refused when the clocks differ by its lifetime, 300 s; guests get the node's time.
_SKEW_WARNING_S = 2.0
_SKEW_ERROR_S = 60.0
#: Formats of saved states that keep pace with a disk, first the one that every libvirt knows; those that do nothing.
_FAST_FORMATS = ("lzop", "zstd")
_VM_ACCOUNT = "libvirt-qemu"
_UNCOMPRESSED = frozenset({"raw", "sparse"})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was seen of one node; a text instead of a fact says why it could not be seen."""

    name: str
    hypervisor: HostInfo | str
    agent: NodeCheck | str
    skew_s: float = 0.0  # its clock minus ours


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Whether one node can reach another; a text says why that could not be tried."""

    source: str
    destination: str
    reach: Reach | str


def judge_node(settings: Settings, facts: NodeFacts) -> Iterator[Finding]:
    """Judge one node."""
    subject = f"node {facts.name}"
    yield from _hypervisor(settings, subject, facts)
    if isinstance(facts.agent, str):
        yield error(
            subject,
            f"node agent: {facts.agent}",
            f"authorise the public half of {settings.nodes.agent_key} for {settings.nodes.agent_user} there, with "
            'restrict,command="/usr/bin/rmsplugin-node"; see docs/operator-guide.md',
        )
        return
    yield from _agent(settings, subject, facts.agent, facts.hypervisor)
    yield from _clock(subject, facts.skew_s)


def _hypervisor(settings: Settings, subject: str, facts: NodeFacts) -> Iterator[Finding]:
    info = facts.hypervisor
    if isinstance(info, str):
        uri = settings.hypervisor.uri.replace("{node}", facts.name)
        yield error(
            subject,
            f"libvirt: {info}",
            f"as {settings.engine.user}, `virsh -c '{uri}' version` has to work: libvirtd there? certificates?",
        )
        return
    yield ok(subject, f"{info.hypervisor}: {info.cpus} CPUs, {info.memory_mib} MiB")
    machine = settings.hypervisor.machine
    if machine not in info.machines:
        versioned = sorted((name for name in info.machines if "q35" in name), key=_by_version)
        yield error(
            subject,
            f"its QEMU has no machine type {machine}: no VM can be started there, or come there",
            f"set hypervisor.machine to one that all nodes have; newest here: {', '.join(versioned[-4:]) or 'none'}",
        )
    if info.domain_type != "kvm":
        yield warning(
            subject,
            "VMs are emulated, not virtualised (no KVM): at a tenth of the speed or less, and they stand still while "
            "they are migrated: for trials only",
            "switch virtualisation on in the firmware, load kvm_intel or kvm_amd, check /dev/kvm",
        )
    yield from _filter(settings.network.filter, subject, info.filters)
    yield from _confinement(subject, info, facts.agent)


def _filter(wanted: str, subject: str, has: frozenset[str] | str) -> Iterator[Finding]:
    """Say whether VMs can have the network filter of the settings there: without it none of them starts."""
    if not wanted:
        yield warning(
            subject,
            "network.filter is empty: root in a guest can take the address of any VM or node",
            "take the line out of the settings, which means rmsplugin-guest; see docs/operator-guide.md, section 5",
        )
    elif wanted == NODE_FILTER:
        return  # the node agent says whether it can
    elif isinstance(has, str):
        yield error(
            subject,
            f"libvirt has no network filters ({has}): no VM starts there, or comes there",
            "install libvirt's nwfilter driver (Debian: libvirt-daemon-config-nwfilter) and restart libvirtd; or do "
            'without: network.filter = ""',
        )
    elif wanted != OUR_FILTER and wanted not in has:
        yield error(
            subject,
            f"libvirt has no network filter {wanted}, which network.filter names: no VM starts there, or comes there",
            f"`virsh nwfilter-define` it there; or take network.filter out of the settings: {OUR_FILTER} is defined "
            "by the engine",
        )
    else:
        yield ok(subject, f"VMs have the network filter {wanted}")


def _confinement(subject: str, info: HostInfo, agent: NodeCheck | str) -> Iterator[Finding]:
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
            "restart libvirtd (docs/operator-guide.md, section 3)",
        )
    if not info.account_uid:
        return
    if isinstance(agent, str):
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
            f"QEMU runs with uid {info.account_uid}, which cannot open /dev/kvm: VMs are emulated, and libvirt "
            "starts a QEMU to ask what it can do each time that it looks",
            "give that account the group of /dev/kvm (Debian: usermod -a -G kvm libvirt-qemu) and restart libvirtd",
        )
    if agent.writable_images and not info.confined_by:
        yield warning(
            subject,
            f"libvirt gives {', '.join(sorted(agent.writable_images))} to QEMU's account (uid {info.account_uid}): "
            "whoever breaks out of a VM can write what the next ones boot",
            "mount the directory of the images read-only, if only over itself (mount --bind, then -o remount,bind,ro)",
        )


def _by_version(machine: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", machine.partition("q35")[2])]


def _agent(settings: Settings, subject: str, agent: NodeCheck, info: HostInfo | str) -> Iterator[Finding]:
    if agent.version != __version__:
        yield warning(subject, f"has rmsplugin {agent.version}, here is {__version__}", "install the same release")
    stores = ["shared_store"] if settings.nodes.shared_store else ["store"]
    for name in stores:
        yield from _store(subject, agent.directories.get(name, {}), info)
    yield from _directory(subject, agent.directories.get("vm_dir", {}), forbidden=0o066)
    yield from _node_key(subject, agent.directories.get("node_key", {}))
    yield from _format(subject, agent, "save", agent.save_format)
    if any(each.checkpoint_interval_s for each in settings.partition.values()):
        yield from _format(subject, agent, "snapshot", agent.snapshot_format)
    for path, readable in sorted(agent.images.items()):
        if not readable:
            yield error(subject, f"image file {path} is not there, or not readable", f"copy it to {path} on this node")
    if agent.images and all(agent.images.values()):
        yield ok(subject, f"has all {len(agent.images)} image files")
    yield from _templates(settings, subject, agent)
    if agent.vm_hook is False:
        yield error(
            subject,
            "libvirt has no hook that refuses what is no VM of ours: root of any node from which VMs come is root here",
            "copy hooks/qemu to /etc/libvirt/hooks/qemu on this node, mode 755, and restart libvirtd",
        )
    yield from _own_filter(settings.network.filter, subject, agent)
    if settings.network.filter not in ("", NODE_FILTER) and agent.filter_tools:
        yield error(
            subject,
            f"has no {', '.join(agent.filter_tools)}, by which libvirt filters: no VM starts there, or comes there",
            'install iptables, which has them, on this node; or do without: network.filter = ""',
        )
    if agent.ports_closed is False:
        yield warning(
            subject,
            "VMs reach all of its ports, unless rules other than ours close them (it has no table inet rmsplugin)",
            "load contrib/nftables/rmsplugin-guests.nft on VM hosts, controller and fronts: docs/operator-guide.md, "
            "section 5",
        )
    if not agent.bridge:
        yield error(
            subject,
            f"has no bridge {settings.network.bridge}, which VMs plug into",
            f"make the bridge {settings.network.bridge} with the node's interface in it, or set network.bridge",
        )


def _own_filter(wanted: str, subject: str, agent: NodeCheck) -> Iterator[Finding]:
    """Say whether the node filters its VMs by itself, if it is to; an older release does not tell."""
    if wanted != NODE_FILTER:
        return
    if agent.guest_filter:
        yield ok(subject, "filters VMs by nftables")
    else:
        yield error(
            subject,
            f"cannot filter VMs by nftables, and network.filter is {NODE_FILTER}: no VM starts there, or comes there",
            f"install nftables there, and a kernel with nf_tables for bridges; or set network.filter to {OUR_FILTER}",
        )
    if not agent.vm_hook:
        yield warning(
            subject,
            "has no hook that looks whether a VM is filtered: the engine alone sees to it",
            "copy hooks/qemu to /etc/libvirt/hooks/qemu on this node, mode 755, and restart libvirtd",
        )


def _templates(settings: Settings, subject: str, agent: NodeCheck) -> Iterator[Finding]:
    """Say whether VMs start from templates there; nothing where no image can."""
    waiting = sorted(name for name, image in settings.image.items() if image.waits)
    if not settings.start.template or not waiting or agent.templates is None:
        return  # an older release is told already
    if not settings.start.template_mib:
        yield ok(subject, "keeps no templates (start.template_mib is 0): VMs boot")
        return
    number, size = agent.templates
    yield ok(subject, f"VMs of {', '.join(waiting)} start from templates: it has {number}, of {size >> 20} MiB")


def _store(subject: str, found: Any, info: HostInfo | str) -> Iterator[Finding]:
    yield from _directory(subject, found, forbidden=0o077)
    if not found.get("exists") or isinstance(info, str):
        return
    free_mib = int(found["free_bytes"]) >> 20
    if free_mib < info.memory_mib:
        yield warning(
            subject,
            f"{found['path']} has {free_mib} MiB free, less than the node's memory ({info.memory_mib} MiB): "
            "not all VMs of the node could be saved there at once if their memory does not compress",
            "give the store a larger file system",
        )
    else:
        yield ok(subject, f"{found['path']} has {free_mib} MiB free")


def _directory(subject: str, found: Any, *, forbidden: int) -> Iterator[Finding]:
    if not found:
        yield error(subject, "the node agent does not know a directory of the settings", "copy rmsplugin.toml there")
    elif not found["exists"]:
        yield error(subject, f"{found['path']} does not exist", f"install -d -m 700 {found['path']} on this node")
    elif found["owner"] != "root" or int(found["mode"], 8) & forbidden:
        yield error(
            subject,
            f"{found['path']} belongs to {found['owner']} with mode {found['mode']}: it holds the memory of VMs",
            f"chown root {found['path']}; chmod 700 {found['path']} on this node",
        )


def _node_key(subject: str, found: Any) -> Iterator[Finding]:
    if not found or not found["exists"]:
        yield error(
            subject,
            "has no key for the other nodes (nodes.node_key): a saved VM can be resumed only where it was saved",
            "ssh-keygen there, and authorise its public half on all other nodes, with rmsplugin-node --peer",
        )
    elif int(found["mode"], 8) & 0o077:
        yield error(subject, f"others may read {found['path']} (mode {found['mode']})", f"chmod 600 {found['path']}")


def _format(subject: str, agent: NodeCheck, key: str, chosen: str) -> Iterator[Finding]:
    """Judge how libvirt compresses what it writes at a ``save``, or of a checkpoint, which it calls a ``snapshot``."""
    what, cannot = {
        "save": ("VMs", "no VM can be suspended there"),
        "snapshot": ("checkpoints", "no checkpoint can be made there"),
    }[key]
    change = f'set {key}_image_format = "{_FAST_FORMATS[0]}" in /etc/libvirt/qemu.conf and restart libvirtd'
    if not chosen:
        return  # an older release, which is told already
    if chosen in _UNCOMPRESSED:
        yield warning(
            subject,
            f"libvirt saves {what} uncompressed: they take more room, and longer to copy to another node",
            f"install {_FAST_FORMATS[0]} on all nodes, {change}",
        )
    elif chosen not in agent.restorable_formats:
        yield error(
            subject,
            f"libvirt saves {what} through {chosen}, and there is no program {chosen}: {cannot}",
            f"install {chosen} on all nodes",
        )
    elif chosen not in _FAST_FORMATS:
        yield warning(
            subject, f"libvirt saves {what} through {chosen}, which is slow: VMs stand still meanwhile", change
        )
    else:
        yield ok(subject, f"libvirt compresses what it saves of {what} ({chosen})")


def judge_formats(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Judge whether what is saved on one node can be restored on all others."""
    agents = {node.name: node.agent for node in nodes if not isinstance(node.agent, str) and node.agent.save_format}
    formats = {name: {agent.save_format, agent.snapshot_format} - {""} for name, agent in agents.items()}
    for name, agent in agents.items():
        for chosen in sorted(set().union(*formats.values()) - formats[name] - {*_UNCOMPRESSED}):
            if chosen not in agent.restorable_formats:
                sources = ", ".join(other for other, its in formats.items() if chosen in its)
                yield error(
                    f"node {name}",
                    f"has no program {chosen}: no VM can be resumed there that was saved on {sources}",
                    f"install {chosen} on all nodes",
                )


def _clock(subject: str, skew_s: float) -> Iterator[Finding]:
    if abs(skew_s) >= _SKEW_ERROR_S:
        yield error(
            subject, f"its clock is off by {skew_s:+.0f} s: munge will refuse it", "run chrony or ntpd everywhere"
        )
    elif abs(skew_s) >= _SKEW_WARNING_S:
        yield warning(subject, f"its clock is off by {skew_s:+.1f} s", "run chrony or ntpd everywhere")


def judge_pair(settings: Settings, facts: PairFacts) -> Iterator[Finding]:
    """Judge the way from one node to another."""
    subject = f"{facts.source} -> {facts.destination}"
    if isinstance(facts.reach, str):
        yield error(subject, f"could not be tried: {facts.reach}", f"mend the node agent of {facts.source} first")
        return
    if facts.reach.agent:
        yield error(
            subject,
            f"no saved state can be copied: {facts.reach.agent}",
            f"authorise {facts.source}'s {settings.nodes.node_key}.pub on {facts.destination} with "
            'restrict,command="/usr/bin/rmsplugin-node --peer", and put '
            f"{facts.destination}'s host key into {settings.nodes.known_hosts} on {facts.source}",
        )
    if facts.reach.platform_open:
        yield error(
            subject,
            f"libvirt on {facts.destination} obeys {facts.source}: whoever is root here is root there",
            f"name the engine's certificate alone in tls_allowed_dn_list of /etc/libvirt/libvirtd.conf on "
            f"{facts.destination}, and restart libvirtd: migrations need no other (docs/operator-guide.md, section 3)",
        )
    if facts.reach.unrestricted:
        yield error(
            subject,
            f"{facts.source}'s key may do everything on {facts.destination}: drop saved states, send VMs' memory away",
            f"in authorized_keys on {facts.destination}, the line of {facts.source}'s {settings.nodes.node_key}.pub "
            'has to begin with restrict,command="/usr/bin/rmsplugin-node --peer"',
        )
    elif not facts.reach.agent and not facts.reach.platform_open:
        yield ok(subject, "states can be copied, and nothing else is open")
