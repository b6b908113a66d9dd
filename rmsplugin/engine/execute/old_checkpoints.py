"""Old checkpoints: their files, which nobody needs any more, are removed from each node as soon as it answers."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.ledger.checkpoints import Checkpoint, CheckpointState
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.errors import RmspluginError
from rmsplugin.settings import Settings


def drop_old(settings: Settings, ledger: Ledger, nodes: Nodes, stores: Stores, job_id: int | None = None) -> None:
    """Remove the files of old checkpoints (of one vjob, or of all) on nodes that answer; the others are tried again."""
    for old in ledger.checkpoints.in_state(CheckpointState.OLD):
        if job_id in (None, old.job_id):
            _drop(settings, ledger, nodes, stores, old)


def _drop(settings: Settings, ledger: Ledger, nodes: Nodes, stores: Stores, old: Checkpoint) -> None:
    left = []
    for vm in old.vms:
        if SHARED in vm.nodes:  # any node that sees the store will do
            kept = (
                ()
                if any(_dropped(settings, nodes, stores, node, vm.name, old.id) for node in old.targets)
                else vm.nodes
            )
        else:
            kept = tuple(node for node in vm.nodes if not _dropped(settings, nodes, stores, node, vm.name, old.id))
        if kept:
            left.append(replace(vm, nodes=kept))
    if left:
        ledger.checkpoints.may_be_on(old.id, left)
    else:
        ledger.checkpoints.forget(old.id)


def _dropped(settings: Settings, nodes: Nodes, stores: Stores, node: str, vm: str, number: int) -> bool:
    try:
        stores.ensure(node)
        nodes.drop_state(node, vm, shared=settings.nodes.shared, checkpoint=number)
    except RmspluginError:
        return False
    return True
