"""One-step plan: plans of one step, for one vjob; requested by a person, or caused by Slurm or by a node that is left.

Their steps are carried out and counted like those of all other plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, Plan, PlanState, VJobRow, VMRow
from rmsplugin.planning.order.transfers import Duration, Durations
from rmsplugin.settings import Settings

#: The author of a decision, in the place of a policy.
BY_HAND = "by hand"
FORCED = "forced"

#: The requester of everything that the engine does of its own accord.
ENGINE = "engine"


def one_step_plan(
    settings: Settings,
    in_use: DurationsInUse,
    ledger: Ledger,
    clock: Clock,
    vjob: VJobRow,
    kind: OperationKind,
    hosts: Mapping[str, str],
    reason: str,
    requested_by: str,
) -> Plan:
    """The plan of one step.

    Args:
        settings: of the site.
        in_use: how long operations take.
        ledger: with its VMs.
        clock: of the engine.
        vjob: the vjob.
        kind: suspend, resume, migrate or unpause.
        hosts: by VM name, the node where it runs afterwards; empty for a suspend; for a migration only VMs that move.
        reason: why, for a person.
        requested_by: a user's name, or ``ENGINE``.
    """
    vms = ledger.vms(vjob.job_id)
    return Plan(
        id=0,
        time=clock.now(),
        policy=FORCED if requested_by == ENGINE else BY_HAND,
        sentence=f"{kind} {vjob.display_id}: {reason}",
        fallback="",
        cost_mib=0,
        lower_bound_mib=0,
        estimate_s=expected_s(settings, in_use, kind, vjob, vms, hosts),
        decided_s=0.0,
        state=PlanState.RUNNING,
        error="",
        ended=0.0,
    )


def has_one_step(plan: Plan) -> bool:
    """Whether this is a plan of one step, made by ``one_step_plan``."""
    return plan.policy in (BY_HAND, FORCED)


def expected_s(
    settings: Settings,
    in_use: DurationsInUse,
    kind: OperationKind,
    vjob: VJobRow,
    vms: Sequence[VMRow],
    hosts: Mapping[str, str],
) -> float:
    """The seconds that this operation on a vjob alone is expected to take; arguments as of ``one_step_plan``."""
    durations = Durations.from_values(in_use.values())
    known: dict[OperationKind, Duration] = {
        OperationKind.MIGRATE: durations.migrate,
        OperationKind.SUSPEND: durations.suspend,
        OperationKind.RESUME: durations.resume_local,
        OperationKind.UNPAUSE: durations.unpause,
    }
    if (
        kind is OperationKind.RESUME
        and not settings.nodes.shared
        and any(hosts.get(vm.name) != vm.image_node for vm in vms)
    ):
        known[kind] = durations.resume_remote
    # Saves and restores form a pipeline, one VM after another; actions of other kinds begin together.
    behind = 0 if kind in (OperationKind.MIGRATE, OperationKind.UNPAUSE) else len(vms) - 1
    one = known[kind]
    return (
        one.constant_s + one.s_per_mib * max((vm.memory_mib for vm in vms), default=0) + durations.pipeline_s * behind
    )
