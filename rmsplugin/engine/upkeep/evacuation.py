"""Evacuation: VMs leave the nodes that have to be given back: live where there is room elsewhere, else saved."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.one_step_plan import ENGINE, expected_s
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.observe.ending import is_ending
from rmsplugin.engine.observe.leaving import leaving_nodes
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import is_coming
from rmsplugin.errors import RefusedError, RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: A migration may be expected to take this share of the time left; otherwise the VM is saved at once.
_SHARE = 0.5


class Evacuation:
    """Begins the operations that take VMs off the nodes that they must leave."""

    def __init__(
        self,
        settings: Settings,
        durations: DurationsInUse,
        ledger: Ledger,
        clock: Clock,
        executor: Executor,
        placing: Placing,
    ) -> None:
        self._settings = settings
        self._durations = durations
        self._ledger = ledger
        self._clock = clock
        self._executor = executor
        self._placing = placing
        self._lendable: Sequence[str] = ()
        self.wanted: frozenset[str] = frozenset()  # nodes whose rooms are waited for, so that VMs need not be saved

    def evacuate(self, seen: Observation, busy: set[int], lendable: Collection[str] = ()) -> list[str]:
        """Look at all vjobs. Returns sentences about the operations begun, and about those that could not be.

        Args:
            seen: one look at the cluster.
            busy: job ids of the vjobs that have an operation under way.
            lendable: nodes on which the engine could have a room.
        """
        self._lendable = [name for name in seen.rms.nodes if name in lendable]
        self.wanted = frozenset()
        leaving = leaving_nodes(self._settings, seen)
        said: list[str] = []
        if not leaving:
            return said
        for vjob in self._ledger.vjobs():
            if not vjob.state.is_live or vjob.state_since >= seen.taken:
                continue
            vms = self._ledger.vms(vjob.job_id)
            nodes = {vm.host for vm in vms} & leaving.keys()
            try:
                if self._settings.native:
                    said += self._finish(seen, vjob, nodes, busy)
                elif nodes:
                    said += self._leave(seen, vjob, vms, {node: leaving[node] for node in nodes}, busy)
                elif vjob.state is VJobState.SLEEPING and vjob.job_id not in busy:
                    said += self._rescue(seen, vjob, vms, leaving)
            except RmspluginError as error:
                said.append(f"vjob {vjob.display_id} cannot leave {', '.join(sorted(nodes))}: {error}")
            except Exception as bug:  # a fault with one vjob must not keep another where it must leave
                log.exception("vjob %s cannot leave", vjob.display_id)
                said.append(f"vjob {vjob.display_id} cannot leave {', '.join(sorted(nodes))}: internal error: {bug!r}")
        return said

    def _leave(
        self, seen: Observation, vjob: VJobRow, vms: list[VMRow], leaving: Mapping[str, str], busy: set[int]
    ) -> list[str]:
        node, why = next(iter(sorted(leaving.items())))
        reason = f"leaves {node}: {why}"
        if vjob.state is VJobState.STARTING:
            # The user's script has not run: the vjob starts again elsewhere.
            if vjob.job_id in busy:
                self._executor.cancel(vjob.job_id, reason)
                return []
            self._executor.begin(vjob.job_id, OperationKind.RESTART, reason)
            return [f"restart {vjob.display_id}: {reason}"]
        if vjob.job_id in busy:
            self._executor.make_way(vjob.job_id, "an evacuation")  # the next cycle goes on
        stays = vjob.state not in (VJobState.RUNNING, VJobState.PAUSED)  # an operation on it is under way
        if stays or vjob.job_id in busy or is_ending(vjob, seen.taken):
            return []
        if self._rests(vjob, OperationKind.SUSPEND):
            return []
        try:
            if self._rests(vjob, OperationKind.MIGRATE):
                raise RefusedError("the last migration failed")
            if self._too_late_to_migrate(seen, vjob, vms, leaving):
                raise RefusedError("too little time is left for a migration")
            self._placing.leave(seen, vjob, leaving.keys(), reason)
            return [f"migrate {vjob.display_id}: {reason}"]
        except RefusedError as error:
            if self._has_time(seen, leaving):
                return []
            self._placing.suspend(vjob, f"{reason}; not migrated: {error}", resumes=True)
            return [f"suspend {vjob.display_id}: {reason}"]

    def _finish(self, seen: Observation, vjob: VJobRow, leaving: Collection[str], busy: set[int]) -> list[str]:
        """Let a paused plain job go on where it has to leave: it can leave by its end alone."""
        rests = self._rests(vjob, OperationKind.UNPAUSE)
        if not leaving or vjob.job_id in busy or vjob.state is not VJobState.PAUSED or not vjob.wakes or rests:
            return []
        reason = f"goes on, so that {', '.join(sorted(leaving))} can be left"
        self._placing.unpause(seen, vjob, reason, ENGINE)
        return [f"unpause {vjob.display_id}: {reason}"]

    def _has_time(self, seen: Observation, leaving: Mapping[str, str]) -> bool:
        """Whether a room on another node is worth waiting for: those that VMs leave are hot, and no job waits there."""
        coming = any(is_coming(room) for room in seen.rooms.by_node.values())
        hot = self._ledger.sensors.hot()
        since = [hot[node].since if node in hot and node in seen.hot else 0.0 for node in leaving]
        waits_s = max(self._settings.hosts_of(name).room_wait_s for name in self._settings.hosts_partitions)
        if seen.taken - min(since) >= waits_s or not (coming or self._lendable):
            return False
        self.wanted = frozenset(self._lendable[: len(seen.hot)])
        return True

    def _rests(self, vjob: VJobRow, kind: OperationKind) -> bool:
        return self._ledger.failures.vjob_rests(vjob.job_id, kind, self._clock.now())

    def _too_late_to_migrate(
        self, seen: Observation, vjob: VJobRow, vms: list[VMRow], leaving: Mapping[str, str]
    ) -> bool:
        need_s = expected_s(self._settings, self._durations, OperationKind.MIGRATE, vjob, vms, {})
        until = min((room.until for node in leaving if (room := seen.rooms.by_node.get(node))), default=None)
        return until is not None and need_s > _SHARE * (until - self._clock.now())

    def _rescue(self, seen: Observation, vjob: VJobRow, vms: list[VMRow], leaving: Mapping[str, str]) -> list[str]:
        """Copy saved states off nodes whose stores do not outlive their rooms."""
        doomed = (
            {vm.image_node for vm in vms} & (leaving.keys() - seen.hot.keys()) & unsafe_stores(self._settings, seen)
        )
        if not doomed or self._rests(vjob, OperationKind.RELOCATE):
            return []
        reason = f"its saved state would not stay on {', '.join(sorted(doomed))}"
        self._placing.relocate(seen, vjob, doomed, reason)
        return [f"relocate {vjob.display_id}: {reason}"]


def unsafe_stores(settings: Settings, seen: Observation) -> set[str]:
    """The nodes whose stores do not outlive their rooms."""
    if settings.nodes.shared:
        return set()
    return {
        node
        for name in settings.hosts_partitions
        if not settings.hosts_of(name).store_survives and name in seen.rms.partitions
        for node in seen.rms.partitions[name].nodes
    }
