"""A ledger in which jobs live as they are told to, written by the ledger's own code, and a settings file beside it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from fresh_ledger import laid_down

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, Plan, PlanState, VJobRow, VMRow
from rmsplugin.engine.ledger.samples import Sample
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.proposing.steps import PlannedStep

#: A Monday, noon, in UTC and in most places.
NOON = 1_762_171_200.0

SETTINGS = """
[engine]
state_dir = "{state}"
socket = "{directory}/engine.sock"
[slurm]
partitions = ["vjob", "vlong"]
bin_dir = "{directory}"
[partition.vjob]
hosts = "vmhosts"
[partition.vlong]
hosts = "vmhosts"
[network]
pool = "10.0.0.10-10.0.0.20"
prefix_length = 24
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
"""

K, S = OperationKind, VJobState

UIDS = {"alice": 2001, "bob": 2002}


def write_settings(path: Path, state: Path) -> None:
    """Settings of a site whose ledger is in ``state``; Slurm's commands and the engine's socket are beside the file."""
    path.write_text(SETTINGS.format(directory=path.parent, state=state))


class Told:
    """A ledger whose clock stands at ``now`` until it is moved."""

    def __init__(self, directory: Path) -> None:
        self.now = NOON
        self.bytes = 100  # that each action moves
        self.path = directory / "ledger.sqlite"
        self.ledger = Ledger(laid_down(self.path), clock=lambda: self.now)
        self.settings = directory / "rmsplugin.toml"
        write_settings(self.settings, directory)

    def at(self, seconds: float) -> Told:
        """Go to so many seconds after NOON."""
        self.now = NOON + seconds
        return self

    def submit(self, job_id: int, *, user: str = "alice", partition: str = "vjob", vms: int = 1, cpus: int = 1,
               memory_mib: int = 512, name: str = "", small: tuple[int, int] = (0, 0), wishes: Collection[str] = (),
               switches: int = 0) -> int:  # fmt: skip
        """A job is submitted now, and seen at once; ``small``: CPUs and MiB of all its VMs but the first one."""
        ntasks = vms + 1 if any(small) else 1
        sizes = {"small_cpus": small[0], "small_memory_mib": small[1]}
        geometry = Geometry(vms, cpus, memory_mib, ntasks, **sizes, wishes=frozenset(wishes), switches=switches)
        self.ledger.add_vjob(
            VJobRow(
                *(job_id, name or str(job_id), user, UIDS.get(user, 2099), partition, geometry, S.WAITING, "new"),
                *(self.now, self.now),
            )
        )
        rows = [
            VMRow(
                vm_name(job_id, index),
                job_id,
                index,
                f"u{index}",
                "m",
                "a",
                "n1",
                memory_mib=geometry.memory_mib_of(index),
            )
            for index in range(vms)
        ]
        self.ledger.set_vms(job_id, rows)
        return job_id

    def start(self, job_id: int, *nodes: str, seconds: float = 10, error: str = "") -> None:
        """It is started, which takes so long; its VMs are on these nodes."""
        after = S.WAITING if error else S.RUNNING
        self._operation(job_id, K.START, S.STARTING, after, "run", seconds, nodes, error)

    def suspend(self, job_id: int, seconds: float = 20, error: str = "") -> None:
        before = S.PAUSED if self.ledger.vjob(job_id).state is S.PAUSED else S.RUNNING
        after = before if error else S.SLEEPING
        self._operation(job_id, K.SUSPEND, S.SUSPENDING, after, "suspend", seconds, error=error)

    def pause(self, job_id: int, seconds: float = 1, error: str = "") -> None:
        self._operation(job_id, K.PAUSE, S.PAUSING, S.RUNNING if error else S.PAUSED, "pause", seconds, error=error)

    def unpause(self, job_id: int, *nodes: str, seconds: float = 1, error: str = "") -> None:
        after = S.PAUSED if error else S.RUNNING
        self._operation(job_id, K.UNPAUSE, S.UNPAUSING, after, "unpause", seconds, nodes, error)

    def resume(self, job_id: int, *nodes: str, seconds: float = 30, error: str = "") -> None:
        self._operation(
            job_id, K.RESUME, S.RESUMING, S.SLEEPING if error else S.RUNNING, "resume", seconds, nodes, error
        )

    def migrate(self, job_id: int, vm: int, node: str, seconds: float = 5) -> None:
        operation = self.ledger.begin_operation(job_id, K.MIGRATE, "engine")
        self._action(operation.id, "migrate", vm_name(job_id, vm), node, seconds)
        self.now += seconds
        self.ledger.end_operation(operation.id)

    def lose(self, job_id: int, *, back: bool = False, seconds: float = 15) -> None:
        """Its state is lost: it begins anew, or goes back to a checkpoint."""
        operation = self.ledger.begin_operation(job_id, K.RESTART, "engine")
        self.ledger.transition(job_id, S.STOPPING, "lost")
        self.now += seconds
        changes = {"returns": 1} if back else {"losses": 1}
        self.ledger.transition(job_id, S.SLEEPING if back else S.WAITING, "again", **changes)
        self.ledger.end_operation(operation.id)

    def end(self, job_id: int, seconds: float = 3) -> None:
        """It ends, and is cleaned up."""
        self._operation(job_id, K.STOP, S.STOPPING, S.TERMINATED, "stop", seconds)

    def cancel_waiting(self, job_id: int) -> None:
        self.ledger.transition(job_id, S.TERMINATED, "cancelled in the queue")

    def demand(self, job_id: int, vm: int, centi_cpus: int) -> None:
        """A VM is seen to demand so much."""
        row = self.ledger.vms(job_id)[vm]
        sample = Sample(row.name, self.now, centi_cpus, None)
        self.ledger.samples.record([(self.ledger.vjob(job_id), row, sample)])

    def switch(self, job_ids: Sequence[int], kind: OperationKind, cost_mib: int, seconds: float) -> None:
        """A context switch that does the same to each of these."""
        plan = Plan(0, self.now, "live", "a sentence", "", cost_mib, cost_mib, 1.0, 0.1, PlanState.RUNNING, "", 0.0)
        number = self.ledger.plans.add(plan, [PlannedStep(str(job_id), kind, {}, ()) for job_id in job_ids])
        self.now += seconds
        self.ledger.plans.end(number, PlanState.DONE)

    def _operation(
        self,
        job_id: int,
        kind: OperationKind,
        during: VJobState,
        after: VJobState,
        action: str,
        seconds: float,
        nodes: Sequence[str] = (),
        error: str = "",
    ) -> None:
        with self.ledger.transaction():
            operation = self.ledger.begin_operation(job_id, kind, "engine")
            self.ledger.transition(job_id, during, "why")
        for index, vm in enumerate(self.ledger.vms(job_id)):
            self._action(operation.id, action, vm.name, nodes[index] if nodes else "", seconds, error)
        self.now += seconds
        self.ledger.transition(job_id, after, "because")
        self.ledger.end_operation(operation.id, error)

    def _action(self, operation: int, kind: str, vm: str, node: str, seconds: float, error: str = "") -> None:
        action = self.ledger.begin_action(operation, kind, vm, "", node)
        self.now += seconds
        self.ledger.action_progress(action, self.bytes, self.bytes)
        self.ledger.end_action(action, error)
        self.now -= seconds
