"""Reconcile: the act that makes a vjob, its RMS job and its VMs agree again. Pure.

Every cycle asks this for each vjob on which no operation is under way. A crash, a kill, or an act by hand (scontrol
requeue, suspend, resume, scancel) is noticed here from the look at the cluster, not from an announcement.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.model.vjob import VJobState

#: How long the VMs of an ended job are kept for its script to react to SIGTERM, if its wrapper says nothing.
ENDED_GRACE_S = 120.0


class RmsAct(enum.StrEnum):
    """An act that concerns the RMS and the ledger alone."""

    GATE = "gate"
    REQUEUE = "requeue"
    FORGET = "forget"  # nothing of the vjob exists anywhere: terminated
    RENEW = "renew"  # an ended job came back to the queue: waiting again
    TELL_END = "tell-end"  # the RMS has forgotten that the job has ended, and how


@dataclass(frozen=True, slots=True)
class Directive:
    """One act on one vjob, and the reason."""

    what: OperationKind | RmsAct
    reason: str
    absence: bool = False  # it follows from something that is not seen: too many of these at once are held back
    disputed: bool = False  # the look also speaks against it: held back until an operator says that it is so
    destinations: Mapping[str, str] = field(default_factory=dict)  # of a migration, by VM name
    hosts: Mapping[str, str] = field(default_factory=dict)  # by VM name, where VMs of a sleeping vjob were seen
    resumes: bool = False  # of a suspend: the vjob is resumed when its turn comes
    takes_over: bool = False  # of a suspend: the saved states are there already, on ``hosts``


#: By the state of a vjob, the operation that was under way.
AGAIN: dict[VJobState, OperationKind] = {
    VJobState.STARTING: OperationKind.START,
    VJobState.PAUSING: OperationKind.PAUSE,
    VJobState.UNPAUSING: OperationKind.UNPAUSE,
    VJobState.SUSPENDING: OperationKind.SUSPEND,
    VJobState.RESUMING: OperationKind.RESUME,
}


def reconcile(
    vjob: VJobRow,
    vms: Sequence[VMRow],
    job: RmsJob | None,
    missing: Sequence[VMRow],
    silent_s: float,
    orphan_s: float,
    gone: Collection[str] = (),
    copies: Mapping[str, str] | None = None,
    lost: str = "",
    states: Mapping[str, str] | None = None,
    awake: Collection[str] = (),
    stands_still: bool = False,
) -> Directive | None:
    """Compare a vjob with its job (None: it has ended, as accounting or an operator says) and its VMs.

    Args:
        vjob: as the ledger has it.
        vms: its VMs, as the ledger has them.
        job: as the RMS has it.
        missing: its VMs that should be running or paused, and are nowhere.
        silent_s: for how long its wrapper gave no sign of life to a running engine.
        orphan_s: how long the wrapper may be silent.
        gone: nodes that are gone, as somebody said who can know.
        copies: by VM name, a node other than its host on which it is seen; any node, if the vjob should have no VMs.
        lost: why the state is lost, as the last operation found; empty if it found no loss.
        states: by VM name, the node of a saved state that the ledger does not know; empty unless each VM has one.
        awake: its VMs that are seen running.
        stands_still: whether its wrapper should have been heard of since its job was resumed.

    Returns:
        The act, or None if all agree.
    """
    if job is None or job.state is JobState.ENDED:
        return ended(vjob, job, silent_s)
    if states and (lost or missing) and vjob.state in (VJobState.RUNNING, VJobState.PAUSED, VJobState.SUSPENDING):
        return _found_asleep(states)
    if lost:
        known = any({vm.host, vm.destination} & {*gone} for vm in vms)  # as in `_lost`
        return Directive(OperationKind.RESTART, f"lost: {lost}", absence=not known, disputed=bool(copies))
    if vjob.state is VJobState.STOPPING:
        return Directive(OperationKind.RESTART, vjob.reason or "cleaning up")
    if vjob.state in AGAIN:
        return Directive(AGAIN[vjob.state], "taken up again")
    if vjob.state is VJobState.RUNNING:
        if missing and not vjob.finished:
            return _lost(vjob, missing, gone, job)
        return _running(vjob, vms, job, silent_s, orphan_s, copies or {}, stands_still)
    if vjob.state is VJobState.PAUSED:
        return _lost(vjob, missing, gone, job) if missing else _paused(vjob, job, copies or {}, awake)
    if vjob.state is VJobState.SLEEPING:
        return _seen_asleep(vms, job, copies) if copies else _sleeping(vjob, job)
    return _waiting(vjob, job, copies or {})


def ended(vjob: VJobRow, job: RmsJob | None, silent_s: float) -> Directive | None:
    """The act on a vjob whose job has ended; one whose wrapper still speaks is given time."""
    what = f"its job has ended: {job.detail}" if job else "its job has ended: slurmctld does not know it any more"
    if vjob.state is VJobState.TERMINATED:
        return None
    if vjob.state is VJobState.WAITING:
        return Directive(RmsAct.FORGET, what)
    script_may_end = (
        vjob.state is VJobState.RUNNING
        and job is not None
        and job.completing
        and not vjob.finished
        and silent_s < ENDED_GRACE_S
    )
    return None if script_may_end else Directive(OperationKind.STOP, what)


def _lost(vjob: VJobRow, missing: Sequence[VMRow], gone: Collection[str], job: RmsJob) -> Directive:
    names = ", ".join(vm.name for vm in missing)
    if all(vm.host in gone for vm in missing):
        # The VMs are not only unseen: somebody knows of their loss, however many they are.
        return Directive(OperationKind.RESTART, f"lost: {names} on {missing[0].host}, which is gone")
    paused = vjob.state is VJobState.PAUSED
    reason = f"lost: {names} not {'paused' if paused else 'running'} on {missing[0].host} any more"
    if job.state is JobState.SUSPENDED and not paused:
        # The vjob may have been suspended since the ledger's backup was made: a restart would remove its saved state.
        return Directive(OperationKind.RESTART, f"{reason}, and its job is suspended", absence=True, disputed=True)
    return Directive(OperationKind.RESTART, reason, absence=True)


def _found_asleep(states: Mapping[str, str]) -> Directive:
    """The vjob was suspended since the ledger's backup was made. Only a person knows if these states are its newest."""
    reason = f"its VMs are nowhere, and there are saved states of them that the ledger does not know: {_places(states)}"
    return Directive(
        OperationKind.SUSPEND,
        f"{reason}; it sleeps in these",
        absence=True,
        disputed=True,
        hosts=states,
        resumes=True,
        takes_over=True,
    )


