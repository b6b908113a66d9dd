"""Energy: what the jobs of a report had on nodes, as the account of energy needs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rmsplugin.energy.shares import Use
from rmsplugin.report.document import Job

#: What a job's energy is added up by.
OWNERS: dict[str, Callable[[Job], str]] = {
    "user": lambda job: job.user,
    "account": lambda job: job.account,
    "partition": lambda job: job.partition,
}


def uses_of(jobs: Iterable[Job], owner: Callable[[Job], str], since: float, until: float) -> Iterator[Use]:
    """The VMs of these jobs on nodes, while they ran. They use the CPUs that were requested for them.

    Args:
        jobs: with their lives.
        owner: of a job.
        since: earlier times are left out.
        until: later times are left out.
    """
    for job in jobs:
        for state, begin, end, nodes in job.intervals:
            if state != "running" or end <= since or begin >= until:
                continue
            for node, cpus in _requested(job, nodes).items():
                if node:
                    yield Use(owner(job), node, max(begin, since), min(end, until), cpus)


def _requested(job: Job, nodes: Iterable[str]) -> Counter[str]:
    """The CPUs of its VMs on each node."""
    cpus: Counter[str] = Counter()
    for number, node in enumerate(nodes):
        cpus[node] += job.cpus if number < job.large_vms else job.small_cpus
    return cpus
