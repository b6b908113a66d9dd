"""Others: what jobs that are no vjobs have on the nodes of plain jobs, by the RMS's own books. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsNode, RmsSnapshot
from rmsplugin.model.resources import Resources, amount
from rmsplugin.model.vjob import Geometry
from rmsplugin.model.wording import counted

#: States of a job that has its CPUs in the RMS's books.
_COMPUTES = (JobState.CONFIGURING, JobState.RUNNING)


def has_cpus(job: RmsJob) -> bool:
    """Whether the job has CPUs of its nodes in the RMS's books: a suspended one has none, one in clean-up still has."""
    return job.state in _COMPUTES or job.completing


def of_others(rms: RmsSnapshot, vjobs: Mapping[int, Geometry]) -> dict[str, Resources]:
    """By node, what is taken there besides the parts of vjobs; nodes without such are left out.

    What the RMS books for a vjob beyond its request (the rest of a core, say) counts as others', too.

    Args:
        rms: one reading.
        vjobs: by job id, the geometries of the vjobs that are booked by the engine itself.
    """
    cpus, memory_mib = Counter[str](), Counter[str]()
    for job in rms.jobs:
        geometry = vjobs.get(job.job_id) if job.split else None
        if geometry is None or not (has_cpus(job) or job.state is JobState.SUSPENDED):
            continue
        for index, node in enumerate(job.nodes[: geometry.vms]):
            cpus[node] += geometry.cpus_of(index) if has_cpus(job) else 0
            memory_mib[node] += geometry.memory_mib_of(index)
    left = {name: _left(node, cpus[name], memory_mib[name]) for name, node in rms.nodes.items()}
    return {name: rest for name, rest in left.items() if rest.cpus or rest.memory_mib}


def _left(node: RmsNode, cpus: int, memory_mib: int) -> Resources:
    return amount(max(0, node.cpus_taken - cpus), max(0, node.memory_taken_mib - memory_mib))


def why_not_free(rms: RmsSnapshot, job_id: int, geometry: Geometry, partitions: Collection[str]) -> str:
    """Why a suspended job must not be resumed now, in a sentence; empty if all its CPUs are free for it.

    They are free if neither nodes nor jobs show them as taken: the RMS reads nodes first, so a job that has started
    between the two is only seen among the jobs. And no job may start there meanwhile: none waits without a gate.

    Args:
        rms: a reading that nothing but the RMS has changed since: no gate was opened.
        job_id: the job.
        geometry: its parts.
        partitions: those of vjobs; jobs of others have no node in common with it.
    """
    job = next((each for each in rms.jobs if each.job_id == job_id and each.split), None)
    if job is None or job.state is not JobState.SUSPENDED:
        return f"its job is {job.detail if job else 'not in the list'} in Slurm"
    for each in rms.jobs:
        shares = each.partition in partitions and {*rms.partitions[each.partition].nodes} & {*job.nodes}
        if each.state is JobState.PENDING and not each.gated and shares:
            return f"Slurm may start job {each.display_id} there"
    for index, name in enumerate(job.nodes):
        node, need = rms.nodes.get(name), geometry.cpus_of(min(index, geometry.vms - 1))
        if node is None or not node.up:
            return f"{name} is {node.state if node else 'not known'} in Slurm"
        free = node.cpus - max(node.cpus_taken, _taken_by_jobs(rms, name))
        if free < need:
            return f"{counted(free, 'CPU')} of {name} {'is' if free == 1 else 'are'} free, {need} needed"
    return ""


def _taken_by_jobs(rms: RmsSnapshot, node: str) -> int:
    """The CPUs of the node that jobs have, where each has as many on all its nodes; rounded up."""
    return sum(-(-job.cpus // len(job.nodes)) for job in rms.jobs if has_cpus(job) and node in job.nodes)
