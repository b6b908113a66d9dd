"""Replayed rules: placement rules of a site and wishes of users that VMs of a replay obey, made as the engine does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmsplugin.engine.assess.site_rules import Member, beside, closing_rules, open_nodes
from rmsplugin.engine.observe.topology import fixed
from rmsplugin.model.given_rules import About
from rmsplugin.model.resources import Resources
from rmsplugin.settings.rules import PlacementRule, Traits
from rmsplugin.simulation import ruled
from rmsplugin.workload.jobs import Job

#: Kinds that are about nodes, whoever is there.
_OF_NODES = ("reserve", "online")


class ReplayedRules:
    """The rules of a site and the wishes of jobs, for the nodes of one cluster.

    See ``rmsplugin.simulation.ruled.SiteRules``.
    """

    def __init__(
        self, rules: Mapping[str, PlacementRule], nodes: Sequence[str], switches: Sequence[frozenset[str]] = ()
    ) -> None:
        """Take rules by their names, all nodes, and the nodes of each leaf switch; none: all are on one."""
        self._rules, self._nodes, self._switches = dict(rules), frozenset(nodes), tuple(switches)
        self._open: dict[tuple[str, ...], frozenset[str]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the site's rules."""
        return tuple(self._rules)

    def selecting(self, job: Job) -> tuple[str, ...]:
        """The names of the site's rules that select a job."""
        traits = _traits(job)
        return tuple(name for name, rule in self._rules.items() if rule.kind in _OF_NODES or rule.selects(traits))

    def open_nodes(self, job: Job) -> frozenset[str]:
        """The nodes where VMs of a job may be, whoever else is there."""
        closing = closing_rules(self._rules, _traits(job))
        if closing not in self._open:
            self._open[closing] = open_nodes(self._rules, self._nodes, closing)
        return self._open[closing]

    def left_of(self, node: str, size: Resources) -> Resources:
        """The part of a node that VMs may take."""
        return left_of(self._rules, node, size)

    def beside(self, members: Sequence[ruled.Member]) -> list[About]:
        """The rules about these VMs beside each other, each with the VMs that it is about."""
        found = [Member(str(job.job_id), _traits(job), vms) for job, vms in members]
        return beside(self._rules, found, self._nodes, fixed(self._switches))


def left_of(rules: Mapping[str, PlacementRule], node: str, size: Resources) -> Resources:
    """The part of a node of that size that rules leave to VMs; below 0 if more is reserved than it has."""
    for rule in rules.values():
        if rule.kind == "reserve" and node in rule.hosts:
            size = size - Resources(rule.cpus, rule.memory_mib)
    return size


def _traits(job: Job) -> Traits:
    return Traits("", job.user, job.account, job.partition, frozenset(), job.wishes, job.switches)
