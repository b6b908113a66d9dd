"""A minicluster of two controllers: three ZooKeeper servers that know each other, and engines that know all three."""

from __future__ import annotations

import contextlib
import re
import tomllib
from pathlib import Path

import pytest
from minicluster_lib import cli, controllers, shared_nfs
from minicluster_lib.layout import Cluster, RefusedError

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


def test_what_is_shared_by_nfs_comes_from_a_host_without_a_server_of_the_ensemble(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=3, fronts=2, controllers=2, shared_nfs=True)
    server = cluster.file_server
    assert server is not None and server.name not in {host.name for host in controllers.ensemble(cluster)}
    server.path("etc").mkdir(parents=True)
    shared_nfs.install_configuration(cluster)
    text = server.path("etc/ganesha/ganesha.conf").read_text()
    assert re.findall(r"Pseudo = (\S+);", text) == [controllers.SHARED, controllers.SLURM_STATE]
    assert f"Bind_addr = {server.address};" in text


def test_nobody_serves_what_is_shared_in_files(cluster: Cluster) -> None:
    assert cluster.file_server is None


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (["--controllers", "2"], False),
        (["--controllers", "2", "--nodes", "1"], True),
        (["--controllers", "2", "--power-saving"], True),
        ([], True),
    ],
)
def test_a_file_server_has_to_be_a_node_that_is_always_there(
    options: list[str], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_nfs, "check", lambda: None)
    arguments = cli._parser().parse_args(["up", "--shared", "nfs", *options])
    with pytest.raises(RefusedError, match="--shared nfs needs") if refused else contextlib.nullcontext():
        cli._check_shared_nfs(arguments)
