"""Native platform: jobs of the RMS as they are; one stand-in VM for each node of a job, whose life is the RMS's word.

There is no program on the nodes besides the RMS's own. A job's stand-ins exist from its allocation until its end. They
run, or stand still, together: the RMS suspends and resumes whole jobs. So an act on one of them is an act on all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.platform.base import (
    HostInfo,
    Progress,
    Ready,
    VMInfo,
    VMPower,
    VMSpec,
    VMStatistics,
    at_once,
)
from rmsplugin.adapters.rms.base import JobState, Rms, RmsJob, RmsSnapshot
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError, UnavailableError
from rmsplugin.model.capabilities import NATIVE, Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vm_names import parse_vm_name, vm_name

#: By the state of a job that has its nodes: the power of its stand-ins. The RMS prepares a node before a job runs.
_POWER = {
    JobState.CONFIGURING: VMPower.INCOMING,
    JobState.RUNNING: VMPower.RUNNING,
    JobState.SUSPENDED: VMPower.PAUSED,
}


def stand_ins(job: RmsJob) -> Iterator[VMInfo]:
    """The stand-ins of a job: one on each of its nodes, numbered in the RMS's order; none unless it has its nodes."""
    power = _POWER.get(job.state)
    if power is None or job.completing or not job.split:
        return
    for index, node in enumerate(job.nodes):
        name = vm_name(job.job_id, index)
        yield VMInfo(name, node, power, uuid=name, job_running=False)


def seen_in(snapshot: RmsSnapshot, partitions: tuple[str, ...]) -> dict[str, dict[str, VMInfo]]:
    """By node, and by name: the stand-ins of the jobs of these partitions in one reading of the RMS."""
    found: dict[str, dict[str, VMInfo]] = {name: {} for name in snapshot.nodes}
    for job in snapshot.jobs:
        for vm in stand_ins(job) if job.partition in partitions else ():
            found.setdefault(vm.node, {})[vm.name] = vm
    return found


class NativePlatform:
    """The ``Platform`` of jobs without VMs; see the module."""

    def __init__(self, rms: Rms, partitions: tuple[str, ...]) -> None:
        """Ask nobody yet.

        Args:
            rms: by which it acts.
            partitions: those of vjobs.
        """
        self._rms = rms
        self._partitions = partitions

    @property
    def capabilities(self) -> Capabilities:
        """See ``Platform``."""
        return NATIVE

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """See ``Platform``: the RMS's own pulse tells of all jobs."""

    def host_info(self, node: str) -> HostInfo:
        """See ``Platform``."""
        snapshot = self._rms.snapshot()
        found = snapshot.nodes.get(node)
        if found is None:
            raise UnavailableError(f"Slurm has no node {node}")
        return HostInfo(node, found.cpus, found.memory_mib, f"Slurm {snapshot.version}", "native", frozenset())

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``Platform``."""
        return seen_in(self._rms.snapshot(), self._partitions).get(node, {})

    def has_vm(self, node: str, name: str) -> bool:
        """See ``Platform``."""
        return self._find(node, name) is not None

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``Platform``: nobody counts what a job uses."""
        return {}

    def used(self, node: str, name: str) -> Used | None:
        """See ``Platform``: the RMS counts what jobs use."""
        return None

    def template_key(self, node: str, spec: VMSpec) -> str:
        """See ``Platform``."""
        raise _cannot("start a VM from a template")

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """See ``Platform``: the RMS itself starts a job whose gate is open."""
        if not self.has_vm(node, spec.name):
            raise _cannot("start a job: Slurm does, on the nodes that it chooses")

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``Platform``: the whole job is cancelled."""
        if self._find(node, name) is not None:
            self._rms.cancel(_job_id(name))

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """See ``Platform``."""
        raise _cannot("save a VM")

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``Platform``."""
        raise _cannot("save a VM that runs on")

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """See ``Platform``."""
        raise _cannot("restore a VM")

    def pause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``Platform``: the whole job is suspended."""
        self._act(node, name, self._rms.suspend, ready)

    def unpause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``Platform``: the whole job is resumed. The RMS does not look whether its CPUs are free."""
        self._act(node, name, self._rms.resume, ready)

    def set_memory(self, node: str, name: str, mib: int, *, timeout_s: float) -> None:
        """See ``Platform``."""
        raise _cannot("resize a VM")

    def set_cpus(self, node: str, name: str, cpus: int, *, timeout_s: float) -> None:
        """See ``Platform``."""
        raise _cannot("resize a VM")

    def migrate(
        self,
        name: str,
        source: str,
        destination: str,
        *,
        timeout_s: float,
        progress: Progress | None = None,
        epoch: int = FIRST_EPOCH,
    ) -> None:
        """See ``Platform``."""
        raise _cannot("move a VM that runs")

    def abort_job(self, node: str, name: str) -> None:
        """See ``Platform``: nothing goes on that could be aborted."""

    def close(self) -> None:
        """See ``Platform``."""

    def _act(self, node: str, name: str, act: Callable[[int], None], ready: Ready) -> None:
        if self._find(node, name) is None:
            raise NotFoundError(f"{name} is not on {node}")
        ready()
        try:
            act(_job_id(name))
        except RefusedError as error:
            raise OperationFailedError(str(error)) from error

    def _find(self, node: str, name: str) -> VMInfo | None:
        parsed = parse_vm_name(name)
        if parsed is None:
            return None
        try:
            job = self._rms.job(parsed[0])
        except NotFoundError:
            return None
        if job.partition not in self._partitions:
            return None
        return next((vm for vm in stand_ins(job) if (vm.node, vm.name) == (node, name)), None)


def _job_id(name: str) -> int:
    parsed = parse_vm_name(name)
    assert parsed is not None
    return parsed[0]


def _cannot(what: str) -> OperationFailedError:
    return OperationFailedError(f"native cannot {what}")
