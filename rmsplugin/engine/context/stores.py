"""Stores: the directories of saved states, each known by its marker, so that what is missing there is known to be lost.

The engine sets up a store when it first uses it and remembers its marker in the ledger. From then on a node that shows
no marker, or another one, has its store not mounted (or a new one): nothing is concluded from what is missing there,
and nothing is saved there, until it is back or an operator says that it is a new one (`rmsplugin confirm --new-store`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.node_book import Left
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import NodeGoneError, NoStoreError, UnavailableError

#: What the shared store is called, in the place of a node's name.
SHARED = "shared"


class Stores:
    """All stores. Several threads may call."""

    def __init__(self, ledger: Ledger, nodes: Nodes, *, shared: bool) -> None:
        """``shared``: all nodes have one and the same."""
        self._ledger = ledger
        self._nodes = nodes
        self._shared = shared
        self._ready: set[str] = set()  # nodes whose stores were seen in this life of the engine
        self._setting_up = threading.Lock()

    def require(self, node: str) -> None:
        """Return if the node shows the store that the engine knows; one that it does not know is set up.

        Raises:
            NoStoreError: it shows no marker, or another store's.
            RmspluginError: it does not answer.
        """
        name = SHARED if self._shared else node
        known = self._ledger.markers.of(name)
        if not known:
            with self._setting_up:
                known = self._ledger.markers.of(name) or self._set_up(name, node)
        marker = self._nodes.marker(node, shared=self._shared)
        if marker is None:
            raise NoStoreError(f"the store of saved states on {node} shows no marker: is it mounted?")
        if marker != known:
            raise NoStoreError(
                f"the store of saved states on {node} is another one than before: is the right one mounted? If it is a "
                f"new one and what was in the old one is lost: rmsplugin confirm --new-store {name} --yes"
            )
        self._ready.add(node)

    def ensure(self, node: str) -> None:
        """``require``, once for each node and life of the engine: the agent itself looks for a marker in each call."""
        if node not in self._ready:
            self.require(node)

    def drop(self, nodes: Sequence[str], vm: VMRow) -> None:
        """Remove final and partial state of the VM from the nodes' stores, or from the shared one, by whichever has it.

        Raises:
            NoStoreError: the store that holds its state cannot be reached; of others without a marker nothing is known.
            RmspluginError: a node does not answer.
        """
        if self._shared:
            self._drop_shared(nodes, vm)
            return
        for node in nodes:
            try:
                self.ensure(node)
                self._nodes.drop_state(node, vm.name)
            except NoStoreError:
                if node == vm.image_node:
                    raise
            except UnavailableError:
                if not self._ledger.nodes.left(node, vm.name):
                    raise
                self._ledger.nodes.leave(node, vm.name, Left.STATE)

    def _drop_shared(self, nodes: Sequence[str], vm: VMRow) -> None:
        failures: list[UnavailableError] = []
        # Any node does; those that the VM was on may all be gone.
        for node in [*nodes, *sorted(self._ready - {*nodes})]:
            try:
                self.ensure(node)
                self._nodes.drop_state(node, vm.name, shared=True)
                return
            except UnavailableError as error:
                failures.append(error)
        for failure in failures:
            if vm.image_node or not isinstance(failure, NoStoreError | NodeGoneError):
                raise failure

    def renew(self, name: str) -> None:
        """An operator says that this store ("shared", or a node's) is a new one: it is set up at its next use."""
        self._ledger.markers.set(name, "")
        self._ready.clear()

    def _set_up(self, name: str, node: str) -> str:
        """Give the store a marker. It is remembered afterwards: a marker that is there already is taken over."""
        expected = ""
        # The first engine that knows markers: the store may have states already.
        if self._ledger.markers.of(name) is None:
            expected = next((vm.name for vm in self._ledger.vms() if vm.image_node == name), "")
        marker = self._nodes.init_store(node, uuid.uuid4().hex, expected=expected, shared=self._shared)
        self._ledger.markers.set(name, marker)
        self._ledger.event("store-set-up", f"the store {name} of saved states is set up", node=node)
        return marker