def _running(
    vjob: VJobRow,
    vms: Sequence[VMRow],
    job: RmsJob,
    silent_s: float,
    orphan_s: float,
    copies: Mapping[str, str],
    stands_still: bool,
) -> Directive | None:
    for vm in vms:  # asked of each vjob that runs: a generator takes twice as long
        if vm.phase.moves:
            return Directive(OperationKind.MIGRATE, "taken up again")
    if copies:
        # A migration has left a copy on a node that did not answer then: act as if the migration had not ended.
        return Directive(OperationKind.MIGRATE, f"seen where it should not be: {_places(copies)}", destinations=copies)
    if job.state is JobState.PENDING:
        return _requeued(vjob, job)
    if job.state is JobState.SUSPENDED:
        return Directive(OperationKind.SUSPEND, "its job was suspended with scontrol")
    if job.state is JobState.RUNNING and job.restarts and job.restarts > min(vjob.restarts, _last_run(vjob)):
        return _runs_again(vjob, job)
    # A wrapper that its user stopped (scancel -s STOP) cannot say anything.
    if job.state is not JobState.RUNNING or job.completing or job.detail == "STOPPED":
        return None
    if silent_s > orphan_s:
        return Directive(RmsAct.REQUEUE, f"its wrapper has been silent for {silent_s:.0f} s", absence=True)
    if stands_still and not vjob.finished:
        return Directive(OperationKind.GO_ON, "its wrapper stands still, and its job runs")
    return None


def _requeued(vjob: VJobRow, job: RmsJob) -> Directive | None:
    """The act after a requeue of a vjob whose VMs run."""
    meant = _is_meant(vjob, job)
    held = job.held and not job.held_for_launch
    if job.completing and meant and vjob.begins_anew and not (held or job.gated):
        return Directive(RmsAct.GATE, "requeued by its script: put behind the gate before Slurm can start it")
    if job.completing and (meant or held):
        return None  # its last wrapper may have output to deliver
    if held and not job.gated:
        return Directive(
            RmsAct.GATE, "requeued and held: put behind the gate, so that a later hold is known to be a person's"
        )
    if meant and vjob.begins_anew:
        return Directive(OperationKind.RESTART, "its job was requeued, and its script begins anew")
    if held and not meant:
        return Directive(OperationKind.SUSPEND, "its job was requeued and is held until it is released", resumes=True)
    return Directive(OperationKind.REATTACH, "its job was requeued; its VMs run on")


