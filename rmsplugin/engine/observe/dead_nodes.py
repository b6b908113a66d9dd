"""Dead nodes: nodes that do not answer; what is proved of them, and what the engine then ends, removes or refuses.

A node is dead, or its VMs are gone, when an operator or a fencing command said so, or when the epilog of the engine's
room there, which ends all VMs, reported after a VM was last brought there. Silence alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform, VMInfo
from rmsplugin.engine.context.machines import is_pinned
from rmsplugin.engine.context.sightings import Sightings
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.node_book import Left
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import NoStoreError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings


def end_vm(
    settings: Settings, ledger: Ledger, hypervisor: Platform, sightings: Sightings, node: str, vm: VMRow
) -> None:
    """End the VM on the node. If the node is silent and the VM proved absent, the stop is left behind for later.

    Raises:
        UnavailableError: the node does not answer, and the VM's absence is not proved.
    """
    try:
        hypervisor.stop(node, vm.name, timeout_s=settings.hypervisor.stop_timeout_s)
    except UnavailableError:
        if not sightings.has_left(node, vm):
            raise
        ledger.nodes.leave(node, vm.name, Left.VM)


def drop_files(ledger: Ledger, nodes: Nodes, node: str, vm: VMRow) -> None:
    """Remove the VM's configuration and disk; a silent node where the VM itself was left behind keeps them until later.

    Raises:
        UnavailableError: the node does not answer, and the VM was not left behind there.
    """
    try:
        nodes.drop_config(node, vm.name)
    except UnavailableError:
        if not ledger.nodes.left(node, vm.name):
            raise
        ledger.nodes.leave(node, vm.name, Left.FILES)


def require_answers(settings: Settings, ledger: Ledger, vms: Sequence[VMRow]) -> None:
    """Raise RefusedError if saved states, or disks without another copy, are on nodes that are gone: not yet lost."""
    gone = ledger.nodes.gone()
    for vm in vms:
        pinned = is_pinned(settings, ledger.vjob(vm.job_id))
        for node in (vm.image_node, vm.booted_on if pinned else ""):
            if node in gone:
                raise RefusedError(f"waits: the saved state of {vm.name} is on {node}, and {gone[node].sentence}")


def require_silent(settings: Settings, hypervisor: Platform, nodes: Nodes, node: str) -> None:
    """Return if neither libvirt nor the node agent of the node answers.

    Raises:
        RefusedError: one of them answers: VMs may run there.
    """
    where = f"{node} is not gone"
    what = f"drain it (`rmsplugin drain {node}`), or power it off first"
    try:
        hypervisor.list_vms(node)
    except UnavailableError:
        pass
    except RmspluginError as error:
        raise RefusedError(f"{where}: its libvirt answers ({error}); {what}") from error
    else:
        raise RefusedError(f"{where}: its libvirt answers; {what}")
    try:
        nodes.space(node, shared=settings.nodes.shared)
    except NoStoreError:
        pass
    except UnavailableError:
        return
    except RmspluginError as error:
        raise RefusedError(f"{where}: its node agent answers ({error}); {what}") from error
    raise RefusedError(f"{where}: its node agent answers, VMs may run there although its libvirt is silent; {what}")


def record_gone(settings: Settings, ledger: Ledger, node: str, by: str) -> tuple[list[str], list[str]]:
    """Record that the node is gone.

    Returns:
        The vjobs with VMs there, which begin again, and the vjobs asleep there, which wait; by the names users know.
    """
    with ledger.transaction():
        ledger.nodes.set_gone(node, by)
        begin_again, wait = fate_of(settings, ledger, node)
        vms = ledger.live_vms_by_job()
        for vjob in ledger.vjobs():
            rows = vms.get(vjob.job_id, [])
            if any(node in (vm.image_node, vm.destination, vm.host, *vm.touched) for vm in rows):
                ledger.failures.vjob_forgiven(vjob.job_id)  # what failed by the node's silence is tried at once
            if vjob.display_id in wait:
                ledger.update_vjob(vjob.job_id, reason=_unreachable(settings, ledger, rows))
        what = f"{node} is gone: {by} said so; its VMs do not exist any more"
        if begin_again:
            what += f"; vjobs with VMs there go on from their checkpoints, or begin again: {', '.join(begin_again)}"
        if wait:
            what += f"; vjobs whose saved states are there wait for it: {', '.join(wait)}"
        ledger.event("node-gone", what, node=node)
    return begin_again, wait


def fate_of(settings: Settings, ledger: Ledger, node: str) -> tuple[list[str], list[str]]:
    """What follows where the node is gone: as ``record_gone`` returns it."""
    vms = ledger.live_vms_by_job()
    begin_again, wait = [], []
    for vjob in ledger.vjobs():
        rows = vms.get(vjob.job_id, [])
        if any(node in (vm.host, vm.destination) for vm in rows):
            begin_again.append(vjob.display_id)
        elif vjob.state is VJobState.SLEEPING:
            pinned = is_pinned(settings, vjob)
            if any(node == vm.image_node or (pinned and node == vm.booted_on) for vm in rows):
                wait.append(vjob.display_id)
    return begin_again, wait


def record_back(settings: Settings, ledger: Ledger, node: str, by: str) -> None:
    """Record that the node is back. Raises NotFoundError if it is not gone."""
    with ledger.transaction():
        ledger.nodes.set_back(node)
        for vjob in ledger.vjobs():
            rows = ledger.vms(vjob.job_id) if vjob.state is VJobState.SLEEPING else []
            if any(node in (vm.image_node, vm.booted_on) for vm in rows):
                reason = _unreachable(settings, ledger, rows) or f"sleeps; {node}, where its saved state is, is back"
                ledger.update_vjob(vjob.job_id, reason=reason)
        ledger.event("node-back", f"{by} said that {node} is back", node=node)


def _unreachable(settings: Settings, ledger: Ledger, vms: Sequence[VMRow]) -> str:
    """Why the saved states cannot be used now; empty if they can."""
    try:
        require_answers(settings, ledger, vms)
    except RefusedError as error:
        return str(error)
    return ""


def clear_left_behind(
    settings: Settings, ledger: Ledger, hypervisor: Platform, nodes: Nodes, stores: Stores, seen: Observation
) -> list[str]:
    """End the VMs and remove the files left behind on nodes that answer again. Returns a sentence for each failure."""
    problems = []
    left_behind = ledger.nodes.left_behind()
    rows = {vm.name: vm for vm in ledger.vms()} if left_behind else {}
    for (node, name), what in left_behind.items():
        row = rows.get(name)
        if node not in seen.vms or (row is not None and node in (row.host, row.destination)):
            continue  # an operation that has not ended yet still looks after it
        try:
            _clear(settings, ledger, hypervisor, nodes, stores, node, name, what, row, seen.vms[node].get(name))
        except RmspluginError as error:
            problems.append(f"{name} was left behind on {node}, and cannot be removed there: {error}")
    return problems


def _clear(
    settings: Settings,
    ledger: Ledger,
    hypervisor: Platform,
    nodes: Nodes,
    stores: Stores,
    node: str,
    name: str,
    what: frozenset[Left],
    row: VMRow | None,
    found: VMInfo | None,
) -> None:
    # Stop it, listed or not: a VM that appears there later does not belong to the vjob any more.
    hypervisor.stop(node, name, timeout_s=settings.hypervisor.stop_timeout_s)
    if found is not None:
        ledger.event("stray-stopped", f"{name} ran on {node}, which had been gone", vm=name, node=node)
    # On storage that all nodes see, the files are those of the VM as it is now.
    if Left.FILES in what and not (row and settings.nodes.vm_dir_shared):
        nodes.drop_config(node, name)
    if Left.STATE in what and not (row and (settings.nodes.shared or row.image_node in (node, SHARED))):
        stores.ensure(node)
        nodes.drop_state(node, name, shared=settings.nodes.shared)
    ledger.nodes.cleared(node, name)
