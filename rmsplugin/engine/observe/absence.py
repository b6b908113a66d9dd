"""Absence: a job or VM that is not seen may still be there; nothing is ended for it before its absence is proved.

A job has ended when slurmctld or sacct says so of its id. A VM is absent when two looks, some time apart, have missed
it, and each node that may have it gives a proof: the node, asked for the VM by name, says that it has none; or the node
is gone; or the epilog of the room there has reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.rms.base import JobState, Rms, RmsJob
from rmsplugin.engine.context.accounting import Accounting
from rmsplugin.engine.context.sightings import Sightings
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RmspluginError, UnavailableError
from rmsplugin.model.vjob import VJobState

#: Ends that accounting also has for jobs that a slurmctld has thrown away at its start, while their VMs still exist.
DOUBTFUL_ENDS = frozenset({"CANCELLED"})
#: The least time, in seconds, between the two looks in which a VM is missing.
APART_S = 5.0


@dataclass(frozen=True)
class Jobs:
    """The jobs of vjobs, by job id."""

    found: Mapping[int, RmsJob]
    ended: Mapping[int, str]  # not in slurmctld any more; accounting says how they ended
    unknown: Mapping[int, str] = field(default_factory=dict)  # why nothing is proved of the job


_TAKEN = "Slurm has given the id of its job to another job, and nothing proves that its own job has ended"

#: By the state of a vjob: the states of its job that agree with it, so that the engine has nothing to conclude.
_FITTING = {
    VJobState.WAITING: {JobState.PENDING},
    VJobState.RUNNING: {JobState.RUNNING},
    VJobState.PAUSED: {JobState.SUSPENDED, JobState.PENDING},
    VJobState.SLEEPING: {JobState.SUSPENDED, JobState.PENDING},
    VJobState.TERMINATED: {JobState.ENDED},
}


_ANY_STATE = frozenset(JobState)


def find_jobs(
    rms: Rms, accounting: Accounting, seen: Observation, vjobs: Collection[VJobRow], others: Collection[int] = ()
) -> Jobs:
    """Find each vjob's job: in the listing, whatever its partition; else by asking for its id; else in accounting.

    A job whose state in the listing disagrees with its vjob's is asked for by its id, too: one answer alone never ends,
    suspends or requeues anything. Nothing is proved of a vjob whose id another job has (``others``), because accounting
    would speak of the other job.
    """
    known = {vjob.job_id: vjob for vjob in vjobs}

    def its(job: RmsJob) -> bool:
        """Whether the job is its vjob's: while the vjob lives, Slurm may give its id to somebody else's job."""
        vjob = known.get(job.job_id)
        if job.job_id in others:
            return False
        return vjob is not None and job.split and (vjob.state is VJobState.TERMINATED or vjob.uid == job.uid)

    found = {job.job_id: job for job in seen.rms.jobs if its(job)}
    missing = {vjob.job_id for vjob in vjobs if vjob.state is not VJobState.TERMINATED} - found.keys()
    taken = dict.fromkeys(missing & {*others}, _TAKEN)
    missing -= taken.keys()
    doubtful = {
        number for number, job in found.items() if job.state not in _FITTING.get(known[number].state, _ANY_STATE)
    }
    if not missing and not doubtful:
        return Jobs(found, {}, taken)
    why = "slurmctld does not know its job, and accounting does not say that it has ended"
    ended: dict[int, str] = {}
    try:
        found |= {job_id: job for job_id, job in rms.jobs(missing | doubtful).items() if its(job)}
        missing -= found.keys()
        ended = accounting.ended(missing) if missing else {}
    except RmspluginError as error:
        why = f"slurmctld's answers do not have its job, and nothing proves that it has ended: {error}"
    return Jobs(found, ended, dict.fromkeys(sorted(missing - ended.keys()), why) | taken)


def has_ended(job: RmsJob | None) -> bool:
    """Whether slurmctld (or, if there is none, accounting) says that the job has ended."""
    return job is None or job.state is JobState.ENDED


class MissingVMs:
    """Remembers since when VMs that should run, or be paused, are missing."""

    def __init__(self, ledger: Ledger, hypervisor: Platform, sightings: Sightings) -> None:
        self._ledger = ledger
        self._hypervisor = hypervisor
        self._sightings = sightings
        self._before: dict[str, float] = {}  # by name, when it was first found missing
        self._now: dict[str, float] = {}

    def begin(self) -> None:
        """Begin a cycle; a VM that this cycle does not find missing is forgotten at the next one."""
        self._before, self._now = self._now, {}
        self._sightings.retain({vm.name for vm in self._ledger.live_vms()})

    def gone(self, vjob: VJobRow, vms: Collection[VMRow], seen: Observation) -> list[VMRow]:
        """The VMs of a running or paused vjob that certainly do not exist any more."""
        if vjob.state not in (VJobState.RUNNING, VJobState.PAUSED):
            return []
        absent = []
        for vm in vms:
            nodes = seen.where(vm.name)
            self._sightings.seen(vm.name, nodes, seen.taken)
            if not nodes:
                absent.append(vm)
        if not absent:
            return []
        missing = [vm for vm in absent if vm.host in seen.vms]
        for vm in missing:
            self._now[vm.name] = self._before.get(vm.name, seen.taken)
        late = [vm for vm in missing if vm.name in self._before and seen.taken - self._before[vm.name] >= APART_S]
        # An absence that is proved although the node cannot be asked needs no second look.
        late += [vm for vm in absent if vm.host not in seen.vms and self._sightings.has_left(vm.host, vm)]
        return [vm for vm in late if self._is_gone(vm)]

    def _is_gone(self, vm: VMRow) -> bool:
        try:
            return nowhere(self._hypervisor, self._sightings, vm)
        except RmspluginError:
            return False  # a node that may have it does not answer


def nowhere(hypervisor: Platform, sightings: Sightings, vm: VMRow) -> bool:
    """Whether the VM is on none of the nodes that may have it: its host, and all destinations of its migrations.

    Raises:
        UnavailableError: a node does not answer, and the VM's absence there is not proved.
    """
    places = {vm.host, vm.destination, *vm.touched} - {""}
    return not any(has(hypervisor, sightings, place, vm) for place in sorted(places))


def has(hypervisor: Platform, sightings: Sightings, node: str, vm: VMRow) -> bool:
    """Whether the node has the VM in any form.

    Raises:
        UnavailableError: the node does not answer, and the VM's absence there is not proved.
    """
    try:
        return hypervisor.has_vm(node, vm.name)
    except UnavailableError:
        if sightings.has_left(node, vm):
            return False
        raise
