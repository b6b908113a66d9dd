"""Stores: the directories of saved states. A state is known to be lost if it is missing from a store with its marker.

The engine sets up a store when it first uses it, and remembers its marker in the ledger. If a node later shows no
marker, or another one, its store is not mounted, or is a new one. Then nothing is concluded from a missing state, and
nothing is saved there, until the store is back or an operator says that it is new (`rmsplugin confirm --new-store`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.ledger.checkpoints import CheckpointState
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.node_book import Left
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import NodeGoneError, NoStoreError, RmspluginError, TimedOutError, UnavailableError

#: Seconds from one look at a store that is there to the next, and the most such looks at a time.
_LOOK_S, _MOST_LOOKS = 600.0, 20
#: The first pause, in seconds, before a store that hangs is looked at again; each next one is twice as long, up to
#: _LOOK_S. Each look leaves a process on the node that ends when the file server answers.
_HANGS_S = 60.0
#: Looks at the same time: those at stores that hang take as long as a call of the node agent may.
_AT_ONCE = 8


class Stores:
    """All stores. Several threads may call."""

    def __init__(self, ledger: Ledger, nodes: Nodes, *, shared: bool, is_part: bool = False) -> None:
        """Know nothing of a node yet.

        Args:
            ledger: remembers the markers.
            nodes: the node agents.
            shared: all nodes have one and the same store.
            is_part: it is the part of one group; the engine of all groups before may have left states in the whole.
        """
        self._ledger = ledger
        self._nodes = nodes
        self._shared, self._is_part = shared, is_part
        self._ready: set[str] = set()  # nodes whose stores were seen in this life of the engine
        self._missing: dict[str, str] = {}  # nodes that did not show their store when it was last looked at, and why
        self._silent: dict[str, str] = {}  # nodes whose stores did not answer when they were last looked at, and why
        self._pauses: dict[str, float] = {}  # by such node, the seconds before the next look
        self._looked: dict[str, float] = {}  # by node that is used, since when its store was not looked at
        self._doubted: set[str] = set()  # nodes where something has failed since that may be due to their stores
        self._setting_up = threading.Lock()

    @property
    def missing(self) -> dict[str, str]:
        """The nodes that did not show their stores when these were last looked at, and why."""
        return dict(self._missing)

    @property
    def silent(self) -> dict[str, str]:
        """The nodes whose stores did not answer when these were last looked at, while their agents did; and why."""
        return dict(self._silent)

    def doubt(self, nodes: Iterable[str]) -> None:
        """Something has failed on these nodes that may be due to their stores."""
        self._doubted |= {*nodes} - {"", SHARED}

    def to_look_at(self, held: Iterable[str], silent: Container[str], now: float) -> list[str]:
        """The nodes whose stores are to be looked at now; some of them, where there are many.

        Args:
            held: nodes that are used. Their stores, if they are known, are looked at now and then.
            silent: nodes that answer nothing; all others that did not show their stores are looked at, at once. Stores
                that hang are looked at less and less often.
            now: seconds.
        """
        hanging = self.silent.keys()
        doubted = sorted(node for node in (self._doubted | self._missing.keys()) - hanging if node not in silent)
        used = {*held, *hanging} - {*doubted}
        self._looked = {node: self._looked.get(node, now) for node in used} | dict.fromkeys(doubted, now)
        answering = [(at, node) for node, at in self._looked.items() if node not in silent]
        due = sorted((at, node) for at, node in answering if self._is_due(node, now - at))
        known = [node for _, node in due if self._ledger.markers.of(SHARED if self._shared else node)]
        self._looked |= dict.fromkeys(known[:_MOST_LOOKS], now)
        return [*doubted, *known[:_MOST_LOOKS]]

    def look_again(self, nodes: Iterable[str]) -> None:
        """Look whether these nodes show their stores."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="stores") as pool:
            for _ in pool.map(self._look_at_store, nodes):
                pass

    def _look_at_store(self, node: str) -> None:
        self._doubted.discard(node)
        with suppress(RmspluginError):
            self.require(node)

    def require(self, node: str) -> None:
        """Return if the node shows the store that the engine knows; a store that is not known yet is set up.

        Raises:
            NoStoreError: the node shows no marker, or another store's.
            TimedOutError: its agent took the request, and what the store lies on does not answer it.
            RmspluginError: the node does not answer.
        """
        try:
            self._require(node)
        except NoStoreError as error:
            self._note_answer(node)
            self._missing[node] = str(error)
            raise
        except TimedOutError as error:
            # Nothing tells any more whether it shows its marker. A store that was never set up has no outage.
            if self._ledger.markers.of(SHARED if self._shared else node):
                self._missing.pop(node, None)
                self._pauses[node] = min(_LOOK_S, 2 * self._pauses.get(node, _HANGS_S / 2))
                self._silent[node] = str(error)
            raise
        self._note_answer(node)
        self._missing.pop(node, None)
        self._ready.add(node)

    def _is_due(self, node: str, seconds: float) -> bool:
        """Whether a store is to be looked at that was not for so long."""
        return seconds >= self._pauses.get(node, _LOOK_S)

    def _note_answer(self, node: str) -> None:
        self._silent.pop(node, None)
        self._pauses.pop(node, None)

    def _require(self, node: str) -> None:
        name = SHARED if self._shared else node
        known = self._ledger.markers.of(name)
        if not known:
            with self._setting_up:
                known = self._ledger.markers.of(name) or self._set_up(name, node)
        marker = self._nodes.space(node, shared=self._shared).marker
        if marker is None:
            raise NoStoreError(f"the store of saved states on {node} shows no marker: is it mounted?")
        if marker != known:
            raise NoStoreError(
                f"the store of saved states on {node} is another one than before: is the right one "
                "mounted? If it is a new one, and the states in the old one are lost: rmsplugin "
                f"confirm --new-store {name} --yes"
            )

    def ensure(self, node: str) -> None:
        """``require``, once for each node and life of the engine: the agent itself checks the marker in each call."""
        if node not in self._ready:
            self.require(node)

    def drop(self, nodes: Sequence[str], vm: VMRow) -> None:
        """Remove final and partial state of the VM from the nodes' stores, or from the shared store by any one node.

        Raises:
            NoStoreError: the store that holds the VM's state shows no marker; others without a marker are skipped.
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
        for node in self.first_of(nodes):
            try:
                self.ensure(node)
                self._nodes.drop_state(node, vm.name, shared=True)
                return
            except UnavailableError as error:
                failures.append(error)
        for failure in failures:
            if vm.image_node or not isinstance(failure, NoStoreError | NodeGoneError):
                raise failure

    def first_of(self, nodes: Sequence[str]) -> list[str]:
        """The nodes to ask about a shared store, one after the other: these, and then any other one that was seen.

        Any will do: the nodes that a VM was on may all be gone.
        """
        return [*nodes, *sorted(self._ready - {*nodes})]

    def renew(self, name: str) -> None:
        """Take an operator's word that this store ("shared", or a node's) is new: it is set up at its next use."""
        self._ledger.markers.set(name, "")
        self._ready.clear()

    def _set_up(self, name: str, node: str) -> str:
        """Give the store a marker, and then remember it; a marker that is there already is taken over."""
        expected = ""
        # If this is the first engine that knows markers, the store may have states already.
        if self._ledger.markers.of(name) is None:
            expected = next((vm.name for vm in self._ledger.vms() if vm.image_node == name), "")
        marker = self._nodes.init_store(node, uuid.uuid4().hex, expected=expected, shared=self._shared)
        if self._is_part and (vms := self._with_states()):
            self._nodes.adopt(node, vms)
        self._ledger.markers.set(name, marker)
        self._ledger.event("store-set-up", f"the store {name} of saved states is set up", node=node)
        return marker

    def _with_states(self) -> list[str]:
        """All VMs of which the ledger may know states: saved ones, checkpoints, and those that were put aside."""
        names = {vm.name for vm in self._ledger.vms()}
        names |= {vm.name for aside in self._ledger.set_aside.all() for vm in aside.vms}
        for state in CheckpointState:
            names |= {vm.name for each in self._ledger.checkpoints.in_state(state) for vm in each.vms}
        return sorted(names)
