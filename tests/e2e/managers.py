"""Managers on two hosts of a minicluster, which share two groups of VM hosts: fixtures, and what tests ask of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster import PROGRAM, Cluster
from e2e.conftest import minicluster
from e2e.live.site import Site
from e2e.rooms import Machine, last_number
from e2e.test_two_controllers import STATE, ensemble, lose_front2, make_controller, write_settings
from e2e.whole_files import write_whole

__all__ = ["ensemble"]

#: The hosts of each group.
GROUPS = {"left": ("n1",), "right": ("n2", "n3")}
#: It goes to the end of the settings, which is their section [cluster].
_SETTINGS = 'migration_domains = [["left", "right"]]\n' + "".join(
    f'[group.{name}]\nhosts = "{",".join(hosts)}"\n' for name, hosts in GROUPS.items()
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Either controller answers; VMs that idle keep their CPUs, so that a node that is full stays so."""
    for found in minicluster("hold", "--fronts", "2", "--demand-window-s", "86400"):
        yield Site(found.directory)


class Manager:
    """A manager on a host."""

    def __init__(self, cluster: Cluster, directory: Path, host: str) -> None:
        state = STATE if host == "front2" else "/var/lib/rmsplugin"
        self._cluster, self._host, self._log = cluster, host, directory / f"{host}.log"
        places = {"HOME": state, "XDG_CACHE_HOME": f"{state}/cache", "XDG_CONFIG_HOME": f"{state}/config"}
        places["XDG_RUNTIME_DIR"] = "/run/rmsplugin/runtime"
        words = ["env", *(f"{name}={place}" for name, place in places.items()), str(PROGRAM), "manager"]
        with self._log.open("a") as said:
            self.process = subprocess.Popen(
                cluster.entering(*words, host=host, user="slurm"),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def end(self, number: signal.Signals) -> None:
        """Have it end by this signal, and wait for that."""
        for pid in self._found(["manager"]):
            os.kill(pid, number)
        self.process.wait(90)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to its engines, at one moment."""
        for pid in self._found(["manager", "engine"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _found(self, commands: list[str]) -> list[int]:
        """The processes of these commands of ours on its host, first those of the first one."""
        found = Machine(self._cluster).processes(self._host).items()
        return [pid for command in commands for pid, words in found if _is(command, words)]

    def said(self) -> str:
        return self._log.read_text()


def _is(command: str, words: list[str]) -> bool:
    if command == "engine":
        return {"rmsplugin.cli.main", "engine", "--group"} <= {*words}
    return words[-3:-1] == [str(PROGRAM), command]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where managers say what they do."""
    return tmp_path_factory.mktemp("managers")


@pytest.fixture(scope="module")
def managers(cluster: Cluster, ensemble: None, logs: Path) -> Iterator[dict[str, Manager]]:
    """A manager on the head, and one on front2, in place of the engine."""
    make_controller(cluster)
    cluster.ok("install", "-d", "-o", "slurm", "-g", "slurm", "-m", "700", "/run/rmsplugin/runtime")
    cluster.kill("head", "engine")
    write_settings(cluster)
    cluster.restart_engine()  # it takes its ledger to the directory that both share
    cluster.kill("head", "engine")
    for host in ("head", "front2", *cluster.nodes):
        path = cluster.host_path(host, "/etc/rmsplugin/rmsplugin.toml")
        write_whole(path, path.read_text() + _SETTINGS)
    found = {"head": Manager(cluster, logs, "head")}
    try:
        wait_groups(cluster, found, {"left": "head", "right": "head"})
        found["front2"] = Manager(cluster, logs, "front2")
        yield found
    finally:
        lose_front2(cluster)
        if found["head"].process.poll() is None:
            found["head"].end(signal.SIGKILL)


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
        return {each["host"] for each in found} == {"head", "front2"} and all(each["answers"] for each in found)

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


def have_both(cluster: Cluster, managers: dict[str, Manager], logs: Path) -> None:
    """Have a manager on each host again, where there is none, and an engine of a group."""
    for host, manager in managers.items():
        if manager.process.poll() is not None:
            managers[host] = Manager(cluster, logs, host)
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
