"""Rooms as the e2e tests see them: Slurm's list of them, native jobs that want their nodes, and which VMs run where."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, rows_of

HOSTS_PARTITION = "vmhosts"

#: Counts until it is signalled, or up to its argument.
COUNT = """#!/bin/sh
trap 'enough=1' USR1
echo started >> started.$SLURM_JOB_ID
i=0
while [ -z "$enough" ] && [ $i -lt ${1:-1000} ]; do i=$((i + 1)); echo $i; sleep 1; done
echo counted to $i
"""


@dataclass(frozen=True)
class Room:
    """One of the engine's jobs that hold nodes."""

    job_id: int
    state: str
    node: str


@dataclass(frozen=True)
class Guest:
    """A QEMU of ours, seen in the process list; memory in MiB: the guest's, and what the process has of the node's."""

    vm: str
    node: str
    memory_mib: int
    resident_mib: int


# -- rooms -------------------------------------------------------------------------------------------------------------


def rooms(cluster: Cluster) -> dict[str, Room]:
    """The rooms that have not ended, by node; two for one node are a failure."""
    lines = cluster.ok("squeue", "-h", "-a", "-p", HOSTS_PARTITION, "-o", "%i|%T|%N|%n").splitlines()
    found: dict[str, Room] = {}
    for line in lines:
        job_id, state, node, wanted = line.split("|")
        if state == "COMPLETING":
            continue
        room = Room(int(job_id), state, node or wanted)
        assert room.node not in found, f"two rooms on {room.node}: {lines}"
        found[room.node] = room
    return found


def held(cluster: Cluster) -> set[str]:
    """Nodes on which a room runs."""
    return {room.node for room in rooms(cluster).values() if room.state == "RUNNING"}


def wait_held(cluster: Cluster, *nodes: str, timeout_s: float = 120) -> dict[str, Room]:
    """Wait until these nodes, and no others, are held; returns the rooms."""
    wanted = set(nodes)

    def there() -> dict[str, Room] | None:
        found = rooms(cluster)
        return found if held(cluster) == wanted == set(found) else None

    if not wanted:
        cluster.wait("no rooms", lambda: not rooms(cluster), timeout_s, lambda: explain(cluster))
        return {}
    return cluster.wait(f"rooms on {sorted(wanted)}", there, timeout_s, lambda: explain(cluster))


def end_room(cluster: Cluster, node: str, room: int, *options: str) -> dict[str, Any]:
    """The answer of the node's agent to an engine that has it end a room."""
    key = ("-i", "/etc/rmsplugin/agent_key", "-o", "UserKnownHostsFile=/etc/rmsplugin/known_hosts")
    told = cluster.run("ssh", *key, f"root@{node}", "end-room", str(room), *options, user="slurm")
    answer: dict[str, Any] = json.loads(told.out)
    return answer


def explain(cluster: Cluster) -> str:
    """All that helps to understand rooms that are not as they should be."""
    parts = [
        cluster.run("squeue", "-a", "-o", "%i %j %P %T %N %n %r %V %S").out,
        cluster.run("sinfo", "-a", "-N", "-o", "%N %T %E").out,
        cluster.plugin("nodes").out,
        cluster.plugin("status").out,
        cluster.plugin("events", "-n", "30").out,
        cluster.manage("logs", "head", "engine").out[-3000:],
    ]
    return "\n".join(parts)


def room_reports(cluster: Cluster, room: int) -> list[dict[str, Any]]:
    """What the hooks of a room told the engine, from the ledger."""
    rows = ledger(cluster, "select node, hook, problem, ended from room_reports where room = ? order by id", room)
    return [{"node": node, "hook": hook, "problem": problem, "ended": json.loads(ended)}
            for node, hook, problem, ended in rows]  # fmt: skip


