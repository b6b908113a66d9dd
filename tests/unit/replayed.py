"""A workload replayed pass by pass, by the code that decides in the engine; and the traces and reference schedules."""

from __future__ import annotations

import csv
import gzip
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from unit.queues import running

from rmsplugin.decision.easy import STARTING, schedule
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import WAITING, Node, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.workload.jobs import Job, read_workload, vjob_of

DATA = Path(__file__).parents[3] / "shared" / "data"

#: Those with reference schedules, and the processors of their machines.
REFERENCES = [("kth_sp2_5k", 100), ("sdsc_sp2_5k", 128)]

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the traces are not beside this checkout")

#: (now, waiting in queue order, start time of those that run in queue order) -> those that start
Scheduler = Callable[[float, Sequence[Job], Mapping[Job, float]], Iterable[Job]]


class CountingRoom:
    """Interchangeable processors."""

    by_halves = False

    def __init__(self, processors: int, jobs: Iterable[Job] = ()) -> None:
        self.processors = processors
        self.free = processors - sum(job.processors for job in jobs)

    def add(self, item: Job) -> bool:
        if item.processors > self.free:
            return False
        self.free -= item.processors
        return True

    def discard(self, item: Job) -> None:
        self.free += item.processors

    def anew(self, items: Iterable[Job]) -> CountingRoom | None:
        room = CountingRoom(self.processors, items)
        return room if room.free >= 0 else None

    def later(self, items: Iterable[Job], newest: Job | None = None) -> CountingRoom | None:
        return self.anew([*items, *([newest] if newest is not None else [])])


def counting(processors: int, backfill: bool) -> Scheduler:
    def starts(now: float, waiting: Sequence[Job], started: Mapping[Job, float]) -> Iterable[Job]:
        room = CountingRoom(processors, started)
        result = schedule(waiting, started, room, lambda job: started.get(job, now) + job.estimate_s - now, backfill)
        return [job for job, verdict in result.verdicts if verdict in STARTING]

    return starts


def on_nodes(nodes: int, policy: str, cpus_per_node: int = 4, memory_per_node_mib: int = 0) -> Scheduler:
    """The policy itself, on nodes (hosts as the policy's sample says). VMs without memory in the trace need none."""
    cluster = tuple(Node(f"n{i}", Resources(cpus_per_node, memory_per_node_mib)) for i in range(nodes))
    hosts: dict[str, str] = {}

    def starts(now: float, waiting: Sequence[Job], started: Mapping[Job, float]) -> Iterable[Job]:
        queue = sorted([*started, *waiting], key=lambda job: (job.submit_s, job.line))
        vjobs = [vjob_of(job, ran_s=now - started[job] if job in started else 0, default_memory_mib=0) for job in queue]
        locations = {
            vm.name: running_on(hosts[vm.name]) if job in started else WAITING
            for job, vjob in zip(queue, vjobs, strict=True)
            for vm in vjob.vms
        }
        decision = decide(policy, Configuration(cluster, tuple(vjobs), locations, checked=True), Parameters())
        assert isinstance(decision, Decision)
        hosts.update(decision.placement)
        assert {str(job.job_id) for job in started} <= running(decision), "nothing is ever suspended"
        return [job for job in waiting if decision.states[str(job.job_id)] == "running"]

    return starts


def replay(jobs: Sequence[Job], starts: Scheduler) -> list[float]:
    """When each job starts. At one instant all ends, then all submissions, then one pass."""
    submitted = 0
    waiting: list[Job] = []
    started: dict[Job, float] = {}
    ends: list[tuple[float, int, Job]] = []
    result: dict[Job, float] = {}
    while submitted < len(jobs) or ends:
        now = min([end for end, _, _ in ends[:1]] + [job.submit_s for job in jobs[submitted : submitted + 1]])
        while ends and ends[0][0] == now:
            del started[heapq.heappop(ends)[2]]
        while submitted < len(jobs) and jobs[submitted].submit_s == now:
            waiting.append(jobs[submitted])
            submitted += 1
        for job in list(starts(now, waiting, started)):
            waiting.remove(job)
            started[job] = result[job] = now
            heapq.heappush(ends, (now + job.run_s, job.line, job))
    return [result[job] for job in jobs]


def trace(name: str) -> list[Job]:
    return read_workload([(DATA / "swf" / f"{name}.swf").read_bytes()]).jobs


def reference(name: str, policy: str) -> dict[int, int]:
    """Start by job id."""
    with gzip.open(DATA / "easy-reference" / f"{name}.{policy}.csv.gz", "rt") as file:
        return {int(row["job_id"]): int(row["start"]) for row in csv.DictReader(file)}


def by_id(jobs: Sequence[Job], started: Sequence[float]) -> dict[int, float]:
    return {job.job_id: start for job, start in zip(jobs, started, strict=True)}
