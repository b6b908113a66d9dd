"""Managers on two controllers switch the nodes of their groups; BMCs, Slurm and slurmd are real, and so is a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.managers import groups
from e2e.test_power import KIND, SCRIPT, Powered, assert_whole, native

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

#: Those of a minicluster with managers.
GROUPS = {"left": ("n1",), "right": ("n2", "n3")}
NODES = tuple(node for nodes in GROUPS.values() for node in nodes)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Powered]:
    options = ("--controllers", "2", "--managers", "--power-saving", "--room-idle-s", "2")
    for each in minicluster("elastic", *options, "--cycle-s", "2", "--watch-s", "1"):
        yield Powered(each.directory)


def powers(cluster: Cluster) -> dict[str, str]:
    """How far each node is, as the engines of their groups have it."""
    told = cluster.plugin("nodes", "--json")
    return {each["name"]: each["power"] for each in json.loads(told.out or "{}").get("nodes", [])}


def switched(cluster: Cluster, kind: str) -> list[str]:
    """The nodes of the events of a kind, in the order of time."""
    told = json.loads(cluster.plugin("events", "--json", "--limit", "1000").out)["events"]
    return [each["node"] for each in told if each["kind"] == kind]


def wait_powers(cluster: Powered, what: str, *nodes: str) -> None:
    def there() -> bool:
        found = powers(cluster)
        return all(found.get(node) == what for node in nodes)

    cluster.wait(f"{nodes} to be {what}", there, 240, lambda: [powers(cluster), cluster.plugin("status").out])


def test_a_group_whose_manager_dies_while_its_nodes_go_off_goes_on_with_them(cluster: Powered) -> None:
    def shared_out() -> bool:
        found = groups(cluster).values()
        return {each["host"] for each in found} == {"head", "front2"} and all(each["answers"] for each in found)

    cluster.wait("a group at each host", shared_out, 180, lambda: groups(cluster))
    (theirs,) = (name for name, each in groups(cluster).items() if each["host"] == "front2")
    wait_powers(cluster, "off", *NODES)
    before = switched(cluster, "power-off")
    assert sorted(before) == sorted(NODES), "each once, by the engine of its own group"
    for job in [native(cluster, node, 1) for node in GROUPS[theirs]]:
        assert_whole(cluster, job)
    wait_powers(cluster, "going-off", *GROUPS[theirs])
    cluster.kill("front2", "manager")
    cluster.wait("both groups at head", lambda: {each["host"] for each in groups(cluster).values()} == {"head"}, 180)
    wait_powers(cluster, "off", *NODES)
    assert [cluster.ipmitool(node, "status") for node in NODES] == ["Chassis Power is off"] * len(NODES)
    assert sorted(switched(cluster, "power-off")[len(before) :]) == sorted(GROUPS[theirs]), "each once more"

    job = cluster.sbatch(SCRIPT, *KIND)
    assert_whole(cluster, job)
    on = [node for node in NODES if cluster.ipmitool(node, "status") == "Chassis Power is on"]
    assert len(on) <= 1, "one is enough"
    wait_powers(cluster, "off", *NODES)
    assert cluster.run("squeue", "-h", "-u", "alice").out == ""
