"""A node whose sensor, a command of the site's, shows too high a temperature is left by its VMs live, and cools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.rooms import Machine, Watch, count, explain, finish, host_of, wait_held, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

#: On the controller: what the BMCs of all nodes say.
SENSORS = "/etc/rmsplugin/sensors"
PATIENCE_S = 120


@pytest.fixture(autouse=True)
def watch(cluster: Cluster, clean: None) -> Iterator[Watch]:
    """Meanwhile no VM is on a node without a room."""
    wait_held(cluster, *cluster.nodes, timeout_s=PATIENCE_S)
    with Watch(cluster) as watch:
        yield watch
    watch.check()


def told(cluster: Cluster) -> Path:
    return cluster.host_path("head", SENSORS)


def heat(cluster: Cluster, node: str | None, celsius: float = 0.0) -> None:
    """Have the sensors show 25 degrees, but that of a node."""
    lines = [
        f"{each} power: on\n{each} temperature: {celsius if each == node else 25} C\n{each} power use: 120 W\n"
        for each in cluster.nodes
    ]
    new = told(cluster).with_suffix(".new")
    new.write_text("".join(lines))
    new.replace(told(cluster))


def asks(what: str) -> str:
    return f'["/bin/grep", "^{{node}} {what}:", "{SENSORS}"]'


def shown(cluster: Cluster, node: str) -> str:
    fields = "node,watts,temperature,reason"
    lines = cluster.plugin("nodes", "--noheader", "--parsable2", f"--format={fields}").out.splitlines()
    return next(line for line in lines if line.startswith(f"{node}|"))


def test_a_hot_node_is_emptied_live_and_cools(cluster: Cluster) -> None:
    heat(cluster, None)
    driver = [
        *('driver.bmc.kind = "command"', 'driver.bmc.off = ["/bin/false", "{node}"]'),
        *('driver.bmc.on = ["/bin/false", "{node}"]', f"driver.bmc.status = {asks('power')}"),
        *(f"driver.bmc.watts = {asks('power use')}", f"driver.bmc.temperature = {asks('temperature')}"),
    ]
    try:
        with configured(cluster, "power", "sense_s = 1", "hot_c = 45", "cool_c = 40", *driver):
            emptied_and_cool(cluster)
    finally:
        told(cluster).unlink()


def emptied_and_cool(cluster: Cluster) -> None:
    job = count(cluster)
    wait_number(cluster, job)
    home = host_of(cluster, job)
    cluster.wait("what sensors show", lambda: shown(cluster, home) == f"{home}|120|25|", PATIENCE_S)

    heat(cluster, home, 47.5)
    cluster.wait(f"{home} to be left", lambda: host_of(cluster, job) != home, PATIENCE_S, lambda: explain(cluster))
    wait_number(cluster, job, 2)
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert home not in {guest.node for guest in Machine(cluster).guests()}
    assert "migrated" in cluster.events(job)
    assert "vjob-sleeping" not in cluster.events(job)
    assert shown(cluster, home).startswith(f"{home}|120|48|it is hot since ")
    assert f"nodes that are hot: {home} (47.5 °C)" in cluster.plugin("status").out

    refused = cluster.plugin("migrate", str(job), "--to", home, user="root")
    assert refused.code != 0
    assert "it is hot since " in refused.err
    heat(cluster, home, 39)
    cluster.wait(f"{home} to cool", lambda: shown(cluster, home) == f"{home}|120|39|", PATIENCE_S)
    assert "nodes that are hot" not in cluster.plugin("status").out
    finish(cluster, job)
