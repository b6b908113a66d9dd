"""Rules file: the placement rules that the VMs of a replay obey: sections [rule.NAME] of the settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rmsplugin.cli.simulate.replayed_rules import left_of
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.settings.rules import PlacementRule
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


def read_rules(path: str, cluster: Cluster, jobs: Sequence[Job]) -> dict[str, PlacementRule]:
    """The rules of a file for a cluster and a workload, by name.

    Raises:
        WorkloadError: the file cannot be read, has something wrong in it, or has a rule that cannot be replayed.
    """
    with named(path, WorkloadError):
        rules = _parsed(b"".join(blocks(path, WorkloadError, "section of settings")).decode())
        for name, rule in rules.items():
            _require_nodes(name, rule, cluster)
            _require_traits(name, rule, jobs)
        size = Resources(cluster.cpus_per_node, cluster.memory_per_node_mib or 0)
        for node in cluster.node_names:
            if not left_of(rules, node, size).holds(NOTHING):
                raise WorkloadError(f"more is reserved on {node} than it has, which is {size}: reserve less")
    return rules


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
