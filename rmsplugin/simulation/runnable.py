"""Runnable: the jobs of a workload that placement rules let run on an empty cluster."""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.assessment.facts import NodeFacts, RoomUse
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Infeasible
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.assess import Assessor
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.ruled import SiteRules
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.activity import Phase
from rmsplugin.workload.faults import FaultCode, Faults
from rmsplugin.workload.jobs import Job


def runnable(
    jobs: Sequence[Job], cluster: Cluster, rules: SiteRules, faults: Faults, parameters: Parameters
) -> list[Job]:
    """The jobs that run by the rules if they are alone on the cluster, in their order.

    Jobs that are alike, have the same wishes, and are selected by the same rules, are decided about once.

    Args:
        jobs: each fits on the empty cluster if there are no rules.
        cluster: with the memory of its nodes.
        rules: of the site.
        faults: a list to which the other jobs are added.
        parameters: the limits of a decision.
    """
    assessor = Assessor(node_facts(cluster, cluster.memory_per_node_mib or 0, rules), rules=rules)
    found: dict[tuple[object, ...], str] = {}
    fit = []
    for job in jobs:
        size = Resources(cluster.booked_of(job), cluster.vm_memory_mib(job))
        key = cluster.vms_of(job), size, rules.selecting(job), job.wishes, job.switches
        if key not in found:
            names = tuple(f"vm{index}" for index in range(cluster.vms_of(job)))  # the sentence is of all that are alike
            alone = SimulatedVJob(0, job, names, size, (Phase(job.run_s, (float(size.cpus),)),), since_s=job.submit_s)
            found[key] = _obstacle(assessor, alone, parameters)
        if not found[key]:
            fit.append(job)
            continue
        message = f"job {job.job_id} never runs by the placement rules: {found[key]}"
        faults.add(job.line, FaultCode.RULE, message)
    return fit


def _obstacle(assessor: Assessor, vjob: SimulatedVJob, parameters: Parameters) -> str:
    """Why a vjob alone on the cluster does not run, in a sentence without its name; empty: it runs."""
    settled = assessor.assess([vjob], (), vjob.since_s)
    if vjob.name in settled.left_out:
        return "fences and bans leave it no node"
    decision = decide_by_rules("fcfs", settled.configuration, parameters)
    if isinstance(decision, Infeasible):
        return decision.explanation
    return "" if decision.states[vjob.name] is VJobState.RUNNING else decision.reasons[vjob.name].sentence


def node_facts(cluster: Cluster, planned_mib: int, rules: SiteRules | None) -> list[NodeFacts]:
    """The nodes of a cluster; VMs are planned up to ``planned_mib`` of the memory of each."""
    size = Resources(cluster.cpus_per_node, planned_mib)
    left = {name: size if rules is None else rules.left_of(name, size) for name in cluster.node_names}
    return [NodeFacts(name, each, RoomUse.HELD) for name, each in left.items()]
