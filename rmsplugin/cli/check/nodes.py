"""Rules for the nodes: the node agent, files, clocks, the ways between nodes; those of the platform are its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rmsplugin import __version__
from rmsplugin.adapters.nodes.base import NodeCheck
from rmsplugin.adapters.platform.base import NODE_FILTER, OUR_FILTER, HostInfo
from rmsplugin.adapters.platform.factory import platform_checks
from rmsplugin.cli.check.node_facts import NodeFacts, PairFacts
from rmsplugin.errors import HostKeyError, KeyRefusedError, TimedOutError, UnreachableError
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.model.wording import counted
from rmsplugin.settings import Settings
from rmsplugin.settings.nodes import Network

#: A munge credential is refused when the clocks differ by its lifetime, 300 s; guests get the node's time.
_SKEW_WARNING_S = 2.0

_SKEW_ERROR_S = 60.0


def judge_node(settings: Settings, facts: NodeFacts) -> Iterator[Finding]:
    """Judge one node."""
    subject = f"node {facts.name}"
    yield from _hypervisor(settings, subject, facts)
    if isinstance(facts.agent, str):
        yield error(subject, f"node agent: {facts.agent}", _remedy(settings, facts))
        return
    yield from _agent(settings, subject, facts.agent, facts.hypervisor)
    yield from _clock(subject, facts.skew_s)


def _remedy(settings: Settings, facts: NodeFacts) -> str:
    """What mends an agent that could not be seen."""
    site, fault = settings.nodes, facts.fault
    if issubclass(fault, KeyRefusedError):
        return (
            f"authorise the public half of {site.agent_key} for {site.agent_user} there, with "
            'restrict,command="/usr/bin/rmsplugin-node"; see docs/operator/certificates-and-keys.md'
        )
    if issubclass(fault, HostKeyError):
        return (
            f"put {facts.name}'s host key into {site.known_hosts} here, fetched by a way that you trust: "
            "docs/operator/certificates-and-keys.md"
        )
    if issubclass(fault, UnreachableError):
        return (
            f"find out whether {facts.name} is up, what its name resolves to, and whether its sshd listens at port 22"
        )
    if issubclass(fault, TimedOutError):
        return "find out there what does not end: a store that hangs, a full disk or CPU; then look again"
    return "mend there what it says; as root of that node, `SSH_ORIGINAL_COMMAND=check rmsplugin-node` says it again"


def _hypervisor(settings: Settings, subject: str, facts: NodeFacts) -> Iterator[Finding]:
    info = facts.hypervisor
    checks = platform_checks(settings)
    if isinstance(info, str):
        yield from checks.silent(subject, facts.name, info)
        return
    yield ok(subject, f"{info.hypervisor}: {counted(info.cpus, 'CPU')}, {info.memory_mib} MiB")
    yield from checks.host(subject, info, None if isinstance(facts.agent, str) else facts.agent)


def _agent(settings: Settings, subject: str, agent: NodeCheck, info: HostInfo | str) -> Iterator[Finding]:
    if agent.version != __version__:
        yield warning(subject, f"has rmsplugin {agent.version}, here is {__version__}", "install the same release")
    checks = platform_checks(settings)
    stores = ["shared_store"] if settings.nodes.shared_store else ["store"]
    for name in stores:
        yield from _store(subject, agent.directories.get(name, {}), info)
    yield from _directory(subject, agent.directories.get("vm_dir", {}), forbidden=0o066)
    yield from _node_key(subject, agent.directories.get("node_key", {}))
    yield from checks.states(subject, agent)
    for path, readable in sorted(agent.images.items()):
        if not readable:
            yield error(subject, f"image file {path} is not there, or not readable", f"copy it to {path} on this node")
    if agent.images and all(agent.images.values()):
        yield ok(subject, f"has all {len(agent.images)} image files")
    yield from _templates(settings, subject, agent)
    yield from _own_filter(settings.network, subject, agent)
    yield from checks.guards(subject, agent)
    if agent.ports_closed is False:
        yield warning(
            subject,
            "VMs reach all of its ports, unless rules other than ours close them (it has no table inet rmsplugin)",
            "load contrib/nftables/rmsplugin-guests.nft on VM hosts, controller and fronts: docs/operator/networks.md",
        )
    if not agent.bridge:
        yield error(
            subject,
            f"has no bridge {settings.network.bridge}, which VMs plug into",
            f"make the bridge {settings.network.bridge} with the node's interface in it, or set network.bridge",
        )


def _own_filter(network: Network, subject: str, agent: NodeCheck) -> Iterator[Finding]:
    """Say whether the node filters its VMs by itself, if it is to; an older release does not tell."""
    if agent.unfiltered:
        yield error(
            subject,
            f"does not filter {', '.join(agent.unfiltered)} any more: somebody has flushed its rules of nftables",
            f"`cat {network.filter_dir}/*.nft | nft -f -` there; and have /etc/nftables.conf include these files: "
            "docs/operator/networks.md",
        )
    if network.filter != NODE_FILTER:
        return
    if agent.guest_filter:
        yield ok(subject, "filters VMs by nftables")
    else:
        yield error(
            subject,
            f"cannot filter VMs by nftables, and network.filter is {NODE_FILTER}: no VM starts there, or comes there",
            f"install nftables there, and a kernel with nf_tables for bridges; or set network.filter to {OUR_FILTER}",
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


def _clock(subject: str, skew_s: float) -> Iterator[Finding]:
    if abs(skew_s) >= _SKEW_ERROR_S:
        yield error(
            subject,
            f"its clock is off by {skew_s:+.0f} s: munge will refuse its credentials",
            "run chrony or ntpd everywhere",
        )
    elif abs(skew_s) >= _SKEW_WARNING_S:
        yield warning(subject, f"its clock is off by {skew_s:+.1f} s", "run chrony or ntpd everywhere")


def judge_mounts_of(settings: Settings, node: str, found: Mapping[str, Any] | str) -> Iterator[Finding]:
    """Judge what a node tells of what guests mount; a text says why it tells nothing."""
    subject = f"node {node}"
    if isinstance(found, str):
        yield warning(
            subject, f"what guests mount was not looked at: {found}", "mend there what it says, and look again"
        )
        return
    yield from platform_checks(settings).mounts(subject, found)


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
        yield from platform_checks(settings).open_between(subject, facts.source, facts.destination)
    if facts.reach.unrestricted:
        yield error(
            subject,
            f"{facts.source}'s key may do everything on {facts.destination}: drop saved states, send VMs' memory away",
            f"in authorized_keys on {facts.destination}, the line of {facts.source}'s {settings.nodes.node_key}.pub "
            'has to begin with restrict,command="/usr/bin/rmsplugin-node --peer"',
        )
    elif not facts.reach.agent and not facts.reach.platform_open:
        yield ok(subject, "states can be copied, and nothing else is open")


def judge_nodes(settings: Settings, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Judge the nodes beside each other."""
    agents = {node.name: node.agent for node in nodes if not isinstance(node.agent, str)}
    yield from platform_checks(settings).states_between(agents)
