"""Rules file: the placement rules that the VMs of a replay obey: sections [rule.NAME] of the settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rmsplugin.engine.assess.site_rules import Member, beside, closing_rules, open_nodes
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named
from rmsplugin.model.given_rules import About
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.settings.rules import PlacementRule, Traits
from rmsplugin.simulation import ruled
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.workload.jobs import Job

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: What rules select by, by their key, as jobs of a workload have it; None: they have no such thing.
_SELECTORS: Mapping[str, str | None] = {
    "accounts": "account",
    "users": "user",
    "partitions": "partition",
    "names": None,
    "licenses": None,
}
#: Kinds that are about nodes, whoever is there.
_OF_NODES = ("reserve", "online")


class RulesOfFile:
    """The rules of a file, for the nodes of one cluster; see ``rmsplugin.simulation.ruled.SiteRules``."""

    def __init__(self, rules: Mapping[str, PlacementRule], nodes: Sequence[str]) -> None:
        self._rules, self._nodes = dict(rules), frozenset(nodes)
        self._open: dict[tuple[str, ...], frozenset[str]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all rules."""
        return tuple(self._rules)

    def selecting(self, job: Job) -> tuple[str, ...]:
        """The names of the rules that select a job."""
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
        for rule in self._rules.values():
            if rule.kind == "reserve" and node in rule.hosts:
                size = size - Resources(rule.cpus, rule.memory_mib)
        return size

    def beside(self, members: Sequence[ruled.Member]) -> list[About]:
        """The rules about these VMs beside each other, each with the VMs that it is about."""
        found = [Member(str(job.job_id), _traits(job), vms) for job, vms in members]
        return beside(self._rules, found, self._nodes)


def _traits(job: Job) -> Traits:
    return Traits("", job.user, job.account, job.partition, frozenset())


def read_rules(path: str, cluster: Cluster, jobs: Sequence[Job]) -> RulesOfFile:
    """The rules of a file for a cluster and a workload.

    Raises:
        WorkloadError: the file cannot be read, has something wrong in it, or has a rule that cannot be replayed.
    """
    with named(path, WorkloadError):
        rules = _parsed(b"".join(blocks(path, WorkloadError, "section of settings")).decode())
        found = RulesOfFile(rules, cluster.node_names)
        for name, rule in rules.items():
            _require_nodes(name, rule, cluster)
            _require_traits(name, rule, jobs)
        size = Resources(cluster.cpus_per_node, cluster.memory_per_node_mib or 0)
        for node in cluster.node_names:
            if not found.left_of(node, size).holds(NOTHING):
                raise WorkloadError(f"more is reserved on {node} than it has, which is {size}: reserve less")
    return found


def _parsed(text: str) -> dict[str, PlacementRule]:
    try:
        sections = tomllib.loads(text).get("rule")
    except tomllib.TOMLDecodeError as error:
        raise WorkloadError(f"no TOML: {error}") from None
    except RecursionError:
        raise WorkloadError("lists and sections are nested too deeply") from None
    if not isinstance(sections, dict) or not sections:
        raise WorkloadError("has no section [rule.NAME], as the settings have them")
    return {name: _rule(name, values) for name, values in sections.items()}


def _rule(name: str, values: Any) -> PlacementRule:
    if not _NAME.fullmatch(name):
        raise WorkloadError(f"{name!r} is no name of a rule: it has up to 64 letters, digits, - and _")
    if not isinstance(values, dict):
        raise WorkloadError(f"rule.{name} is no section: write [rule.{name}]")
    try:
        return PlacementRule(**values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in ("rule", name, *first["loc"]))
        known = {"extra_forbidden": "unknown key", "missing": "is required"}
        words = known.get(first["type"], first["msg"].removeprefix("Value error, "))
        raise WorkloadError(f"{place}: {words}") from None


def _require_nodes(name: str, rule: PlacementRule, cluster: Cluster) -> None:
    """Refuse nodes that are not simulated."""
    nodes = cluster.node_names
    if unknown := sorted(rule.hosts.difference(nodes)):
        raise WorkloadError(f"[rule.{name}]: there is no node {unknown[0]}; they are {nodes[0]} to {nodes[-1]}")


def _require_traits(name: str, rule: PlacementRule, jobs: Sequence[Job]) -> None:
    """Refuse to select jobs by what none of them has."""
    for key, trait in _SELECTORS.items():
        says = bool(getattr(rule, key)) or (trait is not None and rule.per == trait)
        if says and (trait is None or not any(getattr(job, trait) for job in jobs)):
            raise WorkloadError(f"[rule.{name}] selects by {key}, which the jobs do not have: take it out")
