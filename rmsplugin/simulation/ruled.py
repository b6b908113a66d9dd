"""Ruled: the placement rules of a site and the wishes of users in the replay: the rules of each vjob, and its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.given_rules import About, given_rules
from rmsplugin.model.joint import Joint
from rmsplugin.model.resources import Resources
from rmsplugin.model.standing import Standing
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.jobs import Job

#: A job, and the names of VMs that are its own or stand for them.
Member = tuple[Job, tuple[str, ...]]


class SiteRules(Protocol):
    """The placement rules, and the rules by users' wishes, for the nodes of one cluster."""

    def selecting(self, job: Job) -> tuple[str, ...]:
        """The names of the site's rules that select a job."""

    def open_nodes(self, job: Job) -> frozenset[str]:
        """The nodes where VMs of a job may be, whoever else is there."""

    def left_of(self, node: str, size: Resources) -> Resources:
        """The part of a node that VMs may take."""

    def beside(self, members: Sequence[Member]) -> list[About]:
        """The rules about these VMs beside each other, each with the VMs that it is about."""


def ruled(rules: SiteRules, configuration: Configuration, live: Mapping[str, SimulatedVJob]) -> Configuration:
    """The configuration in which each vjob has the rules about its VMs beside others.

    Args:
        rules: of the site and of users.
        configuration: vjobs, and stand-ins for those in transit.
        live: all vjobs that have not ended, by name.
    """
    members = []
    for vjob in configuration.vjobs:
        owner = vjob.name.partition("@")[0] if vjob.in_transit else vjob.name
        members.append((live[owner].job, tuple(vm.name for vm in vjob.vms)))
    return replace(configuration, vjobs=tuple(given_rules(configuration.vjobs, rules.beside(members))), checked=True)


def lets(rules: SiteRules, vjob: SimulatedVJob, to: Mapping[str, str], live: Iterable[SimulatedVJob]) -> bool:
    """Whether the rules that hold at every step let VMs of a vjob come to nodes now.

    Args:
        rules: of the site and of users.
        vjob: the vjob.
        to: the node to which each of the VMs comes.
        live: all vjobs that have not ended, the one among them.
    """
    here = [each for each in live if each.hosts or each is vjob]
    about = [rule for rule, _ in rules.beside([(each.job, each.names) for each in here])]
    always = [rule for rule in about if isinstance(rule, Joint) and not rule.discrete]
    standing = Standing({name: node for each in here for name, node in each.hosts.items()})
    for each in here:
        for name, node in {*each.hosts.items(), *each.moving.items()}:
            standing.put(name, node)
    for name, node in to.items():
        if any(rule.concerns(name) and not rule.lets(name, node, standing) for rule in always):
            return False
        if node not in standing.nodes_of(name):
            standing.put(name, node)
    return True
