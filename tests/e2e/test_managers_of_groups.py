"""Managers on two hosts: each group of VM hosts has an engine, and goes on at the other host when its manager dies."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster import PROGRAM, Cluster
from e2e.conftest import minicluster
from e2e.rooms import Machine, count, explain, last_number, wait_number
from e2e.test_two_controllers import STATE, ensemble, lose_front2, make_controller, write_settings

__all__ = ["ensemble"]

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

#: It goes to the end of the settings, which is their section [cluster].
_GROUPS = 'migration_domains = [["left", "right"]]\n[group.left]\nhosts = "n1"\n[group.right]\nhosts = "n2,n3"\n'


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("hold", "--fronts", "2")


class Manager:
    """A manager on a host."""

    def __init__(self, cluster: Cluster, directory: Path, host: str) -> None:
        state = STATE if host == "front2" else "/var/lib/rmsplugin"
        self._cluster, self._host, self._log = cluster, host, directory / f"{host}.log"
        places = {"HOME": state, "XDG_CACHE_HOME": f"{state}/cache", "XDG_CONFIG_HOME": f"{state}/config"}
        places["XDG_RUNTIME_DIR"] = "/run/rmsplugin/runtime"
        words = ["env", *(f"{name}={place}" for name, place in places.items()), str(PROGRAM), "manager"]
        with self._log.open("w") as said:
            self.process = subprocess.Popen(
                cluster.entering(*words, host=host, user="slurm"),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def signal(self, number: signal.Signals) -> None:
        for pid, words in Machine(self._cluster).processes(self._host).items():
            if words[-3:-1] == [str(PROGRAM), "manager"]:
                os.kill(pid, number)
        self.process.wait(90)

    def said(self) -> str:
        return self._log.read_text()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where managers say what they do."""
    return tmp_path_factory.mktemp("managers")


@pytest.fixture(scope="module")
def managers(cluster: Cluster, ensemble: None, logs: Path) -> Iterator[dict[str, Manager]]:
    """A manager on the head, and one on front2, where no wrapper runs, in place of the engine."""
    cluster.ok("scontrol", "update", "NodeName=front2", "State=DRAIN", "Reason=test")
    make_controller(cluster)
    cluster.ok("install", "-d", "-o", "slurm", "-g", "slurm", "-m", "700", "/run/rmsplugin/runtime")
    cluster.kill("head", "engine")
    write_settings(cluster)
    cluster.restart_engine()  # it takes its ledger to the directory that both share
    cluster.kill("head", "engine")
    for host in ("head", "front2", *cluster.nodes):
        path = cluster.host_path(host, "/etc/rmsplugin/rmsplugin.toml")
        path.write_text(path.read_text() + _GROUPS)
    found = {"head": Manager(cluster, logs, "head")}
    try:
        wait_groups(cluster, found, {"left": "head", "right": "head"})
        found["front2"] = Manager(cluster, logs, "front2")
        yield found
    finally:
        lose_front2(cluster)
        if found["head"].process.poll() is None:
            found["head"].signal(signal.SIGKILL)


def groups(cluster: Cluster) -> dict[str, Any]:
    # Where an engine has just begun, the status is told, and its exit code says that there was no cycle yet.
    told = cluster.plugin("status", "--json")
    return {each["name"]: each for each in json.loads(told.out or "{}").get("groups", [])}


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


