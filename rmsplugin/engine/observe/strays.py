"""Strays: VMs that are seen although, by the ledger, their vjobs have no VMs.

Most strays were left by an interrupted stop, on a node that was out of reach: these are ended. But if the ledger is
older than the world, restored from a backup, such a VM may be the job itself. As long as Slurm shows that the job runs,
its VM is left alone, and an operator is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.absence import Jobs
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.settings import Settings

#: How many VMs a sentence names.
_NAMED = 5
#: States in which a vjob has no VM anywhere.
_WITHOUT_VMS = (VJobState.WAITING, VJobState.SLEEPING, VJobState.TERMINATED)


def strays(ledger: Ledger, seen: Observation, vjob: VJobRow) -> dict[str, str]:
    """The VMs of a vjob that should have none now, by name, and a node on which each was seen."""
    found = seen.of_jobs.get(vjob.job_id)
    if seen.by_rms or not found or vjob.state not in _WITHOUT_VMS or vjob.state_since >= seen.taken:
        return {}
    left_behind = ledger.nodes.left_behind()  # those are known, and removed elsewhere
    return {vm: node for vm, node in found.items() if (node, vm) not in left_behind}


def stray_nodes(ledger: Ledger, seen: Observation, among: Collection[str] | None = None) -> set[str]:
    """The nodes on which strays are left alone: they take memory there that nobody has booked.

    ``among``: if they are given, only VMs that were seen on these nodes are looked at.
    """
    job_ids: Collection[int] = seen.of_jobs
    if among is not None:
        names = (parse_vm_name(name) for node in among for name in seen.vms.get(node, ()))
        job_ids = {parsed[0] for parsed in names if parsed is not None}
    return {
        node
        for job_id, vjob in ledger.vjobs_among(job_ids).items()
        if vjob.state in _WITHOUT_VMS and (vjob.state.is_live or _runs(seen.jobs.get(job_id)))
        for node in strays(ledger, seen, vjob).values()
    }


def unknown_vms(ledger: Ledger, seen: Observation, known: Collection[int]) -> dict[str, str]:
    """VMs of vjobs that the ledger does not know, by name, and a node on which each was seen.

    Args:
        ledger: of the engine.
        seen: the look.
        known: the job ids that the ledger has, of those that have VMs.
    """
    unknown = seen.of_jobs.keys() - {*known} - seen.changed
    if not unknown:
        return {}
    left_behind = ledger.nodes.left_behind()
    found = {vm: node for job_id in sorted(unknown) for vm, node in seen.of_jobs[job_id].items()}
    return {vm: node for vm, node in found.items() if (node, vm) not in left_behind}


def unknown_sentence(found: Mapping[str, str]) -> str:
    """What is to be told of VMs whose vjobs are not known, by name and node; empty if there are none."""
    if not found:
        return ""
    named = ", ".join(f"{vm} on {node}" for vm, node in [*found.items()][:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (
        f"the ledger does not know the vjobs of {len(found)} VMs, which are left alone: {named}{more}. Was it lost, or "
        "set back? docs/operator/restoring.md says how to go back to a backup; end what nobody needs on its node"
    )


def stop_strays(
    settings: Settings,
    ledger: Ledger,
    hypervisor: Platform,
    nodes: Nodes,
    seen: Observation,
    jobs: Jobs,
    report: CycleReport,
) -> None:
    """End strays, if it is known that their jobs do not run.

    A VM whose vjob the ledger does not know is never ended: with a lost or foreign ledger nothing happens but that it
    is told.
    """
    known = ledger.vjobs_among(seen.of_jobs)
    report.problems += filter(None, [unknown_sentence(unknown_vms(ledger, seen, known))])
    without = {
        job_id: vjob
        for job_id, vjob in known.items()
        if not vjob.state.is_live
        and vjob.state_since < seen.taken
        and not _runs(jobs.found.get(job_id))
        and job_id not in jobs.unknown
    }
    for job_id, vjob in without.items():
        for name in seen.of_jobs[job_id]:
            for node in seen.where(name):
                with report.alone(f"stray {name} on {node}"):
                    _stop(settings, ledger, hypervisor, nodes, vjob, name, node)


def _stop(
    settings: Settings, ledger: Ledger, hypervisor: Platform, nodes: Nodes, vjob: VJobRow, name: str, node: str
) -> None:
    hypervisor.stop(node, name, timeout_s=settings.hypervisor.stop_timeout_s)
    nodes.drop_config(node, name)
    what = f"{name} ran on {node} although its vjob is {vjob.state}"
    ledger.event("stray-stopped", what, vjob=vjob.display_id)


def _runs(job: RmsJob | None) -> bool:
    return job is not None and job.state not in (JobState.PENDING, JobState.ENDED)