def _runs_again(vjob: VJobRow, job: RmsJob) -> Directive:
    """The act if Slurm starts the next run before the engine sees the requeue; its wrapper waits (decision 0071)."""
    if vjob.begins_anew and _is_meant(vjob, job):
        return Directive(OperationKind.RESTART, "its job was requeued and runs again, and its script begins anew")
    return Directive(OperationKind.REATTACH, "its job was requeued and runs again; its VMs ran on")


def _last_run(vjob: VJobRow) -> int:
    """The run whose wrapper may attach to the script, as Slurm counts requeues."""
    return vjob.requeue_of if vjob.requeue_of >= 0 else vjob.restarts


def _is_meant(vjob: VJobRow, job: RmsJob) -> bool:
    """Whether the job was requeued on purpose, as the wrapper of the run before told."""
    return 0 <= vjob.requeue_of < job.restarts


def _paused(vjob: VJobRow, job: RmsJob, copies: Mapping[str, str], awake: Collection[str]) -> Directive | None:
    if copies:
        return Directive(OperationKind.MIGRATE, f"seen where it should not be: {_places(copies)}", destinations=copies)
    if awake:
        return Directive(OperationKind.PAUSE, f"{', '.join(sorted(awake))} was seen running")
    if found := _sleeping(vjob, job, OperationKind.UNPAUSE):
        return found
    if job.held and not job.completing:
        return Directive(OperationKind.SUSPEND, "its job is held: it is saved until it is released", resumes=True)
    return None


def _sleeping(vjob: VJobRow, job: RmsJob, wakes: OperationKind = OperationKind.RESUME) -> Directive | None:
    """The act for a vjob that is saved or paused; ``wakes`` is the operation that lets it go on."""
    if job.state is JobState.RUNNING:
        return Directive(wakes, "its job was resumed with scontrol")
    if job.state is not JobState.PENDING or job.completing:
        return None
    if not job.gated and job.held_by_user:
        return Directive(RmsAct.GATE, "requeued and held while it sleeps: put behind the gate until it is released")
    if not job.gated:
        # A gate alone is not enough: Slurm holds a suspended job that is requeued, and nobody else would release it.
        return Directive(RmsAct.REQUEUE, "requeued while it sleeps: put behind the gate until it is resumed")
    if vjob.begins_anew and _is_meant(vjob, job):
        return Directive(OperationKind.RESTART, "its job was requeued, and its script begins anew")
    return None


def _seen_asleep(vms: Sequence[VMRow], job: RmsJob, where: Mapping[str, str]) -> Directive:
    """The act if VMs of a sleeping vjob are seen: the ledger was restored from a backup older than the resume."""
    reason = f"its VMs are seen, although it sleeps according to the ledger: {_places(where)}"
    hosts = {vm.name: where[vm.name] for vm in vms if vm.name in where}
    if job.state is JobState.RUNNING and len(hosts) == len(vms):
        return Directive(OperationKind.RESUME, reason, hosts=hosts)
    return Directive(OperationKind.RESTART, reason, absence=True, disputed=True, hosts=hosts)


def _places(where: Mapping[str, str]) -> str:
    return ", ".join(f"{name} on {node}" for name, node in sorted(where.items()))


def _is_end_forgotten(vjob: VJobRow, job: RmsJob) -> bool:
    """Whether the run that the RMS has as running is the one whose script has ended.

    A new run has one more requeue. A script of which no end was delivered proves nothing.
    """
    is_that_run = (vjob.seen_restarts, vjob.seen_submitted) == (job.restarts, job.submit_time)
    told = vjob.finished and vjob.exit_code is not None
    return told and is_that_run and vjob.restarts == job.restarts and job.state is JobState.RUNNING


def _waiting(vjob: VJobRow, job: RmsJob, where: Mapping[str, str]) -> Directive | None:
    if vjob.state is VJobState.TERMINATED and _is_end_forgotten(vjob, job):
        return Directive(RmsAct.TELL_END, f"slurmctld has forgotten its end, which was {vjob.said_end}")
    if vjob.state is VJobState.TERMINATED:
        return Directive(RmsAct.RENEW, "its job is in the queue again")
    if job.state is JobState.PENDING:
        if not job.gated and not job.completing:
            return Directive(RmsAct.GATE, "waits for the engine")
        return None
    if where or job.state is JobState.SUSPENDED:
        reason = f"its job has run, although it waits according to the ledger: {_places(where) or 'it is suspended'}"
        return Directive(RmsAct.REQUEUE, reason, absence=True, disputed=True)
    return Directive(RmsAct.REQUEUE, "it was started by another hand than the engine's")
