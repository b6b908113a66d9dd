"""The site's placement rules on real nodes: VMs apart, one that a rule keeps out, and what the check tells of rules.

And the wishes of users, also by the switches of a real topology.conf, and by labels that Slurm gives to jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.rooms import count, explain, finish, wait_held, wait_number
from e2e.slurm_conf import edited

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


@contextmanager
def switched(cluster: Cluster, *leaves: str) -> Iterator[None]:
    """Slurm with a topology of these leaf switches, each a list of nodes, and with a label for each user's jobs.

    Fronts are on a switch of their own.
    """
    fronts = ",".join(cluster.ok("sinfo", "-h", "-N", "-p", "vjob", "-o", "%N").split())
    lines = [f"SwitchName=leaf{number} Nodes={nodes}" for number, nodes in enumerate((*leaves, fronts))]
    topology = cluster.directory / "shared/slurm/topology.conf"
    try:
        with edited(cluster) as change:
            topology.write_text("\n".join([*lines, f"SwitchName=top Switches=leaf[0-{len(leaves)}]", ""]))
            plugins = ("TopologyPlugin=topology/tree", "MCSPlugin=mcs/user", "MCSParameters=enforced,ondemandselect")
            change("SwitchType=", "\n".join([*plugins, "SwitchType="]))
            _restart_slurmctld(cluster)
            yield
    finally:
        topology.unlink(missing_ok=True)
        _restart_slurmctld(cluster)


def _restart_slurmctld(cluster: Cluster) -> None:
    """Which plugins there are, slurmctld reads when it starts."""
    assert cluster.manage("stop", "head", "slurmctld").code == 0
    cluster.start("head", "slurmctld")
    cluster.wait("Slurm to answer", lambda: cluster.run("squeue", "-h").code == 0, PATIENCE_S)
    cluster.wait_nodes()


def test_vms_are_on_few_switches_and_not_beside_other_labels(cluster: Cluster, clean: None) -> None:
    wait_held(cluster, *cluster.nodes, timeout_s=PATIENCE_S)
    with switched(cluster, "n1", "n[2-3]"):
        whole = ("--switches=1", "-c", "2")  # each VM has all CPUs of a node
        wide = count(cluster, *whole, "-N", "3", "-n", "3")
        cluster.wait(
            "the reason of the one that no switch has nodes for",
            lambda: "but rule --switches=1: within: " in str(cluster.vjob(wide)),
            PATIENCE_S,
            lambda: str(cluster.vjob(wide)),
        )
        near = count(cluster, *whole, "-N", "2", "-n", "2")
        wait_number(cluster, near)
        assert nodes(cluster, near) == ["n2", "n3"], f"one after the other they begin on n1: {explain(cluster)}"
        assert cluster.job(wide)["JobState"] == "PENDING", explain(cluster)
        cluster.ok("scancel", str(wide))
        finish(cluster, near)
        labelled = count(cluster, "--exclusive=mcs")
        others = cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N", "3", "-n", "3", "-c", "1", "--mem=96", user="bob")
        wait_number(cluster, labelled)
        cluster.wait_vjob(others, "running")
        assert cluster.ok("squeue", "-h", "-j", str(others), "-O", "mcslabel:0").strip() == "bob"
        assert {*nodes(cluster, labelled)}.isdisjoint(nodes(cluster, others)), explain(cluster)
        finish(cluster, labelled)
