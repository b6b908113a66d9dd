"""Held back: vjobs whose fate is not known, and to which nothing is done until it is.

The brake holds back the engine's own conclusions about them. This module names them for everything else that might
touch them: requests by hand, context switches, evacuations, checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RefusedError, RmspluginError, UnavailableError
from rmsplugin.settings import Settings


class HeldBack:
    """Job ids of vjobs that are held back, and why. Several threads may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._why: Mapping[int, str] = {}
        self.compared = False  # whether a cycle has compared vjobs, jobs and VMs since this engine began

    def now(self) -> frozenset[int]:
        """Job ids of the vjobs to which nothing is done."""
        with self._lock:
            return frozenset(self._why)

    def set(self, why: Mapping[int, str]) -> None:
        """Record the vjobs held back by a cycle that has compared all vjobs with its look."""
        with self._lock:
            self._why = dict(why)
            self.compared = True

    def release(self, job_id: int) -> None:
        """Release a vjob whose fate is known now, by a look or by an operator's word."""
        with self._lock:
            self._why = {each: why for each, why in self._why.items() if each != job_id}

    def require_settled(self, vjob: VJobRow) -> None:
        """Return if the vjob may be acted on by hand.

        Raises:
            UnavailableError: no cycle has compared anything since the engine began.
            RefusedError: the vjob is held back.
        """
        if not self.compared:
            raise UnavailableError("the engine has not compared its vjobs with the cluster yet; try again in a moment")
        self.refuse(vjob)

    def refuse(self, vjob: VJobRow) -> None:
        """Raise RefusedError if the vjob is held back."""
        with self._lock:
            why = self._why.get(vjob.job_id)
        if why is not None:
            raise RefusedError(f"nothing is done to vjob {vjob.display_id} now: {why}; see `rmsplugin confirm`")


class StateFinder:
    """Looks for saved states that the ledger does not know; each node is asked once at most."""

    def __init__(self, settings: Settings, ledger: Ledger, nodes: Nodes, seen: Observation) -> None:
        self._settings = settings
        self._ledger = ledger
        self._nodes = nodes
        self._seen = seen
        self._found: dict[str, frozenset[str]] = {}

    def unknown(self, vms: Sequence[VMRow], missing: bool, job: RmsJob | None, lost: str) -> dict[str, str]:
        """The nodes of a vjob's saved states that the ledger does not know, if the vjob may have been suspended.

        Args:
            vms: its VMs.
            missing: some of them are nowhere.
            job: as the RMS has it.
            lost: why an operation says that the state is lost; files of sleeps that the ledger knows do not count.
        """
        asleep = missing and job is not None and job.state is JobState.SUSPENDED
        if vms and lost and not asleep:
            asleep = not self._ledger.has_slept(vms[0].job_id)
        return self.places(vms) if asleep else {}

    def places(self, vms: Sequence[VMRow]) -> dict[str, str]:
        """By VM name, the node where its saved state lies under its final name; empty unless each VM has just one."""
        if not vms or not all(vm.phase.in_memory for vm in vms):
            return {}
        nodes = sorted(self._seen.vms)
        if self._settings.nodes.shared:
            nodes = next(([node] for node in nodes if self._states(node)), [])
        found = {vm.name: [node for node in nodes if vm.name in self._states(node)] for vm in vms}
        if any(len(where) != 1 for where in found.values()):
            return {}
        return {name: where[0] for name, where in found.items()}

    def _states(self, node: str) -> frozenset[str]:
        if node not in self._found:
            try:
                self._found[node] = self._nodes.list_files(node, shared=self._settings.nodes.shared).states
            except RmspluginError:
                self._found[node] = frozenset()
        return self._found[node]
