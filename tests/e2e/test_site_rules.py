"""The site's placement rules on real nodes: VMs apart, one that a rule keeps out, and what the check tells of rules."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.rooms import count, explain, finish, wait_held, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PATIENCE_S = 120


def nodes(cluster: Cluster, job: int) -> list[str]:
    """The nodes of a vjob's VMs, by the processes that run there."""
    return [host for host in cluster.nodes if cluster.qemus(job, host)]


def test_vms_come_apart_and_one_that_a_rule_keeps_out_says_why(cluster: Cluster, clean: None) -> None:
    wait_held(cluster, *cluster.nodes, timeout_s=PATIENCE_S)
    together = count(cluster, "-J", "apart1", "-N", "2", "-n", "2")
    wait_number(cluster, together)
    assert len(nodes(cluster, together)) == 1, explain(cluster)
    with configured(cluster, "rule.apart", 'kind = "spread"', 'per = "vjob"', 'names = ["apart*"]'):
        cluster.wait(
            "the VMs to be apart", lambda: len(nodes(cluster, together)) == 2, PATIENCE_S, lambda: explain(cluster)
        )
        wait_number(cluster, together, 2)
        wide = cluster.sbatch("#!/bin/sh\n", "-J", "apart2", "-N", "4", "-n", "4", "-c", "1", "--mem=96")
        cluster.wait(
            "the reason of the one that finds no nodes",
            lambda: "rule apart: spread of 4 VMs has each on a node of its own" in str(cluster.vjob(wide)),
            PATIENCE_S,
            lambda: str(cluster.vjob(wide)),
        )
        told = cluster.plugin("check", "--quick").out
        assert f"rule apart: spread per vjob; selects 2 of 2 jobs in the queue: {together}, {wide}" in told
    assert cluster.wait_job(wide, timeout_s=PATIENCE_S)["JobState"] == "COMPLETED", explain(cluster)
    finish(cluster, together)


def test_wishes_of_users_are_kept(cluster: Cluster, clean: None) -> None:
    wait_held(cluster, *cluster.nodes, timeout_s=PATIENCE_S)
    apart = count(cluster, "--spread-job", "-N", "2", "-n", "2")
    alone = count(cluster, "--exclusive=user")
    wait_number(cluster, apart)
    wait_number(cluster, alone)
    assert len(nodes(cluster, apart)) == 2, explain(cluster)
    others = cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N", "3", "-n", "3", "-c", "1", "--mem=96", user="bob")
    cluster.wait_vjob(others, "running")
    assert {*nodes(cluster, alone)}.isdisjoint(nodes(cluster, others)), explain(cluster)
    assert cluster.job(alone)["OverSubscribe"] != "USER", "his wrapper shares its front"
    finish(cluster, apart, alone)
