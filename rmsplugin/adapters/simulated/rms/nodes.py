"""Nodes of the simulated Slurm: the jobs on each, the jobs that may have one, and those that have to leave for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rmsplugin.adapters.rms.base import JobState, NodePower, RmsNode, RmsPartition, RmsReservation
from rmsplugin.adapters.simulated.rms.job import SimulatedJob
from rmsplugin.adapters.simulated.rms.powering import Powered
from rmsplugin.model.constraints import Constraints


@dataclass(frozen=True)
class Place:
    """The nodes where a job may start now, with its cores there as bits, and the time that it may last."""

    cores: Mapping[str, int]
    limit_s: float

    @property
    def node(self) -> str:
        """The node of its batch script."""
        return next(iter(self.cores))


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
            for name in each.nodes:
                found.setdefault(name, []).append(each)
        return found

    def arrived(self, job: SimulatedJob) -> None:
        """Note that the job has just begun on its nodes."""
        for name in job.nodes:
            self._with_node.setdefault(name, []).append(job)

    def place(self, job: SimulatedJob) -> Place | None:
        """The place where the job can start now; None if there is none."""
        found: dict[str, int] = {}
        longest_s = math.inf
        for name in self._allowed(job):
            limit_s = self._limit_s(job, name)
            if limit_s and self._fits(job, self.nodes[name], self.on(name)):
                found[name] = _first_free(_cores(name, self.on(name)), job.request.cpus_each)
                longest_s = min(longest_s, limit_s)
            if len(found) == job.request.node_count:
                return Place(found, longest_s)
        return None

    def make_room(self, job: SimulatedJob, claimed: Collection[str]) -> tuple[str, list[SimulatedJob]]:
        """A node for the job that jobs of lower tiers have to leave, with those that are not leaving yet.

        ("", []) if there is none. ``claimed`` nodes are being made free for others.
        """
        found = []
        for name in self._allowed(job) if job.request.node_count == 1 else ():
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
        cpus = _booked(name, under_way)
        taken_mib = sum(each.request.memory_mib_each for each in there)
        node = replace(node, cpus_taken=_booked(name, there), memory_taken_mib=taken_mib)
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
        up = [name for name in takes if self.nodes[name].up and not self.nodes[name].draining]
        request = job.request
        if not (request.features or request.exclude):
            return up
        features = {name: self.nodes[name].features for name in up}
        said = Constraints.parse(features=request.features, exclude=",".join(request.exclude))
        return [name for name in up if name in said.allowed(features)]

    def _fits(self, job: SimulatedJob, node: RmsNode, there: list[SimulatedJob]) -> bool:
        # A suspended job frees its CPUs, but not its memory.
        cpus = _booked(node.name, there)
        memory_mib = sum(each.request.memory_mib_each for each in there)
        request = job.request
        return cpus + request.cpus_each <= node.cpus and memory_mib + request.memory_mib_each <= node.memory_mib

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


def _booked(node: str, jobs: Sequence[SimulatedJob]) -> int:
    """The number of CPUs that Slurm has as taken by these jobs on the node."""
    if any(each.shares for each in jobs):
        return _cores(node, jobs).bit_count()
    return sum(each.request.cpus_each for each in jobs if each.state is not JobState.SUSPENDED)


def _cores(node: str, jobs: Iterable[SimulatedJob]) -> int:
    """The cores of the node that Slurm has as taken by these jobs, as bits."""
    found = 0
    for each in jobs:
        found |= each.booked.get(node, 0)
    return found


def share(job: SimulatedJob, node: str, jobs: Iterable[SimulatedJob]) -> None:
    """Note which of these others on the node have cores of a job that was resumed: Slurm looks for no free ones."""
    for each in jobs:
        if each is not job and each.booked.get(node, 0) & job.booked.get(node, 0):
            each.shares = job.shares = True


def leave(job: SimulatedJob, jobs: Iterable[SimulatedJob]) -> None:
    """Have Slurm take the cores of a job that leaves them for free, under those who share them, too."""
    for each in jobs if job.shares else ():
        if each is not job:
            each.booked = {node: cores & ~job.booked.get(node, 0) for node, cores in each.booked.items()}


def _first_free(taken: int, count: int) -> int:
    """The first so many cores, as bits, that are not taken."""
    found, core = 0, 1
    while count:
        if not taken & core:
            found |= core
            count -= 1
        core <<= 1
    return found
