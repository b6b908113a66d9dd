"""A simulated Slurm and the real engine on it, where vjobs are plain jobs: no VMs, guests, node agents and rooms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios.neighbours import Neighbours
from scenarios.world import Life, Mortal, World

from rmsplugin.adapters.absent import Absent
from rmsplugin.adapters.platform.native.platform import NativePlatform
from rmsplugin.adapters.rms.base import JobState, RmsNode, RmsPartition
from rmsplugin.adapters.simulated.power import SimulatedPower
from rmsplugin.adapters.simulated.rms.job import SimulatedJob
from rmsplugin.adapters.simulated.rms.slurm import SimulatedRms
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import IllegalTransitionError, VJobState
from rmsplugin.settings import Settings

NODES = {"n1": (2, 1000), "n2": (2, 1000)}
PARTITIONS = ("batch", "urgent")
S, K = VJobState, OperationKind


class NativeWorld(World):
    """The cluster; on the same nodes are `batch`, `urgent` of a higher tier, and `plain`, which has no vjobs."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: Mapping[str, tuple[int, int]] = NODES,
        policy: str = "rjsp",
        configuring_s: float = 0.0,
    ) -> None:
        """Make it; ``nodes``: CPUs and MiB by name. ``configuring_s``: how long Slurm prepares the nodes of a job."""
        self.sizes, self.workers = dict(nodes), 8
        self.settings = Settings.model_validate(
            {
                "engine": {"user": "root"},
                "slurm": {"partitions": PARTITIONS},
                "partition": {"urgent": {"hosts": "batch"}},
                "hypervisor": {"platform": "native"},
                "decision": {"policy": policy},
            }
        )
        self.time, self.jumped_s = 1_000_000.0, 0.0
        self._time_lock = threading.Lock()
        self._ledger_path = directory / "ledger.sqlite"
        names = tuple(self.sizes)
        self.rms = SimulatedRms(
            self.wall,
            [RmsNode(name, *size, True, False, "IDLE") for name, size in self.sizes.items()],
            [
                RmsPartition("batch", True, names, "REQUEUE", 1, 0),
                RmsPartition("urgent", True, names, "REQUEUE", 5, 0),
                RmsPartition("plain", True, names, "OFF", 1, 0),
            ],
            vjob_partitions=PARTITIONS,
            configuring_s=configuring_s,
            user="root",
        )
        self.nodes: Any = Absent("node agents")
        self.guests: Any = Absent("guests")
        self.power = SimulatedPower(self.sizes, clock=self.wall)
        self.hypervisor: Any = NativePlatform(self.rms, PARTITIONS)
        self.neighbours = Neighbours(self.hypervisor, lambda: self.time)
        self.settled, self.wrappers_answer = 0, False
        self._wakes = threading.Event()
        self.books: list[str] = []  # what was wrong with Slurm's books at any time
        self.on_wait: Callable[[], None] = lambda: None  # called when an operation lets time pass
        self.life = Life(None)
        self.start_engine()

    def platform(self, life: Life) -> Any:
        """See ``World``: each of its requests to Slurm is an instant."""
        return NativePlatform(Mortal("rms", self.rms, life, self.neighbours), PARTITIONS)  # type: ignore[arg-type]

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self.on_wait()
        return super()._wait(event, seconds)

    def settle(self, *vms: str) -> None:
        """See ``World``: nothing goes on without the engine."""

    def pass_time(self, seconds: float) -> None:
        """See ``World``; looks into Slurm's books, too."""
        super().pass_time(seconds)
        self.books += wrong_in_books(self)

    def submit(self, nodes: int = 1, cpus: int = 2, memory_mib: int = 300, **options: Any) -> int:  # type: ignore[override]
        """A job of so many nodes, with as many CPUs and as much memory on each."""
        size = {"node_count": nodes, "cpus": nodes * cpus, "memory_mib": nodes * memory_mib}
        return self.rms.submit(**{"partition": "batch", "user": "nobody", "uid": 65534, **size, **options})

    def urgent(self, **options: Any) -> int:
        """The same of the higher tier."""
        return self.submit(**{"partition": "urgent", **options})

    def running(self, **options: Any) -> int:
        """A job that runs; options as of ``submit``."""
        job = self.submit(**options)
        self.until(job, S.RUNNING)
        return job

    def paused(self, **options: Any) -> int:
        """A job that was paused by hand of an operator, and waits for its turn."""
        job = self.running(**options)
        self.ask(job, K.PAUSE)
        self.until(job, S.PAUSED)
        return job

    def ask(self, job: int, kind: OperationKind, to: str = "") -> None:
        """As an operator: what is refused is refused."""
        seen, vjob = self.cycle.seen, self.context.ledger.vjob(job)
        assert seen is not None

        def begin() -> None:
            try:
                if kind is K.PAUSE:
                    self.executor.begin(job, kind, "asked", resumes=True)
                else:
                    self.placing.unpause(seen, vjob, "asked", "root")
            except (RefusedError, IllegalTransitionError):
                return

        self.alive(begin)

    def slurm(self, job: int) -> JobState:
        """Slurm's state of the job."""
        return self.rms.job(job).state

    def hosts(self, job: int) -> list[str]:
        """The nodes of the job by the ledger."""
        return [vm.host for vm in self.context.ledger.vms(job)]


def wrong_in_books(world: NativeWorld) -> list[str]:
    """What is wrong in Slurm's books: jobs on CPUs of others, or more of a node than there is."""
    found = []
    with world.rms._lock:
        jobs = list(world.rms._jobs.values())
        for name, (cpus, memory_mib) in world.sizes.items():
            there = [job for job in jobs if name in job.nodes and job.under_way]
            computing = [job for job in there if job.state is not JobState.SUSPENDED]
            used = sum(job.request.cpus_each for job in computing)
            if used > cpus or any(job.shares for job in computing):
                found.append(f"{name}: {_named(computing)} compute on {used} of {cpus} CPUs")
            if sum(job.request.memory_mib_each for job in there) > memory_mib:
                found.append(f"{name}: {_named(there)} have more memory than there is")
    return found


def _named(jobs: list[SimulatedJob]) -> str:
    return ", ".join(job.display_id for job in jobs)
