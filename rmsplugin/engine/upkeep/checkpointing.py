"""Checkpointing: in each cycle, begins the checkpoints that are due, and clears up after interrupted ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.context.machines import has_disk
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.execute.checkpoint_rules import COPIES, Covered, due
from rmsplugin.engine.execute.executor import Chore, Executor
from rmsplugin.engine.execute.old_checkpoints import drop_old
from rmsplugin.engine.ledger.checkpoints import Checkpoint, CheckpointState, CheckpointVM
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.observe.ending import is_ending
from rmsplugin.engine.observe.leaving import leaving_nodes
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

#: Operations that keep a node from taking checkpoints, because they go first.
_GO_FIRST = (OperationKind.SUSPEND, OperationKind.RESUME, OperationKind.MIGRATE, OperationKind.CHECKPOINT)

#: The number of nodes that are asked for room for copies.
_TARGETS = 16


class Checkpointing:
    """Periodic checkpoints of running vjobs, in the partitions that have a checkpoint_interval_s."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        nodes: Nodes,
        stores: Stores,
        capabilities: Capabilities,
        executor: Executor,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._nodes = nodes
        self._stores = stores
        self._capabilities = capabilities
        self._executor = executor

    def recover(self, seen: Observation, busy: Collection[int]) -> list[str]:
        """Let VMs go on that an interrupted checkpoint has left paused. Returns sentences about the acts begun."""
        ledger, begun = self._ledger, []
        for left in ledger.checkpoints.in_state(CheckpointState.TAKING):
            if left.job_id in busy or left.job_id in self._executor.busy():
                continue
            vjob = ledger.vjob(left.job_id)
            if vjob.state is not VJobState.RUNNING:
                # The operation under way lets paused VMs go on by itself.
                ledger.checkpoints.retire_one(left.id)
            elif not ledger.failures.vjob_rests(vjob.job_id, OperationKind.CHECKPOINT, seen.taken):
                self._executor.begin(left.job_id, OperationKind.CHECKPOINT, "its VMs go on")
                begun.append(f"checkpoint {vjob.display_id}: taken up again")
        return begun

    def begin_due(self, seen: Observation, busy: Collection[int]) -> list[str]:
        """Begin the checkpoints that are due. Returns sentences about them."""
        ledger = self._ledger
        if ledger.checkpoints.in_state(CheckpointState.OLD):
            self._executor.chore(
                Chore.CHECKPOINTS, lambda: drop_old(self._settings, self._ledger, self._nodes, self._stores)
            )  # in the background: a silent node delays nothing here
        timed = {name for name in self._settings.partition if self._interval_s(name) > 0}
        if not timed:
            return []
        rows = ledger.live_vms_by_job()
        planned = {step.vjob for step in ledger.plans.open_steps()}
        vjobs = {
            vjob.job_id: vjob
            for vjob in ledger.vjobs()
            if vjob.partition in timed
            and vjob.job_id not in busy
            and vjob.display_id not in planned
            and self._may(seen, vjob, rows.get(vjob.job_id, []))
        }
        newest = ledger.checkpoints.newest()
        covered = [self._covered(seen, vjob, rows[job_id], newest.get(job_id)) for job_id, vjob in vjobs.items()]
        begun = []
        for job_id in due(covered, self._occupied(rows), self._settings.engine.cycle_s):
            self._begin(seen, job_id, rows[job_id])
            begun.append(f"checkpoint {vjobs[job_id].display_id}")
        return begun

    def _interval_s(self, name: str) -> float:
        """The seconds between two checkpoints of a vjob of this partition; 0: there are none."""
        if not self._capabilities.checkpoint:
            return 0.0
        partition = self._settings.partition.get(name)
        return partition.checkpoint_interval_s if partition else 0.0

    def _may(self, seen: Observation, vjob: VJobRow, vms: Collection[VMRow]) -> bool:
        """Whether a checkpoint can be taken now: the vjob runs, settled, and all its VMs are seen on their hosts."""
        job = seen.jobs.get(vjob.job_id)
        return (
            vjob.state is VJobState.RUNNING
            and vjob.state_since < seen.taken
            and vjob.script_started
            and not is_ending(vjob, seen.taken)
            and not has_disk(self._settings, vjob)
            and job is not None
            and job.state is JobState.RUNNING
            and not job.completing
            and bool(vms)
            and all(not vm.phase.moves and _runs(seen, vm) for vm in vms)
            and not self._ledger.failures.vjob_rests(vjob.job_id, OperationKind.CHECKPOINT, seen.taken)
        )

    def _covered(self, seen: Observation, vjob: VJobRow, vms: Collection[VMRow], newest: Checkpoint | None) -> Covered:
        gone = self._ledger.nodes.gone()
        copies = COPIES
        if newest is not None and not self._settings.nodes.shared:
            copies = min(len({*vm.nodes} - {SHARED} - gone.keys()) for vm in newest.vms)
        return Covered(
            job_id=vjob.job_id,
            nodes=frozenset(vm.host for vm in vms),
            interval_s=self._interval_s(vjob.partition),
            ran_s=vjob.ran_by(seen.taken),
            saved_s=newest.ran_s if newest else 0.0,
            took_s=newest.whole_at - newest.began if newest else 0.0,
            copies=copies,
        )

    def _occupied(self, rows: Mapping[int, list[VMRow]]) -> set[str]:
        return {
            node
            for operation in self._ledger.running_operations()
            if operation.kind in _GO_FIRST
            for vm in rows.get(operation.job_id, [])
            for node in (vm.host, vm.destination)
        } - {""}

    def _begin(self, seen: Observation, job_id: int, vms: Collection[VMRow]) -> None:
        ledger = self._ledger
        with ledger.transaction():
            operation = self._executor.intend(job_id, OperationKind.CHECKPOINT, "a checkpoint is due")
            files = [CheckpointVM(vm.name, ()) for vm in vms]
            ledger.checkpoints.intend(job_id, files, self._targets(seen))
        self._executor.submit(operation)

    def _targets(self, seen: Observation) -> list[str]:
        """Nodes that may get copies, or that see the shared storage; nodes with fewest copies first."""
        ledger = self._ledger
        shut = leaving_nodes(self._settings, seen).keys() | ledger.nodes.gone().keys()
        shut |= ledger.failures.resting().get("copy", frozenset())
        have = Counter(node for each in ledger.checkpoints.newest().values() for vm in each.vms for node in vm.nodes)
        answering = [node for node in seen.vms if node not in shut and node in seen.rms.nodes]
        return sorted(answering, key=lambda node: (have[node], node))[:_TARGETS]


def _runs(seen: Observation, vm: VMRow) -> bool:
    found = seen.vms.get(vm.host, {}).get(vm.name)
    return found is not None and found.power is VMPower.RUNNING