def test_a_group_is_handed_over_while_its_vjobs_run_and_goes_back(
    cluster: Cluster, managers: dict[str, Manager]
) -> None:
    wait_shared_out(cluster, managers)
    jobs = [count(cluster) for _ in range(3)]
    for job in jobs:
        wait_number(cluster, job, 2)
    before = groups(cluster)
    name, other = sorted(before, key=lambda each: before[each]["host"] == "head")  # that of front2, that of head
    told = cluster.plugin("handover", name, "--to", "head", "--json")
    assert told.code == 0, [told.err, explained(cluster, managers)]
    answer = json.loads(told.out)
    print(f"\n{name} is handed over to head in {answer['seconds']} s")
    assert (answer["group"], answer["from"], answer["to"]) == (name, "front2", "head")
    assert answer["epoch"] > before[name]["epoch"]
    assert groups(cluster)[name]["kept_on"] == "head"
    assert ", by order of root" in cluster.plugin("status").out
    # The loads are as even as they can be: the other group has gone in exchange.
    wait_groups(cluster, managers, {name: "head", other: "front2"})
    told = cluster.plugin("handover", other, "--to", "head")
    assert told.code == 0, [told.err, explained(cluster, managers)]
    wait_groups(cluster, managers, {name: "head", other: "head"})
    for words, why in {
        ("nowhere",): "there is no group nowhere: nothing was done",
        (name, "--to", "n1"): "no manager is on n1: nothing was done. Those that there are: front2, head",
    }.items():
        refused = cluster.plugin("handover", *words)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert cluster.plugin("handover", name, user="alice").code == 1, "she is no operator"
    for each in (name, other):
        assert cluster.plugin("handover", each, "--to", "any").code == 0
    wait_shared_out(cluster, managers)
    for job in jobs:
        wait_number(cluster, job, 2)
    end_well(cluster, jobs)


def test_vjobs_run_in_groups_and_outlive_the_manager_of_theirs(cluster: Cluster, managers: dict[str, Manager]) -> None:
    jobs = [count(cluster) for _ in range(4)]
    for job in jobs:
        wait_number(cluster, job, 2)

    wait_shared_out(cluster, managers)
    for job in jobs:
        wait_number(cluster, job, 2)
    assert {group_of(cluster, job) for job in jobs} <= {"left", "right"}
    listed = (cluster.ask("/v1/vjobs") or {})["vjobs"]
    assert {each["job_id"] for each in listed} >= set(jobs)
    told = cluster.plugin("suspend", str(jobs[0]))
    assert told.code == 0, told.err

    lose_front2(cluster)
    wait_groups(cluster, managers, {"left": "head", "right": "head"})
    for job in jobs[1:]:
        wait_number(cluster, job, 2)
    told = cluster.plugin("resume", str(jobs[0]))
    assert told.code == 0, told.err
    end_well(cluster, jobs)


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
    """Have a manager on front2 again, where there is none, and an engine of a group on each host."""
    if managers["front2"].process.poll() is not None:
        managers["front2"] = Manager(cluster, logs, "front2")
    wait_shared_out(cluster, managers)


def test_a_vjob_that_sleeps_goes_to_a_group_of_another_manager_and_goes_on_there(
    cluster: Cluster, managers: dict[str, Manager], logs: Path
) -> None:
    have_both(cluster, managers, logs)
    there = [count(cluster, "-c", "2") for _ in range(3)]  # a whole node each
    for job in there:
        wait_number(cluster, job, 2)
    (goes,) = (job for job in there if group_of(cluster, job) == "left")
    told = cluster.plugin("suspend", str(goes))
    assert told.code == 0, told.err
    counted = last_number(cluster, goes)
    stays = count(cluster, "-c", "2")
    wait_number(cluster, stays, 2)
    assert group_of(cluster, stays) == "left", explained(cluster, managers)
    assert "it is resumed when its turn comes" in cluster.plugin("resume", str(goes)).err, "there is no room"

    end_well(cluster, [job for job in there if job != goes])
    ended = time.monotonic()
    wait_number(cluster, goes, 2)
    print(f"\nit goes on in the other group {time.monotonic() - ended:.1f} s after there was room")
    assert group_of(cluster, goes) == "right" and last_number(cluster, goes) > counted
    assert {each["host"] for each in groups(cluster).values()} == {"head", "front2"}
    assert [each.node for each in Machine(cluster).guests() if each.vm == f"vjob{goes}-0"] in (["n2"], ["n3"])
    end_well(cluster, [goes, stays])
    for job in (goes, stays):
        cluster.wait_gone(job)


