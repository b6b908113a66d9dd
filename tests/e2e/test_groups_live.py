"""Groups of VM hosts on a live cluster: a proposing process for each, whole vjobs, and what administrators see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import LOOP, SMALL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def groups(cluster: Cluster) -> dict[str, Any]:
    result = cluster.plugin("groups", "--json")
    assert result.code == 0, result.err
    return {group["name"]: group for group in json.loads(result.out)["groups"]}


def busy_groups(cluster: Cluster) -> dict[str, Any]:
    """All groups, once a vjob runs in each; nothing before."""
    found = groups(cluster)
    return found if all(each["running"] for each in found.values()) else {}


def test_vjobs_run_in_two_groups_and_each_is_shown(cluster: Cluster) -> None:
    first, *others = cluster.nodes
    with configured(cluster, "group.left", f'hosts = "{first}"'):
        jobs = [cluster.sbatch(LOOP, *SMALL, "-t", "5", "-w", node) for node in (first, others[0])]
        for job in jobs:
            cluster.wait_output(job, "up", 240)
        found = cluster.wait("a vjob that runs in each group", lambda: busy_groups(cluster), 60)
        assert {name: each["hosts"] for name, each in found.items()} == {"left": [first], "vmhosts": others}
        assert all(each["cpus_free"] < each["cpus"] for each in found.values())
        problems = (cluster.ask("/v1/status") or {})["problems"]
        assert any(each.startswith(f"{others[0]}") and "in no [group.NAME]" in each for each in problems), problems
        for job in jobs:
            cluster.ok("scancel", str(job))
            cluster.wait_gone(job)
