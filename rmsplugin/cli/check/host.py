"""Rules for the host of the engine: its files, munge, and the addresses for VMs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from rmsplugin.cli.check.mounts import judge_mounts
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import Qcow2Image


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file or directory as it is; ``owner`` is empty when it does not exist."""

    path: str
    owner: str = ""
    mode: int = 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was seen on this host."""

    user: str  # who looked
    settings_file: FileFact
    state_dir: FileFact
    agent_key: FileFact
    known_hosts: FileFact
    known_hosts_text: str
    engine: str  # "" when the engine answers, else why not
    held: tuple[str, ...]  # vjobs that the engine does nothing to, for want of a proof or because there are too many
    paused: str  # since when and by whom the engine is paused; "" when it is not
    munge: str  # "" when a credential can be made and read, else why not
    deaf: tuple[str, ...] = ()  # why engines or managers cannot hear wrappers
    shared_dir: FileFact | None = None  # the directory that controllers share; None if the settings name none


def judge_host(settings: Settings, facts: HostFacts, nodes: tuple[str, ...], cpus: int) -> Iterator[Finding]:
    """Judge this host; ``nodes`` are the VM hosts, ``cpus`` theirs."""
    user = settings.engine.user
    yield from _settings_file(facts.settings_file, user)
    yield from _private(facts.state_dir, user, f"install -d -o {user} -m 700 {facts.state_dir.path}")
    if not settings.native:
        yield from _for_vms(settings, facts, nodes, cpus)
    yield from _fencing(settings)
    if facts.engine:
        yield error("engine", facts.engine, "start it: systemctl start rmsplugin-engine; its log says why it ended")
    else:
        yield ok("engine", f"answers at {settings.engine.socket}")
    if facts.held:
        names = ", ".join(facts.held[:10]) + (", ..." if len(facts.held) > 10 else "")
        yield error(
            "engine",
            f"holds back what it would do to {len(facts.held)} vjobs ({names}): something of them "
            "is not seen, but may be there",
            "see `rmsplugin confirm`; mend what hides it, or confirm that it is gone: rmsplugin confirm --yes",
        )
    if facts.paused:
        yield warning(
            "engine",
            f"is {facts.paused}: no context switch, start or resume is begun",
            "once the reason for the pause is over: rmsplugin unpause",
        )
    for sentence in facts.deaf:
        yield error(
            "hearing",
            sentence,
            "see to munged, and to the load, of that host; meanwhile no vjob is requeued for a silent wrapper",
        )
    if not (facts.engine or facts.deaf):
        yield ok("hearing", "the engine hears wrappers, and hooks")
    if facts.munge:
        yield error("munge", facts.munge, "start munged here, with the munge.key of the cluster")
    else:
        yield ok("munge", "makes and reads credentials")
    yield from _several_hosts(settings, facts)


def _for_vms(settings: Settings, facts: HostFacts, nodes: tuple[str, ...], cpus: int) -> Iterator[Finding]:
    """Judge what this host has for VMs, for their nodes and for the wrappers of their jobs."""
    user = settings.engine.user
    yield from _private(
        facts.agent_key,
        user,
        f"ssh-keygen -t ed25519 -N '' -f {facts.agent_key.path}; chown {user} {facts.agent_key.path}",
    )
    yield from _known_hosts(facts, nodes)
    yield from _checkpoints(settings, nodes)
    yield from judge_mounts(settings)
    yield from _listen(settings)
    yield from _pool(settings, cpus)


def _fencing(settings: Settings) -> Iterator[Finding]:
    """Judge whether somebody says that a fenced node is off."""
    if not settings.nodes.fence:
        return
    if settings.nodes.fence_status:
        yield ok("nodes.fence", "cuts the power of a node, and nodes.fence_status says whether it is off")
    else:
        yield warning(
            "nodes.fence",
            "nodes.fence_status is not set: nobody is asked whether a fenced node is off. If its power was not cut, "
            "its VMs run on, and run twice",
            "set nodes.fence_status, such as the fence agent with --action=status",
        )


def _checkpoints(settings: Settings, nodes: tuple[str, ...]) -> Iterator[Finding]:
    """Judge whether what the settings want of checkpoints can be had."""
    if not any(partition.checkpoint_interval_s for partition in settings.partition.values()):
        return
    disks = sorted(name for name, image in settings.image.items() if isinstance(image, Qcow2Image))
    if disks:
        yield warning(
            "checkpoints",
            f"none are made of VMs with disks (images: {', '.join(disks)}): a vjob that loses such a VM begins again",
            "use an image of kind kernel where checkpoints matter",
        )
    if len(nodes) < 2 and settings.nodes.shared_store is None:
        yield error(
            "checkpoints",
            "none can be made: there is no other node for their copies",
            "set nodes.shared_store, or checkpoint_interval_s = 0",
        )


def _settings_file(file: FileFact, user: str) -> Iterator[Finding]:
    if file.owner not in ("root", user) or file.mode & 0o022:
        yield error(
            file.path,
            f"others than its owner may change it (owner {file.owner}, mode {file.mode:04o})",
            f"chown root {file.path}; chmod 644 {file.path}",
        )
    elif not file.mode & 0o004:
        yield error(
            file.path,
            f"not readable by all (mode {file.mode:04o}): the wrapper reads it as the job's user",
            f"chmod 644 {file.path} (it holds no secret)",
        )
    else:
        yield ok(file.path, "is valid")


def _private(file: FileFact, user: str, make: str) -> Iterator[Finding]:
    if not file.owner:
        yield error(file.path, "does not exist, or cannot be looked at", make)
    elif file.owner != user or file.mode & 0o077:
        yield error(
            file.path,
            f"belongs to {file.owner} with mode {file.mode:04o}; it has to be {user}'s alone",
            f"chown {user} {file.path}; chmod go= {file.path}",
        )
    else:
        yield ok(file.path, f"belongs to {user} alone")


def _known_hosts(facts: HostFacts, nodes: tuple[str, ...]) -> Iterator[Finding]:
    path = facts.known_hosts.path
    if not facts.known_hosts.owner:
        yield error(path, "does not exist", f"ssh-keyscan NODE... on a network you trust, into {path}")
        return
    if facts.known_hosts.mode & 0o022:
        yield error(
            path, f"others than its owner may change it (mode {facts.known_hosts.mode:04o})", f"chmod 644 {path}"
        )
    named = {name for line in facts.known_hosts_text.splitlines() for name in line.split(" ")[0].split(",")}
    hashed = any(name.startswith("|1|") for name in named)
    missing = [node for node in nodes if node not in named]
    if missing and not hashed:
        yield error(
            path,
            f"has no host key of {', '.join(missing)}",
            f"add a line `NODE KEYTYPE KEY` for each, with the NODE's /etc/ssh/ssh_host_ed25519_key.pub, to {path}",
        )
    elif nodes:
        yield ok(path, "has the host keys of the nodes" if not hashed else "has host keys (hashed names)")


def _listen(settings: Settings) -> Iterator[Finding]:
    engine = settings.engine
    if not engine.listen or not engine.url:
        yield error(
            "engine.listen",
            "wrappers on other hosts cannot reach the engine: engine.listen or engine.url is not set",
            'set listen = "ADDRESS:6830" and url = "http://ADDRESS:6830" in [engine] (munge authenticates both sides)',
        )


def _several_hosts(settings: Settings, facts: HostFacts) -> Iterator[Finding]:
    """Judge what engines on several hosts need."""
    if facts.shared_dir is None:
        return
    path = facts.shared_dir.path
    yield from _private(
        facts.shared_dir, settings.engine.user, f"mount it; once: install -d -o {settings.engine.user} -m 700 {path}"
    )
    if len(settings.engine.url.split()) < 2:
        yield warning(
            "engine.url",
            "names one address, and cluster.shared_dir has engines on several hosts: when another one leads, hooks, "
            "wrappers and commands do not find it",
            "name the address of each host that may lead, with blanks between",
        )


def _pool(settings: Settings, cpus: int) -> Iterator[Finding]:
    network = settings.network
    first, last = network.pool_bounds
    size = int(last) - int(first) + 1
    subject = "network.pool"
    subnet = ipaddress.IPv4Network((int(first), network.prefix_length), strict=False)
    if last not in subnet:
        yield error(
            subject,
            f"{network.pool} does not lie in one network of prefix length {network.prefix_length}",
            "choose a pool inside one network, or a shorter network.prefix_length",
        )
    elif network.gateway and ipaddress.ip_address(network.gateway) not in subnet:
        yield error(
            subject,
            f"the gateway {network.gateway} is not in {subnet}, the network of the pool",
            "put network.gateway and network.pool into one network",
        )
    elif cpus and size < cpus:
        yield warning(
            subject,
            f"{size} addresses for nodes of {cpus} CPUs in all: sleeping VMs keep their addresses, "
            "so vjobs may wait for one",
            "give more addresses to network.pool",
        )
    else:
        yield ok(subject, f"{size} addresses")
