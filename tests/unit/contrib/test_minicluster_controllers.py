"""A minicluster of two controllers: three ZooKeeper servers that know each other, and engines that know all three."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from minicluster_lib import controllers
from minicluster_lib.layout import Cluster

SETTINGS = """\
[engine]
state_dir = "/var/lib/rmsplugin"
listen = "10.77.0.1:6830"
url = "http://10.77.0.1:6830"

[slurm]
partitions = ["vjob"]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path, nodes=2, fronts=2, controllers=2)
    controllers._install_ensemble(controllers.ensemble(cluster))
    return cluster


def test_each_server_has_its_number_and_all_addresses(cluster: Cluster) -> None:
    found = {}
    for host in controllers.ensemble(cluster):
        text = host.path("etc/zoo.cfg").read_text()
        own = dict(line.split("=") for line in text.splitlines())
        number = host.path("var/lib/zookeeper/myid").read_text().strip()
        assert own["clientPortAddress"] == host.address == own[f"server.{number}"].split(":")[0]
        found[host.name] = {key: value for key, value in own.items() if key.startswith("server.")}
    assert list(found) == ["head", "front2", "n1"]
    assert len({str(servers) for servers in found.values()}) == 1
    assert len({*found["head"].values()}) == 3


def test_both_engines_know_all_servers(cluster: Cluster) -> None:
    for name in ("head", "front2"):
        known = tomllib.loads(controllers.settings(cluster, SETTINGS, name))["cluster"]["servers"]
        assert known == [f"{host.address}:2181" for host in controllers.ensemble(cluster)]


def test_managers_have_groups_which_all_hosts_know_alike(tmp_path: Path) -> None:
    managed = Cluster(tmp_path, nodes=3, fronts=2, controllers=2, managers=True)
    for name in ("head", "front2", "n1"):
        known = tomllib.loads(controllers.settings(managed, SETTINGS, name))
        assert known["group"] == {"left": {"hosts": "n1"}, "right": {"hosts": "n2,n3"}}
        assert known["cluster"]["migration_domains"] == [["left", "right"]]
    assert managed.engine_daemon == "manager"


def test_engines_have_no_groups(cluster: Cluster) -> None:
    known = tomllib.loads(controllers.settings(cluster, SETTINGS, "head"))
    assert "group" not in known and "migration_domains" not in known["cluster"]
    assert cluster.engine_daemon == "engine"


def test_one_controller_has_no_server(tmp_path: Path) -> None:
    alone = Cluster(tmp_path, nodes=2)
    assert controllers.ensemble(alone) == []
    assert controllers.settings(alone, SETTINGS, "head") == SETTINGS
