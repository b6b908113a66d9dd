"""Orders: requests that only operators may make: about lost nodes and stores, vjobs held back, and pauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.controllers.controllers import Controllers, host_of
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.dead_nodes import fate_of, record_back, record_gone, require_silent
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.serve.plan_views import pause_view
from rmsplugin.engine.serve.rights import Rights, user_name
from rmsplugin.errors import NotFoundError, RefusedError, UnavailableError
from rmsplugin.settings import Settings

_OF_NODES = "say what has become of nodes"


def seen_by(cycle: Cycle) -> Observation:
    """The look of the last cycle. Raises UnavailableError if there was none."""
    if cycle.seen is None:
        raise UnavailableError("the engine has not seen the cluster yet; try again in a moment")
    return cycle.seen


class Orders:
    """One method for each order; each is given the uid of the caller."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        hypervisor: Platform,
        nodes: Nodes,
        stores: Stores,
        cycle: Cycle,
        wake: Callable[[], None],
        rights: Rights,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._hypervisor = hypervisor
        self._nodes = nodes
        self._stores = stores
        self._cycle = cycle
        self._wake = wake
        self._rights = rights

    def node_gone(self, uid: int, node: str, *, preview: bool = False) -> dict[str, Any]:
        """Record that a node is dead, or its VMs gone. Returns the vjobs that begin again, and those that wait.

        Args:
            uid: of the caller.
            node: the node.
            preview: record nothing; what would be refused is.
        """
        self._require_known_node(uid, node)
        if known := self._ledger.nodes.gone().get(node):
            raise RefusedError(known.sentence)
        require_silent(self._settings, self._hypervisor, self._nodes, node)
        if preview:
            return self._fate(node)
        begin_again, wait = record_gone(self._settings, self._ledger, node, user_name(uid))
        self._wake()
        return {"begin_again": begin_again, "wait": wait}

    def node_fence(self, uid: int, node: str, *, preview: bool = False) -> dict[str, Any]:
        """Cut the power of the node; once it is off, it is gone. Arguments and what is returned as of ``node_gone``."""
        self._require_known_node(uid, node)
        if preview:
            self._cycle.fencing.require_possible(node)
            return self._fate(node)
        begin_again, wait = self._cycle.fencing.fence(node, user_name(uid))
        self._wake()
        return {"begin_again": begin_again, "wait": wait}

    def _fate(self, node: str) -> dict[str, Any]:
        begin_again, wait = fate_of(self._settings, self._ledger, node)
        return {"begin_again": begin_again, "wait": wait}

    def node_back(self, uid: int, node: str) -> dict[str, Any]:
        """Record that the node is back: it is asked again, VMs and files left there are removed, its states count."""
        self._rights.require_operator(uid, _OF_NODES)
        record_back(self._settings, self._ledger, node, user_name(uid))
        self._wake()
        return {"ok": True}

    def _require_known_node(self, uid: int, node: str) -> None:
        self._rights.require_operator(uid, _OF_NODES)
        known = {place for vm in self._ledger.vms() for place in (vm.host, vm.destination, vm.image_node)}
        if node not in seen_by(self._cycle).rms.nodes and node not in known:
            raise NotFoundError(f"neither Slurm nor the ledger knows a node {node}; `rmsplugin nodes` lists them")

    def new_store(self, uid: int, store: str) -> dict[str, Any]:
        """Record that a node's store (or "shared") is new: states that are missing from it are lost."""
        self._rights.require_operator(uid, "confirm")
        if self._ledger.markers.of(store) is None:
            raise NotFoundError(f"the engine knows no store {store}")
        self._stores.renew(store)
        self._ledger.event("store-renewed", f"{user_name(uid)} confirmed that the store {store} is a new one")
        return {"ok": True}

    def confirm(self, uid: int, vjobs: Sequence[str]) -> list[str]:
        """Confirm the conclusions held back about these vjobs: the next cycle acts. Returns the vjobs concerned."""
        self._rights.require_operator(uid, "confirm")
        confirmed = self._cycle.brake.confirm(vjobs)
        ledger = self._ledger
        for held in confirmed:
            ledger.failures.vjob_done(held.job_id, held.directive.what)  # a request by hand is tried at once
            ledger.event("confirmed", f"{user_name(uid)} confirmed what was held back", vjob=held.vjob)
        self._wake()
        return [held.vjob for held in confirmed]

    def pause(self, uid: int) -> dict[str, Any]:
        """Begin no context switch until ``unpause``; the first to pause is remembered."""
        return self._set_pause(uid, wanted=True)

    def unpause(self, uid: int) -> dict[str, Any]:
        """End the pause: decide again."""
        return self._set_pause(uid, wanted=False)

    def hand_over(self, uid: int, controllers: Controllers | None, to: str, group: str = "") -> dict[str, Any]:
        """Have another engine lead: that on the host ``to``, or whichever can. What is under way is finished first."""
        self._rights.require_operator(uid, "hand the lead over")
        if group:
            raise RefusedError(
                "there are no managers here: this engine has all groups, and none can be handed over alone. With "
                "several engines, `rmsplugin handover` without a group has another one lead"
            )
        if controllers is None:
            raise RefusedError("this engine is alone, and has nobody to hand over to (cluster.coordination is local)")
        chosen = controllers.next(to)
        host = host_of(chosen)
        self._ledger.event("handed-over", f"{user_name(uid)} has the engine on {host} lead")
        controllers.hand_over()
        return {"to": host, "url": chosen.about.get("url", ""), "version": chosen.about.get("version", "")}

    def _set_pause(self, uid: int, *, wanted: bool) -> dict[str, Any]:
        self._rights.require_operator(uid, "pause the engine")
        ledger, name = self._ledger, user_name(uid)
        with ledger.transaction():
            before = ledger.plans.pause
            changed = wanted is not (before is not None)
            if changed and wanted:
                ledger.plans.set_pause(name)
                ledger.event("paused", f"paused by {name}: no context switch, start or resume is begun")
            elif changed:
                ledger.plans.clear_pause()
                ledger.event("unpaused", f"{name} ended the pause: the engine decides again")
            pause = ledger.plans.pause
        if changed:
            self._wake()
        return {"changed": changed, "paused": pause_view(pause)}
