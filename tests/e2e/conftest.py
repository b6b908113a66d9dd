"""One minicluster for all e2e tests of a session, of two users and three nodes, with the engine running.

It goes down when other tests follow: an idle one would take a fortieth of a CPU from them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e import common_templates
from e2e.cluster import Cluster
from e2e.whole_files import write_whole
from order import is_one_of_many

_WINDOW = "--demand-window-s"
_OBSERVED = "--observed-memory"
_FILTER = "--network-filter"
#: Most that tests wait for starts a cycle at once. A cycle or a look at the queue takes ten processes or one.
PERIODS = ("--cycle-s", "3", "--watch-s", "2")
#: The kinds of VMs that many tests have.
_USUAL = (("-c", "1", "--mem=96"), ("-c", "1", "--mem=128"), ("-c", "2", "--mem=96"))


def _kind(directory: Path) -> tuple[str, float, bool, str]:
    """How the nodes of a minicluster are borrowed, how soon demands fall, if memory is observed, who filters VMs."""
    known = json.loads((directory / "state" / "cluster.json").read_text())
    return known["rooms"], known["demand_window_s"], known["observed_memory"], known["network_filter"]


def minicluster(rooms: str, *options: str) -> Iterator[Cluster]:
    """A minicluster that is up, with rooms as told.

    RMSPLUGIN_E2E_DIR names one that is up already and is left up; it serves tests of the same kind of rooms.
    """
    kept = os.environ.get("RMSPLUGIN_E2E_DIR")
    window_s = float(options[options.index(_WINDOW) + 1]) if _WINDOW in options else 60.0
    chosen = options[options.index(_FILTER) + 1] if _FILTER in options else ""
    if kept and _kind(Path(kept)) == (rooms, window_s, _OBSERVED in options, chosen):
        yield Cluster(Path(kept))
        return
    # The session's may be up beside a module's.
    cluster = Cluster(Path("/var/tmp") / f"rmsplugin-e2e-{os.getpid()}-{secrets.token_hex(2)}")
    try:
        result = cluster.manage("up", "--nodes", "3", "--rooms", rooms, *PERIODS, *options)
        assert result.code == 0, result.err
        common_templates.await_usual()
        share_templates(cluster)
        yield cluster
        share_templates(cluster)
    finally:
        cluster.manage("down")


def share_templates(cluster: Cluster) -> None:
    """Between two tests: who is in one of them may look at what its nodes have."""
    common_templates.share(cluster.host_path(node, "/") for node in cluster.nodes)


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The minicluster of all tests that need no other. VMs that idle keep their CPUs: a node that is full stays so."""
    with contextlib.ExitStack() as place:
        # Of the whole suite's workers the first one makes what all of them need.
        many = is_one_of_many(request.config)
        wanted = many and place.enter_context(common_templates.place_of_first())
        for cluster in minicluster("hold", _WINDOW, "86400"):
            if wanted:
                _make_usual_templates(cluster)
            place.close()
            yield cluster


def _make_usual_templates(cluster: Cluster) -> None:
    """Have a template of each kind of VM that many tests have, each made by a job on a node of its own.

    On a busy machine a guest may be too late for its template, and is booted. Then the tests make it themselves.
    """
    nodes = cluster.nodes[: len(_USUAL)]
    jobs = [cluster.sbatch("#!/bin/sh\n", *kind, "-w", node) for kind, node in zip(_USUAL, nodes, strict=True)]
    for job in jobs:
        assert cluster.wait_job(job, timeout_s=300)["JobState"] == "COMPLETED", cluster.describe(job)
        cluster.wait_gone(job)
    for node in nodes:
        place = cluster.host_path(node, common_templates.OF_A_NODE)
        told = functools.partial(cluster.plugin, "events", "--node", node)
        cluster.wait(
            f"a template on {node}, or why there is none",
            lambda place=place, told=told: list(place.glob("*.state")) or "template-failed" in told().out,
            60,
            lambda told=told: told().out,
        )
    share_templates(cluster)


@pytest.fixture
def no_new_templates(cluster: Cluster) -> Iterator[None]:
    """VMs of kinds that no other test has only boot: to make a template takes twice as long."""
    settings = [cluster.host_path(node, "/etc/rmsplugin/rmsplugin.toml") for node in cluster.nodes]
    before = [path.read_text() for path in settings]
    for path, text in zip(settings, before, strict=True):
        assert text.count("[start]\n") == 1
        write_whole(path, text.replace("[start]\n", "[start]\ntemplate_mib = 0\n"))
    yield
    for path, text in zip(settings, before, strict=True):
        write_whole(path, text)


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """No job outlives the test that submitted it, nor does a drain the test in which it happened: that one is told."""
    yield
    if "cluster" in request.fixturenames:
        cluster: Cluster = request.getfixturevalue("cluster")
        cluster.run("scancel", "--user", "alice")
        cluster.run("scancel", "--user", "bob")
        queue = ("squeue", "-h", "-u", "alice,bob")
        cluster.wait("an empty queue", lambda: not cluster.ok(*queue).strip(), 90, lambda: cluster.ok(*queue))
        drained = [line for line in cluster.unable_nodes() if "drain" in line]
        for line in drained:
            cluster.ok("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
        if drained:
            warnings.warn(f"after {request.node.name}: {'; '.join(drained)}", stacklevel=1)
        share_templates(cluster)
