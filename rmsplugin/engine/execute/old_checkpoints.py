"""Old checkpoints: their files, which nobody needs any more, are removed from each node as soon as it answers."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.stores import SHARED
from rmsplugin.engine.ledger.checkpoints import Checkpoint, CheckpointState
from rmsplugin.errors import RmspluginError


def drop_old(context: Context, job_id: int | None = None) -> None:
    """Remove the files of old checkpoints (of one vjob, or of all) on nodes that answer; the others are tried again."""
    for old in context.ledger.checkpoints.in_state(CheckpointState.OLD):
        if job_id in (None, old.job_id):
            _drop(context, old)


def _drop(context: Context, old: Checkpoint) -> None:
    left = []
    for vm in old.vms:
        if SHARED in vm.nodes:  # any node that sees the store will do
            kept = () if any(_dropped(context, node, vm.name, old.id) for node in old.targets) else vm.nodes
        else:
            kept = tuple(node for node in vm.nodes if not _dropped(context, node, vm.name, old.id))
        if kept:
            left.append(replace(vm, nodes=kept))
    if left:
        context.ledger.checkpoints.may_be_on(old.id, left)
    else:
        context.ledger.checkpoints.forget(old.id)


def _dropped(context: Context, node: str, vm: str, number: int) -> bool:
    try:
        context.stores.ensure(node)
        context.nodes.drop_state(node, vm, shared=context.shared, checkpoint=number)
    except RmspluginError:
        return False
    return True