def ledger(cluster: Cluster, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Ask the engine's ledger, which may be in use; those of all groups, where they have engines of their own."""
    return [row for path in cluster.ledgers() for row in rows_of(path, sql, *parameters, busy_s=20)]


# -- jobs --------------------------------------------------------------------------------------------------------------


def native(cluster: Cluster, *options: str, seconds: float = 3600, user: str = "bob") -> int:
    """Submit a native job that has a node for itself, or what the options say; returns its id."""
    words = ["sbatch", "--parsable", "-p", "plain", "-t", "60", "-o", "/dev/null", *(options or ["--exclusive"])]
    return int(cluster.ok(*words, "--wrap", f"exec sleep {seconds}", user=user))


def native_runs(cluster: Cluster, job: int, timeout_s: float) -> float:
    """Wait until a native job runs; returns for how many seconds Slurm had it wait."""
    cluster.wait(
        f"native job {job} to run",
        lambda: cluster.job(job)["JobState"] == "RUNNING",
        timeout_s,
        lambda: explain(cluster),
    )
    fields = cluster.job(job)
    begin, start = (time.mktime(time.strptime(fields[key], "%Y-%m-%dT%H:%M:%S")) for key in ("SubmitTime", "StartTime"))
    return start - begin


def count(cluster: Cluster, *options: str, up_to: int = 1000) -> int:
    """Submit a vjob that counts until ``finish``, one number a second while it runs, and ``up_to`` numbers at most."""
    return cluster.sbatch(COUNT, "--mem=96", "-c", "1", *options, arguments=(str(up_to),))


def wait_number(cluster: Cluster, job: int, more: int = 0, timeout_s: float = 180) -> int:
    """Wait until a counting vjob has printed that many numbers more than now, and one at least; returns the last."""
    wanted = last_number(cluster, job) + max(1, more)
    cluster.wait(
        f"{wanted} in the output of {job}",
        lambda: last_number(cluster, job) >= wanted,
        timeout_s,
        lambda: cluster.describe(job) + explain(cluster),
    )
    return wanted


def last_number(cluster: Cluster, job: int) -> int:
    """The last whole number that a counting vjob has printed; 0 before the first."""
    found = re.findall(r"^(\d+)\n", cluster.output(job), re.M)
    return int(found[-1]) if found else 0


def finish(cluster: Cluster, *jobs: int, losses: int = 0) -> None:
    """Have counting vjobs end, and see that nothing of their output and of their work was lost, nothing ran twice.

    As natively, the signal ends a script that does not catch it yet.
    """
    for job in jobs:
        cluster.wait(f"{job} to count", partial(last_number, cluster, job), 180, partial(cluster.describe, job))
    for job in jobs:
        cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    for job in jobs:
        ended_whole(cluster, job, losses=losses)


def have(cluster: Cluster, job: int, order: str, state: str) -> None:
    """Have a vjob suspended or resumed: what was under way is taken up, and what was refused is ordered again.

    It is asked for as users ask, so that any controller's engine may answer.
    """

    def state_now() -> str:
        told = cluster.plugin("vjobs", "--json")
        found = json.loads(told.out)["vjobs"] if told.code == 0 else []
        return next((vjob["state"] for vjob in found if vjob["job_id"] == job), "")

    def is_so() -> bool:
        if state_now() in {"running", "sleeping"} - {state}:
            cluster.plugin(order, str(job))
        return state_now() == state

    cluster.wait(f"{job} to be {state}", is_so, 180, lambda: cluster.describe(job))


def ended_whole(cluster: Cluster, job: int, losses: int = 0, timeout_s: float = 300) -> None:
    """See that a counting vjob ends well, with whole output; with no losses its script ran once."""
    fields = cluster.wait_job(job, timeout_s=timeout_s)
    assert fields["JobState"] == "COMPLETED", cluster.describe(job)
    output_is_whole(cluster, job, losses)


def output_is_whole(cluster: Cluster, job: int, losses: int = 0) -> None:
    """See that a counting vjob that has ended printed each number once, and that its script ran once but for losses."""
    text, lines = cluster.output(job), cluster.lines(job)
    assert lines and (last := re.fullmatch(r"counted to (\d+)", lines[-1])), text
    assert lines[:-1] == [str(number) for number in range(1, int(last[1]) + 1)], text
    assert (cluster.home() / f"started.{job}").read_text() == "started\n" * (losses + 1)
    assert ledger(cluster, "select losses from vjobs where job_id = ?", job) == [(losses,)]


def host_of(cluster: Cluster, job: int) -> str:
    """The one node on which a vjob's VMs run; empty while there is none."""
    vjob = cluster.vjob(job)
    return vjob["nodes"][0] if vjob and len(vjob["nodes"]) == 1 else ""


# -- what runs where ---------------------------------------------------------------------------------------------------


class Machine:
    """The hosts of a minicluster, as this machine's process list shows them: quick, and asked of nobody."""

    def __init__(self, cluster: Cluster) -> None:
        pids = json.loads((cluster.directory / "state" / "cluster.json").read_text())["init_pids"]
        self._namespaces = {Path(f"/proc/{pid}/ns/net").readlink(): name for name, pid in pids.items()}

    def processes(self, host: str) -> dict[int, list[str]]:
        """Command lines of a host's processes, by id."""
        return {pid: words for pid, name, words in self._walk() if name == host}

    def guests(self) -> list[Guest]:
        """Every VM of ours on every host."""
        return [
            Guest(match[1], host, _guest_mib(words), _resident_mib(pid))
            for pid, host, words in self._walk()
            if words and "qemu-system" in words[0] and (match := re.search(r"guest=(vjob\d+-\d+)", " ".join(words)))
        ]

    def lose(self, host: str) -> None:
        """End everything on a host but what the minicluster needs to go on, as a loss of power does."""
        for pid, words in self.processes(host).items():
            if not {"minicluster_lib.host_init", "/usr/sbin/munged"} & {*words}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _walk(self) -> Iterator[tuple[int, str, list[str]]]:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                host = self._namespaces.get((entry / "ns/net").readlink())
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if host else []
            except OSError:
                continue  # it has just ended
            if host:
                yield int(entry.name), host, words


def _guest_mib(words: list[str]) -> int:
    sizes = [match for word in words if (match := re.fullmatch(r"(?:size=)?(\d+)([km]?)", word))
             and words[words.index(word) - 1] == "-m"]  # fmt: skip
    assert sizes, words
    return int(sizes[0][1]) // 1024 if sizes[0][2] == "k" else int(sizes[0][1])


def _resident_mib(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


class Watch:
    """Looks at all nodes again and again while a test goes on: no VM without a room, no more memory than there is.

    What Slurm says is asked before and after each look at the processes, and only what both say is held against a VM:
    what changed between the two proves nothing.
    """

    def __init__(self, cluster: Cluster, every_s: float = 0.5) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._machine = Machine(cluster)
        self._memory_mib = {
            name: int(mib)
            for name, mib in (
                line.split() for line in cluster.ok("sinfo", "-h", "-N", "-p", "plain", "-o", "%N %m").splitlines()
            )
        }
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._error: BaseException | None = None
        self.looks = 0
        self.mixed = 0  # looks at which native jobs and VMs ran in the cluster at the same time
        self.peak_mib = 0  # the most memory that native jobs and VMs were seen to have of one node
        self.violations: list[str] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def check(self) -> None:
        """Fail if anything was seen that must not be; or nothing was looked at."""
        if self._error is not None:
            raise self._error
        assert not self.violations, self.violations[:10]
        assert self.looks > 0

    def _run(self) -> None:
        try:
            before = self._slurm()
            while not self._over.wait(self._every_s):
                guests = self._machine.guests()
                after = self._slurm()
                self._judge(before, guests, after)
                before = after
        except BaseException as error:
            self._error = error

    def _slurm(self) -> dict[int, tuple[str, str, int]] | None:
        """Running jobs: partition, node, memory in MiB. None while slurmctld does not answer."""
        asked = ("squeue", "-h", "-a", "-t", "R", "-p", f"plain,{HOSTS_PARTITION}", "-O")
        answer = self._cluster.run(*asked, "JobID:12,Partition:12,NodeList:40,MinMemory:12,NumCPUs:8,Name:20")
        if answer.code != 0:
            return None
        found = {}
        for line in answer.out.splitlines():
            job_id, partition, node, memory, cpus, _ = line.split()
            found[int(job_id)] = (partition, node, _mib(memory, int(cpus)))
        return found

    def _judge(
        self,
        before: dict[int, tuple[str, str, int]] | None,
        guests: list[Guest],
        after: dict[int, tuple[str, str, int]] | None,
    ) -> None:
        if before is None or after is None:
            return
        self.looks += 1
        either = [*before.values(), *after.values()]
        borrowed = {node for partition, node, _ in either if partition == HOSTS_PARTITION}
        natives = [job for job_id, job in before.items() if job_id in after and job[0] == "plain"]
        self.mixed += bool(natives and guests)
        when = time.strftime("%H:%M:%S")
        for guest in guests:
            if guest.node not in borrowed:
                self.violations.append(f"{when}: {guest} without a room: {before} {after}")
        for node, memory_mib in self._memory_mib.items():
            used = sum(mib for _, name, mib in natives if name == node)
            vms = [max(guest.memory_mib, guest.resident_mib) for guest in guests if guest.node == node]
            self.peak_mib = max(self.peak_mib, used + sum(vms))
            if used + sum(vms) > memory_mib:
                self.violations.append(f"{when}: {node} has {used} MiB of native jobs and VMs of {vms}: {guests}")


def _mib(text: str, cpus: int) -> int:
    """What squeue shows of a job's memory on its node (``0`` is all of it, for whole nodes)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(c?)", text)
    assert match, text
    unit = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}[match[2]]
    return int(float(match[1]) * unit) * (cpus if match[3] else 1)


# -- faults ------------------------------------------------------------------------------------------------------------


def engine_pid(cluster: Cluster) -> int:
    """Process id of the engine, to be killed without delay later; 0 if it has ended."""
    return int(cluster.status()["hosts"]["head"]["daemons"]["engine"]["pid"] or 0)


@contextlib.contextmanager
def engine_killed(
    cluster: Cluster, pid: int, what: str, condition: Callable[[], object], timeout_s: float = 120
) -> Iterator[None]:
    """SIGKILL the engine the moment that the condition holds; in the block it is dead, after it it is up again."""
    cluster.wait(what, condition, timeout_s, lambda: explain(cluster), every_s=0.005)
    os.kill(pid, signal.SIGKILL)
    cluster.wait("the engine to be dead", lambda: not engine_pid(cluster), 30)
    yield
    cluster.restart_engine()


class Log:
    """A daemon's log from here on."""

    def __init__(self, cluster: Cluster, daemon: str, host: str = "head") -> None:
        self._path = cluster.directory / "log" / host / f"{daemon}.log"
        self._offset = self._path.stat().st_size

    def search(self, pattern: str) -> re.Match[str] | None:
        """First match in what was written since."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            return re.search(pattern, file.read().decode(errors="replace"), re.M)
