"""A job whose VM dies goes on from its checkpoint, and its output is whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured

pytestmark = pytest.mark.e2e

INTERVAL_S = 20  # a checkpoint takes up to ten on a loaded machine, and there has to be a pause before the next
SCRIPT = """#!/bin/sh
echo started >> started.$SLURM_JOB_ID
i=0
until [ -e enough ]; do i=$((i + 1)); echo $i; sleep 0.5; done
"""


@pytest.fixture
def checkpoints(cluster: Cluster) -> Iterator[None]:
    """Vjobs of partition urgent are checkpointed now and then."""
    with configured(cluster, "partition.urgent", f"checkpoint_interval_s = {INTERVAL_S}"):
        yield


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.timeout(900)
def test_a_job_whose_vms_are_killed_goes_on_from_its_checkpoint_and_prints_nothing_twice(cluster: Cluster) -> None:
    enough = cluster.home() / "enough"
    enough.unlink(missing_ok=True)
    job = cluster.sbatch(SCRIPT, "-p", "urgent", "--ntasks=2", "--ntasks-per-node=1")

    def numbers() -> list[int]:
        return [int(line) for line in cluster.output(job).splitlines() if line.isdecimal()]

    def is_(**told: object) -> bool:
        """Whether the engine answers, and says so of the vjob."""
        vjob = cluster.vjob(job)
        return vjob is not None and {key: vjob[key] for key in told} == told

    def has_checkpoint() -> dict[str, object] | None:
        vjob = cluster.vjob(job)
        return vjob["checkpoint"] if vjob else None

    cluster.wait_vjob(job, "running", timeout_s=150)
    found = cluster.wait("a checkpoint", has_checkpoint, 120, lambda: cluster.describe(job))
    assert len(found["nodes"]) >= 2, "one of its own and one of another node"  # type: ignore[arg-type]
    before = len(numbers())
    cluster.wait("output after the checkpoint", lambda: len(numbers()) > before + 3, 60, lambda: cluster.describe(job))
    victim = cluster.qemus(job)[0]
    # Not while the next checkpoint is being made: scenarios kill at any instant, this is about what becomes of the job.
    cluster.wait("the pause between two checkpoints", lambda: is_(operation=None), 60)
    pids = cluster.ok("pgrep", "-f", f"guest=vjob{job}-", host=victim).split()
    cluster.ok("kill", "-KILL", *pids, host=victim)
    seen = len(numbers())
    cluster.wait("its return", lambda: is_(returns=1), 120, lambda: cluster.describe(job))
    cluster.wait("more than it had printed", lambda: len(numbers()) > seen, 120, lambda: cluster.describe(job))
    enough.touch()
    fields = cluster.wait_job(job, timeout_s=300)
    assert fields["JobState"] == "COMPLETED", cluster.describe(job)
    assert numbers() == list(range(1, len(numbers()) + 1)), cluster.output(job)
    assert (cluster.home() / f"started.{job}").read_text() == "started\n"
    assert "rmsplugin: it goes on from its checkpoint of " in cluster.output(job)
    vjob = cluster.vjob(job)
    assert vjob is not None
    assert (vjob["losses"], vjob["returns"]) == (0, 1)
    assert vjob["repeated_s"] > 1
    cluster.wait_gone(job)
