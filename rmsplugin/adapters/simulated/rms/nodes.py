"""Nodes of the simulated Slurm: the jobs on each, the jobs that may have one, and those that have to leave for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rmsplugin.adapters.rms.base import JobState, NodePower, RmsNode, RmsPartition, RmsReservation
from rmsplugin.adapters.simulated.rms.job import SimulatedJob
from rmsplugin.adapters.simulated.rms.powering import Powered


@dataclass(frozen=True)
class Place:
    """The node where a job may start now, its cores there as bits, and the time that it may last."""

    node: str
    cores: int
    limit_s: float


@dataclass(frozen=True)
class SimulatedNodes:
    """The cluster at one instant."""

    nodes: Mapping[str, RmsNode]
    partitions: Mapping[str, RmsPartition]
    reservations: Mapping[str, RmsReservation]
    jobs: Collection[SimulatedJob]
    now: float
    powered: Callable[[str], Powered]

    def on(self, node: str) -> list[SimulatedJob]:
        """Jobs that have (part of) the node, including those in clean-up."""
        there = self._with_node.get(node, ())
        return [each for each in there if each.under_way or each.completing(self.now)]

    @cached_property
    def _with_node(self) -> dict[str, list[SimulatedJob]]:
        found: dict[str, list[SimulatedJob]] = {}
        for each in self.jobs:
            found.setdefault(each.node, []).append(each)
        return found

    def arrived(self, job: SimulatedJob) -> None:
        """Note that the job has just begun on its node."""
        self._with_node.setdefault(job.node, []).append(job)

    def place(self, job: SimulatedJob) -> Place | None:
        """The place where the job can start now; None if there is none."""
        for name in self._allowed(job):
            limit_s = self._limit_s(job, name)
            if limit_s and self._fits(job, self.nodes[name], self.on(name)):
                return Place(name, _first_free(_cores(self.on(name)), job.request.cpus), limit_s)
        return None

    def make_room(self, job: SimulatedJob, claimed: Collection[str]) -> tuple[str, list[SimulatedJob]]:
        """A node for the job that jobs of lower tiers have to leave, with those that are not leaving yet.

        ("", []) if there is none. ``claimed`` nodes are being made free for others.
        """
        found = []
        for name in self._allowed(job):
            there = self.on(name)
            tier = self.partitions[job.request.partition].priority_tier
            stay = [each for each in there if not self._gives_way(each, tier)]
            if name in claimed or not self._limit_s(job, name) or not self._fits(job, self.nodes[name], stay):
                continue
            leaving = [each for each in there if each not in stay and each.under_way and not each.preempted]
            found.append((name, leaving))
        # A node that jobs are leaving already will be free sooner.
        return min(found, key=lambda each: len(each[1]), default=("", []))

    def seen(self, name: str) -> RmsNode:
        """The node with the state that Slurm would show."""
        node, powered = self.nodes[name], self.powered(name)
        node = replace(node, boot_time=int(powered.boot_time), power=powered.power)
        if not node.up:
            return node
        there = self.on(name)
        under_way = [each for each in there if each.under_way]
        cpus = _booked(under_way)
        words = ["ALLOCATED" if cpus >= node.cpus else "MIXED" if cpus else "IDLE"]
        words += ["COMPLETING"] if len(there) > len(under_way) else []
        words += ["DRAIN"] if node.draining else []
        words += [word for word in powered.stage.split("+") if word and word not in words]
        draining, up = "DRAIN" in words, powered.power is NodePower.ON
        return replace(node, state="+".join(words), up=up, draining=draining)

    def _allowed(self, job: SimulatedJob) -> list[str]:
        partition = self.partitions.get(job.request.partition)
        names: Iterable[str] = partition.nodes if partition is not None and partition.up else ()
        if job.request.node:
            names = (job.request.node,) if job.request.node in names else ()
        wanted = [name for name in names if name in self.nodes]
        takes = (name for name in wanted if self.powered(name).takes_jobs)
        return [name for name in takes if self.nodes[name].up and not self.nodes[name].draining]

    def _fits(self, job: SimulatedJob, node: RmsNode, there: list[SimulatedJob]) -> bool:
        # A suspended job frees its CPUs, but not its memory.
        cpus = _booked(there)
        memory_mib = sum(each.request.memory_mib for each in there)
        request = job.request
        return cpus + request.cpus <= node.cpus and memory_mib + request.memory_mib <= node.memory_mib

    def _limit_s(self, job: SimulatedJob, node: str) -> float:
        """The time that the job may last on the node beside reservations; 0 if not long enough."""
        longest = math.inf
        for each in list(self.reservations.values()):  # tests may make some at any time
            if node in each.nodes and self.now < each.end_time:
                longest = min(longest, max(0.0, each.start_time - self.now))
        request = job.request
        if request.time_limit_s <= longest:
            return request.time_limit_s
        return longest // 60 * 60 if longest >= request.time_min_s else 0.0

    def _gives_way(self, each: SimulatedJob, tier: int) -> bool:
        """Whether it would leave its node for a job of the tier, or is about to anyway."""
        partition = self.partitions.get(each.request.partition)
        preemptable = partition is not None and partition.priority_tier < tier and partition.preempt_mode == "CANCEL"
        return preemptable or not each.under_way


def _booked(jobs: Sequence[SimulatedJob]) -> int:
    """The number of CPUs that Slurm has as taken by these jobs on one node."""
    if any(each.shares for each in jobs):
        return _cores(jobs).bit_count()
    return sum(each.request.cpus for each in jobs if each.state is not JobState.SUSPENDED)


def _cores(jobs: Iterable[SimulatedJob]) -> int:
    """The cores of a node that Slurm has as taken by these jobs, as bits."""
    found = 0
    for each in jobs:
        found |= each.booked
    return found


def share(job: SimulatedJob, jobs: Iterable[SimulatedJob]) -> None:
    """Note which of these others on its node have cores of a job that was resumed: Slurm looks for no free ones."""
    for each in jobs:
        if each is not job and each.booked & job.booked:
            each.shares = job.shares = True


def leave(job: SimulatedJob, jobs: Iterable[SimulatedJob]) -> None:
    """Have Slurm take the cores of a job that leaves them for free, under those who share them, too."""
    for each in jobs if job.shares else ():
        if each is not job and each.node == job.node:
            each.booked &= ~job.booked


def _first_free(taken: int, count: int) -> int:
    """The first so many cores, as bits, that are not taken."""
    found, core = 0, 1
    while count:
        if not taken & core:
            found |= core
            count -= 1
        core <<= 1
    return found
