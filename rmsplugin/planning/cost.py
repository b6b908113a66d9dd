"""Cost of a plan, in MiB moved or waited for (RR-6929 section 4.2; VEE'09 section 4.2, equations 6 to 8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmsplugin.model.action import Action, ActionKind


def local_cost(action: Action) -> int:
    """Cost of one action by itself (RR-6929, table 1), in MiB.

    Migrate and suspend: the VM's memory demand Dm; resume: Dm if local, else 2 Dm; run, stop, pause and unpause: 0.
    """
    memory_mib = action.vm.demand.memory_mib
    match action.kind:
        case ActionKind.RUN | ActionKind.STOP | ActionKind.PAUSE | ActionKind.UNPAUSE:
            return 0
        case ActionKind.RESUME if not action.is_local:
            return 2 * memory_mib
        case _:
            return memory_mib


def pool_cost(pool: Iterable[Action]) -> int:
    """Cost of a pool: its dearest action (VEE'09, equation 8), in MiB."""
    return max((local_cost(action) for action in pool), default=0)


def plan_cost(pools: Sequence[Sequence[Action]]) -> int:
    """Cost of a plan: for each action its local cost and those of all pools before its own (VEE'09, equations 6, 7)."""
    total = before = 0
    for pool in pools:
        costs = [local_cost(action) for action in pool]
        total += sum(costs) + before * len(pool)
        before += max(costs, default=0)
    return total
