"""What ``rmsplugin check`` says of migration domains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit import check_facts

from rmsplugin.cli.check.domains import judge_domains
from rmsplugin.cli.check.facts import SlurmFacts
from rmsplugin.finding import Finding, Level


def judged(hosts: dict[str, Any] | None = None, right: str = "n2", **nodes: Any) -> Finding:
    ensemble = {"coordination": "zookeeper", "servers": ["c1:2181"], "shared_dir": Path("/shared")}
    settings = check_facts.settings(
        cluster={**ensemble, "migration_domains": [["left", "right"]]},
        group={"left": {"hosts": "n1"}, "right": {"hosts": right}},
        hosts=hosts or {"vmhosts": {"rooms": "hold"}},
        **nodes,
    )
    row = {"Partitions": "vmhosts", "CPUTot": "8", "RealMemory": "4096"}
    [finding] = judge_domains(settings, SlurmFacts(nodes={"n1": row, "n2": row, "n3": {**row, "Partitions": "other"}}))
    assert finding.subject == "migration domain left, right"
    return finding


def test_a_domain_whose_groups_share_hosts_partitions_is_in_order() -> None:
    assert judged() == Finding(Level.OK, "migration domain left, right", "left has 1 host; right has 1 host", "")


def test_a_group_without_vm_hosts_is_an_error() -> None:
    found = judged(right="n9")
    assert (found.level, found.what) == (Level.ERROR, "right has no VM host")


def test_where_saved_states_do_not_outlive_rooms_a_vjob_does_not_come() -> None:
    found = judged(hosts={"vmhosts": {"rooms": "elastic", "store_survives": False}})
    assert (found.level, found.what) == (
        Level.WARNING,
        "no vjob comes to n1, n2: what is saved there does not outlive a room",
    )


@pytest.mark.parametrize("right", ["n3"])
def test_groups_of_different_hosts_partitions_are_no_domain(right: str) -> None:
    found = judged(right=right)
    assert found.level is Level.ERROR and found.what == "right has no VM host", "n3 hosts no VMs"
