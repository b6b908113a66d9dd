"""Rules for migration domains: whether vjobs can go between the groups that the settings put into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmsplugin.cli.check.facts import SlurmFacts, some
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.model.wording import counted
from rmsplugin.settings import Settings


def judge_domains(settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """Judge each migration domain. That nodes restore each other's saved states is judged for all nodes alike."""
    for domain in settings.cluster.migration_domains:
        hosts = {name: _hosts(name, settings, facts) for name in domain}
        yield from _of_domain(f"migration domain {', '.join(domain)}", hosts, settings, facts)


def _hosts(group: str, settings: Settings, facts: SlurmFacts) -> list[str]:
    """The VM hosts of a group; one that no section names is a hosts partition."""
    named = settings.group[group].names if group in settings.group else facts.nodes_of(group)
    return [name for name in facts.vm_hosts(settings) if name in named]


def _of_domain(subject: str, hosts: dict[str, list[str]], settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    if empty := sorted(name for name, found in hosts.items() if not found):
        yield error(subject, f"{some(empty)} has no VM host", "correct cluster.migration_domains, or the group's hosts")
        return
    all_hosts = [host for found in hosts.values() for host in found]
    faults = [*_ending_stores(subject, all_hosts, settings, facts), *_apart(subject, hosts, settings, facts)]
    yield from faults
    if not faults:
        yield ok(subject, "; ".join(f"{name} has {counted(len(found), 'host')}" for name, found in hosts.items()))


def _ending_stores(subject: str, hosts: Sequence[str], settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """No saved state is sent to a node whose store does not outlive its room."""
    doomed = [name for name in settings.hosts_partitions if not settings.hosts_of(name).store_survives]
    found = sorted({host for name in doomed for host in facts.nodes_of(name)}.intersection(hosts))
    if found and not settings.nodes.shared:
        yield warning(
            subject,
            f"no vjob comes to {some(found)}: what is saved there does not outlive a room",
            f"store_survives = true in [hosts.{doomed[0]}], if it does; or take the group out of the domain",
        )


def _apart(subject: str, hosts: dict[str, list[str]], settings: Settings, facts: SlurmFacts) -> Iterator[Finding]:
    """A vjob goes only to nodes of its partition."""
    reached = [set(facts.nodes_of(name)) for name in settings.hosts_partitions]
    alone = [
        name
        for name, own in hosts.items()
        if not any(
            nodes.intersection(own) and nodes.intersection(others)
            for nodes in reached
            for other, others in hosts.items()
            if other != name
        )
    ]
    if alone:
        yield warning(
            subject,
            f"no vjob goes to or from {some(alone)}: no hosts partition has nodes there and in another group",
            "take the group out of cluster.migration_domains",
        )