def longest_pause(cluster: Cluster, job: int, until: Callable[[], bool]) -> float:
    """The longest time for which a counting vjob stood still until something was so, and for some seconds more."""
    number, since, longest, end = last_number(cluster, job), time.monotonic(), 0.0, float("inf")
    deadline = since + 300
    while (now := time.monotonic()) < end:
        assert now < deadline, explain(cluster)
        if (found := last_number(cluster, job)) != number:
            number, since = found, now
        longest = max(longest, now - since)
        if end == float("inf") and until():
            end = now + 5
        time.sleep(0.1)
    return longest


def test_a_vjob_that_runs_goes_to_a_group_of_another_manager_so_that_one_with_room_nowhere_starts(
    cluster: Cluster, managers: dict[str, Manager], logs: Path
) -> None:
    have_both(cluster, managers, logs)
    wide = count(cluster, "-c", "2", "--nodelist=n2")
    there = [count(cluster, "--nodelist=n3") for _ in range(2)]
    for job in (wide, *there):
        wait_number(cluster, job, 1)
    goes = count(cluster)
    wait_number(cluster, goes, 2)
    assert group_of(cluster, goes) == "left", explained(cluster, managers)
    end_well(cluster, there[:1])  # a CPU is free in each group

    waits = count(cluster, "-c", "2", "--nodelist=n1")
    submitted = time.monotonic()
    paused_s = longest_pause(
        cluster, goes, lambda: last_number(cluster, waits) > 0 and (cluster.vjob(goes) or {}).get("nodes") == ["n3"]
    )
    took_s = time.monotonic() - submitted
    print(f"\nthe vjob that went stood still for {paused_s:.1f} s; the other one counted {took_s:.1f} s after it came")
    wait_number(cluster, goes, 2)
    assert (group_of(cluster, goes), group_of(cluster, waits)) == ("right", "left")
    told = [each["message"] for each in (cluster.ask(f"/v1/events?vjob={goes}") or {})["events"]]
    assert any(f"vjob {waits} waits for its room" in what for what in told), told
    end_well(cluster, [wide, there[1], goes, waits])
    for job in (wide, there[1], goes, waits):
        cluster.wait_gone(job)


def test_the_host_of_the_manager_that_leads_is_lost_in_the_middle_of_a_switch(
    cluster: Cluster, managers: dict[str, Manager], logs: Path
) -> None:
    have_both(cluster, managers, logs)
    managers["head"].signal(signal.SIGTERM)  # the lead goes over
    wait_groups(cluster, managers, {"left": "front2", "right": "front2"})
    managers["head"] = Manager(cluster, logs, "head")
    wait_shared_out(cluster, managers)
    assert json.loads(cluster.plugin("status", "--json").out)["host"] == "front2"
    jobs = [count(cluster) for _ in range(4)]
    for job in jobs:
        wait_number(cluster, job, 2)
    theirs = next(name for name, each in groups(cluster).items() if each["host"] == "front2")
    sleeps = next(job for job in jobs if group_of(cluster, job) == theirs)
    others = [job for job in jobs if group_of(cluster, job) == "right" and job != sleeps]
    for words in (("suspend", sleeps), *(("migrate", job) for job in others[:1])):
        told = cluster.plugin(words[0], str(words[1]), "--no-wait")
        assert told.code == 0, told.err

    lose_front2(cluster)
    lost = time.monotonic()
    wait_groups(cluster, managers, {"left": "head", "right": "head"})
    print(f"\nboth groups act {time.monotonic() - lost:.1f} s after the loss of the leading manager's host")
    assert json.loads(cluster.plugin("status", "--json").out)["host"] == "head"
    for job in jobs:
        if job != sleeps:
            wait_number(cluster, job, 2)
    cluster.wait(
        "the suspend to be carried out",
        lambda: (cluster.vjob(sleeps) or {})["state"] == "sleeping",
        180,
        lambda: explained(cluster, managers),
    )
    told = cluster.plugin("resume", str(sleeps))
    assert told.code == 0, told.err
    end_well(cluster, jobs)
