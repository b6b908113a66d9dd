"""A ledger that was restored from a backup: what sleeps since then is touched by nobody, offered, and taken over."""

from __future__ import annotations

import time

import pytest
from e2e.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_LEDGER = "/var/lib/rmsplugin/ledger.sqlite"
_STATE = "/var/spool/slurm/ctld"
_COUNT = "#!/bin/sh\necho started >> started.$SLURM_JOB_ID\nfor number in $(seq 40); do echo $number; sleep 1; done\n"


def test_vjob_that_was_suspended_since_the_backup_is_taken_over(cluster: Cluster) -> None:
    job = cluster.sbatch(_COUNT)
    cluster.wait_output(job, r"^4$", timeout_s=240)
    cluster.ok("rm", "-f", "/tmp/backup.sqlite")
    cluster.ok("rmsplugin", "ledger", "backup", "/tmp/backup.sqlite")
    assert cluster.plugin("suspend", str(job)).code == 0
    cluster.wait_job(job, "SUSPENDED")
    cluster.kill("head", "engine")
    cluster.ok("sh", "-c", f"rm -f {_LEDGER}* && install -o slurm -m 600 /tmp/backup.sqlite {_LEDGER}")
    cluster.restart_engine()
    for _ in range(3):
        refused = cluster.plugin("suspend", str(job))
        assert refused.code != 0, refused
        time.sleep(3)
    cluster.wait("the offer", lambda: "saved states" in cluster.plugin("confirm").out, 60)
    assert "see `rmsplugin confirm`" in cluster.plugin("suspend", str(job)).err
    assert cluster.vjob(job)["state"] == "running"  # type: ignore[index]
    assert cluster.plugin("confirm", "--yes", str(job)).code == 0
    fields = cluster.wait_job(job, timeout_s=240)
    assert (fields["JobState"], fields["Restarts"]) == ("COMPLETED", "0"), cluster.describe(job)
    assert cluster.lines(job) == [str(number) for number in range(1, 41)]
    assert (cluster.home() / f"started.{job}").read_text() == "started\n"
    assert "taken-over" in cluster.events(job)


def test_new_job_with_the_id_of_a_sleeping_vjob_is_held_and_says_so(cluster: Cluster) -> None:
    """An older StateSaveLocation is restored: Slurm does not know the job any more, and gives its id out again."""
    assert cluster.manage("stop", "head", "slurmctld").code == 0
    cluster.ok("sh", "-c", f"rm -rf {_STATE}.before && cp -a {_STATE} {_STATE}.before")
    cluster.start("head", "slurmctld")
    cluster.wait("slurmctld", lambda: "UP" in cluster.run("scontrol", "ping").out, 60)
    job = cluster.sbatch(_COUNT)
    cluster.wait_output(job, r"^4$", timeout_s=240)
    assert cluster.plugin("suspend", str(job)).code == 0
    saved = cluster.vjob(job)
    assert saved is not None
    assert saved["state"] == "sleeping"
    assert cluster.manage("stop", "head", "slurmctld").code == 0
    cluster.ok("sh", "-c", f"rm -rf {_STATE} && mv {_STATE}.before {_STATE}")
    cluster.start("head", "slurmctld")
    cluster.wait("slurmctld", lambda: "UP" in cluster.run("scontrol", "ping").out, 60)
    assert cluster.sbatch("#!/bin/sh\necho this is another one\n", "--output=another") == job
    cluster.wait("the hold", lambda: "JobHeld" in cluster.job(job)["Reason"], 60, lambda: cluster.describe(job))
    assert "its id is that of an earlier job" in cluster.events(job)
    cluster.wait("what is held back", lambda: str(job) in cluster.plugin("confirm").out, 60)
    refused = cluster.plugin("resume", str(job))
    assert refused.code != 0, refused
    vjob = cluster.vjob(job)
    assert vjob is not None
    assert (vjob["state"], vjob["vms"]) == ("sleeping", saved["vms"]), "the old one is as it was"
    assert not (cluster.home() / "another").exists()
    assert cluster.plugin("confirm", "--yes", str(job)).code == 0
    cluster.wait("the old one's end", lambda: (cluster.vjob(job) or vjob)["state"] != "sleeping", 60)
    cluster.ok("scontrol", "release", str(job))
    cluster.wait_job(job, "COMPLETED", timeout_s=240)
    assert (cluster.home() / "another").read_text() == "this is another one\n"
    assert (cluster.home() / f"started.{job}").read_text() == "started\n", "the old script did not run again"
