"""The live page of a real cluster: its nodes and VMs, news of its cycles, and who sees what under PrivateData."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.rooms import Watch, count, finish, wait_held, wait_number
from e2e.slurm_conf import edited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

SOCKET = "/run/rmsplugin/engine.sock"
PATIENCE_S = 120


@pytest.fixture(autouse=True)
def watch(cluster: Cluster, clean: None) -> Iterator[Watch]:
    """Meanwhile no VM is on a node without a room."""
    wait_held(cluster, *cluster.nodes, timeout_s=PATIENCE_S)
    with Watch(cluster) as watch:
        yield watch
    watch.check()


def page(cluster: Cluster, user: str) -> str:
    """The document, as a browser of this user gets it."""
    return cluster.ok(*_curl("page", "Accept: text/html"), user=user)


def _curl(path: str, *headers: str) -> list[str]:
    words = [each for header in headers for each in ("-H", header)]
    return ["curl", "-sS", "--unix-socket", SOCKET, *words, f"http://localhost/v1/{path}"]


def news(cluster: Cluster, after: int) -> dict[str, Any]:
    """What a page that waits is told."""
    told: dict[str, Any] = json.loads(cluster.ok(*_curl(f"page/news?after={after}&wait=60"), user="bob"))
    return told


def vms_shown(text: str) -> list[str]:
    """The titles of the VMs that are drawn."""
    return re.findall(r"<title>([^<]*: [^<]*)</title></path>", text)


def test_a_page_shows_the_cluster_and_each_user_what_slurm_lets_him_see(cluster: Cluster) -> None:
    job = count(cluster, "-J", "<b>seen</b>")
    wait_number(cluster, job)
    for user in ("alice", "bob", "root"):
        text = page(cluster, user)
        assert [each for each in vms_shown(text) if each.startswith(f"{job} (alice)")], text
        assert all(f'id="n-{node}"' in text for node in cluster.nodes)
        assert "<b>seen" not in text
    number = json.loads(cluster.ok(*_curl("page"), user="bob"))["number"]
    assert news(cluster, number)["changed"], "a cycle ends each three seconds"
    with edited(cluster) as change:
        change("ClusterName=minicluster\n", "ClusterName=minicluster\nPrivateData=jobs\n")
        cluster.wait("Slurm's word", lambda: "(alice)" not in page(cluster, "bob"), PATIENCE_S)
        assert [each for each in vms_shown(page(cluster, "bob")) if each.startswith("another user&#x27;s")]
        for user in ("alice", "root"):
            assert f"{job} (alice)" in page(cluster, user)
    cluster.wait("Slurm's word", lambda: f"{job} (alice)" in page(cluster, "bob"), PATIENCE_S)
    assert cluster.run(*_curl("status", "Host: evil.example"), user="alice").out.startswith('{"error": "this address')
    finish(cluster, job)
