"""Managers on two hosts of a minicluster, which share two groups of VM hosts: fixtures, and what tests ask of them."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.live.site import CONTROLLERS, Site
from e2e.live.well import start_all
from e2e.rooms import Machine, last_number
from minicluster_lib import hosts


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Either controller answers; VMs that idle keep their CPUs, so that a node that is full stays so."""
    for found in minicluster("hold", "--controllers", "2", "--managers", "--demand-window-s", "86400"):
        yield Site(found.directory)


class Manager:
    """The manager of a host, and its engines of groups."""

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._host = site, host

    def is_up(self) -> bool:
        return self._site.decider_pid(self._host) != 0

    def begin(self) -> None:
        self._site.start(self._host, self._site.decider)

    def end(self) -> None:
        """As `systemctl stop` does."""
        host = self._site._layout.host(self._host)
        hosts.request(host, op="stop", name=self._site.decider, signal=signal.SIGTERM, timeout_s=90)

    def said(self) -> str:
        return self._site.logs()[self._host]


@pytest.fixture(scope="module")
def managers(cluster: Site) -> dict[str, Manager]:
    """That on the head, and that on front2; each has a group."""
    found = {host: Manager(cluster, host) for host in CONTROLLERS}
    wait_shared_out(cluster, found)
    return found


@pytest.fixture(autouse=True)
def no_wrapper_on_front2(cluster: Cluster, managers: dict[str, Manager]) -> Iterator[None]:
    """What is lost there is a manager, and no wrapper."""
    cluster.ok("scontrol", "update", "NodeName=front2", "State=DRAIN", "Reason=test")
    yield
    cluster.run("scontrol", "update", "NodeName=front2", "State=RESUME")


def groups(cluster: Cluster) -> dict[str, Any]:
    # Where an engine has just begun, the status is told, and its exit code says that there was no cycle yet.
    told = cluster.plugin("status", "--json")
    return {each["name"]: each for each in json.loads(told.out or "{}").get("groups", [])}


def leader(cluster: Cluster) -> str:
    """The host of the manager that leads."""
    return str(json.loads(cluster.plugin("status", "--json").out)["host"])


def wait_groups(cluster: Cluster, managers: dict[str, Manager], hosts: dict[str, str]) -> None:
    """Wait until the engines of all groups answer, on these hosts; of an empty host any will do."""

    def there() -> bool:
        found = groups(cluster)
        return found.keys() == hosts.keys() and all(
            each["answers"] and (each["host"] == hosts[name] or not hosts[name]) for name, each in found.items()
        )

    cluster.wait(f"groups at {hosts}", there, 180, lambda: explained(cluster, managers))


def wait_shared_out(cluster: Cluster, managers: dict[str, Manager]) -> None:
    """Wait until each host has a group whose engine answers."""

    def there() -> bool:
        found = groups(cluster).values()
        return {each["host"] for each in found} == {*CONTROLLERS} and all(each["answers"] for each in found)

    cluster.wait("a group at each host", there, 180, lambda: explained(cluster, managers))


def explained(cluster: Cluster, managers: dict[str, Manager]) -> list[object]:
    return [groups(cluster), *(each.said()[-3000:] for each in managers.values())]


def group_of(cluster: Cluster, job: int) -> str:
    (node,) = (cluster.vjob(job) or {})["nodes"]
    return "left" if node == "n1" else "right"


def end_well(cluster: Cluster, jobs: list[int]) -> None:
    """Have counting vjobs end; each script ran once, and its output is whole."""
    for job in jobs:
        cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    for job in jobs:
        assert cluster.wait_job(job, timeout_s=300)["JobState"] == "COMPLETED", cluster.describe(job)
        lines = cluster.lines(job)
        assert (last := re.fullmatch(r"counted to (\d+)", lines[-1]))
        assert lines[:-1] == [str(number) for number in range(1, int(last[1]) + 1)]
        assert (cluster.home() / f"started.{job}").read_text() == "started\n"


def have_both(cluster: Site, managers: dict[str, Manager]) -> None:
    """Have all daemons again that have ended, a manager on each host, and an engine of a group."""
    start_all(cluster)
    for manager in managers.values():
        if not manager.is_up():
            manager.begin()
    wait_shared_out(cluster, managers)


class Watched:
    """Looks at a counting vjob of one VM again and again, in a thread of its own, as long as the block goes on."""

    def __init__(self, cluster: Cluster, job: int) -> None:
        self._cluster, self._job, self._machine = cluster, job, Machine(cluster)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watched", daemon=True)
        self.longest_s = 0.0  # for so long its script stood still at most
        self.nodes: list[str] = []  # in the order of time: where a QEMU of it was
        self.twice: list[list[str]] = []  # the nodes of each look that saw more than one

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        number, since = last_number(self._cluster, self._job), time.monotonic()
        while not self._over.wait(0.1):
            now = time.monotonic()
            if (found := last_number(self._cluster, self._job)) != number:
                number, since = found, now
            self.longest_s = max(self.longest_s, now - since)
            self._note([each.node for each in self._machine.guests() if each.vm == f"vjob{self._job}-0"])

    def _note(self, nodes: list[str]) -> None:
        if len(nodes) > 1:
            self.twice.append(nodes)
        elif nodes and nodes != self.nodes[-1:]:
            self.nodes += nodes
