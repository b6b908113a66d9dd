"""A minicluster whose vjobs are plain jobs of Slurm, and a watch over Slurm's books about its nodes."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from e2e.cluster import Cluster

#: Says how often it was started, and counts; it never ends by itself.
COUNTS = """#!/bin/sh
echo started
i=0
while :; do i=$((i+1)); echo $i; sleep 0.2; done
"""
#: The same by each task of a step on all nodes.
COUNTS_ON_ALL_NODES = """#!/bin/sh
echo started
srun sh -c 'i=0; while :; do i=$((i+1)); echo $SLURM_PROCID:$i; sleep 0.2; done'
"""

#: Least number of looks in which the same jobs stand against the same wrong books: Slurm is asked twice for a look.
_LOOKS = 3
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Books:
    """What Slurm says at one time. CPUs, by node: of jobs that run, of jobs that just leave, counted, of the node."""

    states: Mapping[str, str]
    running: Mapping[str, int]
    leaving: Mapping[str, int]
    counted: Mapping[str, int]
    cpus: Mapping[str, int]

    def faults(self) -> list[str]:
        """The nodes whose counted CPUs are not those of the jobs there, or that have more jobs than CPUs."""
        found = []
        for node, counted in self.counted.items():
            least = self.running.get(node, 0)
            if not least <= counted <= least + self.leaving.get(node, 0) or least > self.cpus[node]:
                found.append(f"{node}: {least} of {self.cpus[node]} CPUs are used, {counted} counted")
        return found


def read_books(cluster: Cluster) -> Books | None:
    """Ask Slurm; None while it does not answer."""
    nodes = cluster.run("scontrol", "-o", "show", "node")
    jobs = cluster.run("squeue", "-h", "-a", "-r", "-t", "all", "-O", "JobID:20,State:20,NumCPUs:10,NodeList:40")
    if nodes.code or jobs.code:
        return None
    states: dict[str, str] = {}
    running, leaving = Counter[str](), Counter[str]()
    for line in jobs.out.splitlines():
        job, state, cpus, *names = line.split()
        states[job] = state
        hosts = expanded(names[0]) if names else []
        if state in ("RUNNING", "CONFIGURING", "COMPLETING"):
            there = leaving if state == "COMPLETING" else running
            there.update({host: int(cpus) // len(hosts) for host in hosts})
    records = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in nodes.out.splitlines()]
    counted = {each["NodeName"]: int(each["CPUAlloc"]) for each in records}
    return Books(states, running, leaving, counted, {each["NodeName"]: int(each["CPUTot"]) for each in records})


def expanded(names: str) -> list[str]:
    """The nodes of a list such as n[1-2] or n1,n3."""
    found: list[str] = []
    for prefix, ranges, single in re.findall(r"([A-Za-z]+)\[([^\]]+)\]|([^,\[\]]+)", names):
        if single:
            found.append(single)
        for each in ranges.split(",") if ranges else ():
            low, _, high = each.partition("-")
            found += [f"{prefix}{number}" for number in range(int(low), int(high or low) + 1)]
    return found


@contextmanager
def true_books(cluster: Cluster) -> Iterator[None]:
    """Look at Slurm's books all the time; they must be true while the block runs."""
    over, faults, looks = threading.Event(), list[str](), [0]

    def watch() -> None:
        same = 0
        last: Books | None = None
        while not over.wait(_PAUSE_S):
            books = read_books(cluster)
            if books is None:
                continue
            looks[0] += 1
            wrong = books.faults()
            same = same + 1 if wrong and last is not None and last.states == books.states else int(bool(wrong))
            last = books
            if same >= _LOOKS:
                faults.append(f"{wrong} with {dict(books.states)}")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert looks[0] > _LOOKS, "nobody looked"
    assert not faults, faults[:5]


def counted_without_a_gap(cluster: Cluster, job: int | str) -> int:
    """How far the job has counted, which was started once, and has left out no number; 0: it has not begun."""
    started, *numbers = cluster.lines(job) or ["started"]
    assert started == "started"
    by_task: dict[str, list[int]] = {}
    for line in numbers:
        task, _, number = line.rpartition(":")
        if number.isdecimal():
            by_task.setdefault(task, []).append(int(number))
    for found in by_task.values():
        # The script writes a line at a time, of which the last one may be half.
        assert found[:-1] == list(range(1, len(found))), f"job {job} did not go on where it was: {found}"
    return min((len(found) for found in by_task.values()), default=0)
