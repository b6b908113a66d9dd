"""Suspend, resume elsewhere, migrate live, requeue: nothing is lost (issue 2, 6.3 and 6.6)."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from e2e.cluster import Cluster
from e2e.queued import WHOLE, wait_rooms
from e2e.rooms import count, finish, wait_number

pytestmark = pytest.mark.e2e


def numbers(text: str) -> list[int]:
    return [int(line) for line in text.splitlines() if re.fullmatch(r"\d+", line)]


def seconds(elapsed: str) -> int:
    """Slurm's [DD-]HH:MM:SS."""
    parts = re.split(r"[-:]", elapsed)
    return sum(int(part) * unit for part, unit in zip(reversed(parts), (1, 60, 3600, 86400), strict=False))


def test_a_counter_survives_suspend_resume_elsewhere_and_live_migration(cluster: Cluster) -> None:
    # Each VM takes all CPUs of a node, so that the second job can only run in the room of the first.
    job = count(cluster, *WHOLE)
    wait_number(cluster, job, 3)
    home_node = cluster.vjob(job)["nodes"][0]

    assert cluster.plugin("suspend", str(job)).code == 0
    assert cluster.job(job)["JobState"] == "SUSPENDED"
    assert cluster.qemus(job) == []
    state = cluster.host_path(home_node, f"/var/lib/rmsplugin/store/vjob{job}-0.state")
    assert state.stat().st_size > 10 << 20
    assert state.stat().st_mode & 0o077 == 0
    slept_from = time.time()
    printed = numbers(cluster.output(job))

    others = [cluster.sbatch("#!/bin/sh\nhostname; sleep 3\n", *WHOLE, "-w", node) for node in cluster.nodes]
    for other in others:
        assert cluster.wait_job(other, timeout_s=180)["JobState"] == "COMPLETED"
        cluster.wait_gone(other)
    ran_on = {node for other in others for node in re.findall(r"starts on (n\d)", cluster.events(other))}
    assert home_node in ran_on, "another job ran in the room of the sleeping one"
    assert numbers(cluster.output(job)) == printed, "nothing is printed while it sleeps"

    wait_rooms(cluster)
    cluster.wait_nodes()
    target = next(node for node in cluster.nodes if node != home_node)
    resumed = cluster.plugin("resume", str(job), "--to", target)
    assert resumed.code == 0, resumed.err
    slept_s = time.time() - slept_from
    assert cluster.qemus(job) == [target]
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert not state.exists()

    third = next(node for node in cluster.nodes if node not in (home_node, target))
    cluster.wait_nodes()
    migrated = cluster.plugin("migrate", str(job), "--to", third)
    assert migrated.code == 0, migrated.err
    assert cluster.qemus(job) == [third]

    wait_number(cluster, job, 2)
    finish(cluster, job)
    [row] = cluster.accounted(job, "Elapsed,Suspended,Start")
    between = datetime.fromisoformat(row["End"]) - datetime.fromisoformat(row["Start"])
    assert seconds(row["Suspended"]) >= slept_s - 5
    assert abs(seconds(row["Elapsed"]) + seconds(row["Suspended"]) - between.total_seconds()) <= 1
    cluster.wait_gone(job)


def test_the_clock_of_a_resumed_guest_is_right(cluster: Cluster) -> None:
    job = cluster.sbatch("#!/bin/sh\nwhile :; do date +%s; sleep 1; done\n")
    cluster.wait_output(job, r"^\d{10}$")
    assert cluster.plugin("suspend", str(job)).code == 0
    time.sleep(10)
    before = len(cluster.output(job).splitlines())
    assert cluster.plugin("resume", str(job)).code == 0

    def is_right() -> bool:
        """What was just printed is; a loaded machine may deliver a line late, but never before its time."""
        lines = cluster.output(job).splitlines()
        return len(lines) > before + 3 and abs(int(lines[-1]) - time.time()) < 5

    cluster.wait("a clock that is right", is_right, 30, lambda: (time.time(), cluster.output(job)[-100:]))


@pytest.mark.parametrize("sleeping", [False, True], ids=["running", "sleeping"])
def test_requeue_loses_nothing(cluster: Cluster, sleeping: bool) -> None:
    job = count(cluster)
    wait_number(cluster, job, 4)
    if sleeping:
        assert cluster.plugin("suspend", str(job)).code == 0
    cluster.ok("scontrol", "requeue", str(job))
    if sleeping:
        cluster.wait_job(job, "PENDING")
        cluster.wait("completing to end", lambda: "COMPLETING" not in cluster.ok("squeue", "-h", "-o", "%T"), 60)
        resumed = cluster.plugin("resume", str(job))
        assert resumed.code == 0, resumed.err

    def runs_again() -> bool:
        fields = cluster.job(job)
        return (fields["JobState"], fields["Restarts"]) == ("RUNNING", "1")

    cluster.wait(f"job {job} to run again", runs_again, 180, lambda: cluster.describe(job))
    wait_number(cluster, job, 2)
    finish(cluster, job)
    fields = cluster.job(job)
    assert (fields["JobState"], fields["Restarts"]) == ("COMPLETED", "1"), cluster.describe(job)


HOLDS_A_LOCK = """#!/bin/bash
exec 9>>lock
flock -n 9 || exit 1
echo held
until [ -e let-go ]; do
    echo still >&9 || exit 2
    sleep 0.3
done
flock -u 9
echo free
until [ -e end ]; do sleep 0.3; done
"""
_TAKE = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_a_lock_holds_against_vms_and_nodes_while_its_vm_sleeps_wakes_elsewhere_and_moves(cluster: Cluster) -> None:
    lock = cluster.home() / "lock"

    def is_refused() -> bool:
        """A host of the cluster, which has the file without NFS."""
        tried = cluster.run("python3", "-c", _TAKE, "/home/alice/lock", user="alice")
        assert tried.code == 0 or "BlockingIOError" in tried.err, tried.err
        return tried.code != 0

    def is_refused_in_a_vm() -> bool:
        other = cluster.sbatch("#!/bin/bash\nflock -n lock echo got || echo refused\n")
        assert cluster.wait_job(other)["JobState"] in ("COMPLETED", "FAILED")
        return cluster.lines(other) == ["refused"]

    for name in ("lock", "let-go", "end"):
        (cluster.home() / name).unlink(missing_ok=True)
    job = cluster.sbatch(HOLDS_A_LOCK)
    cluster.wait_output(job, "^held$")
    assert is_refused()
    wait_rooms(cluster)
    born = cluster.vjob(job)["nodes"][0]
    second, third = [node for node in cluster.nodes if node != born][:2]
    assert cluster.plugin("suspend", str(job)).code == 0
    assert is_refused() and is_refused_in_a_vm()
    resumed = cluster.plugin("resume", str(job), "--to", second)
    assert resumed.code == 0, resumed.err
    written = lock.stat().st_size
    cluster.wait("something that is written under the lock", lambda: lock.stat().st_size > written, 30)
    migrated = cluster.plugin("migrate", str(job), "--to", third)
    assert migrated.code == 0, migrated.err
    written = lock.stat().st_size
    cluster.wait("something that is written under the lock", lambda: lock.stat().st_size > written, 30)
    assert is_refused() and is_refused_in_a_vm()
    (cluster.home() / "let-go").touch()
    cluster.wait_output(job, "^free$")
    assert not is_refused() and not is_refused_in_a_vm()
    (cluster.home() / "end").touch()
    assert cluster.wait_job(job)["JobState"] == "COMPLETED", cluster.describe(job)


def test_a_file_that_is_removed_on_a_host_and_written_again_in_a_vm_is_seen_by_both(cluster: Cluster) -> None:
    (cluster.home() / "again").write_text("before\n")
    job = cluster.sbatch(
        '#!/bin/bash\ntrap told=1 USR1\ncat again\nuntil [ "$told" ]; do sleep 0.2; done\necho after >again\n'
    )
    cluster.wait_output(job, "^before$")
    (cluster.home() / "again").unlink()
    # Not by a file: that would have the VM look at the directory again.
    cluster.ok("scancel", "--signal=USR1", "--batch", str(job), user="alice")
    assert cluster.wait_job(job)["JobState"] == "COMPLETED", cluster.describe(job)
    assert cluster.ok("cat", "/home/alice/again") == "after\n"


#: Says how many CPUs each VM has, counts until it is told to end, and says so again.
UNEVEN = """#!/bin/sh
trap 'enough=1' USR1
sizes() { srun -N 2 -n 2 --ntasks-per-node=1 -l nproc | sort; srun -l hostname | sort; }
sizes
i=0
while [ -z "$enough" ]; do i=$((i + 1)); echo $i; sleep 1; done
sizes
"""


@pytest.mark.long
def test_vms_of_uneven_tasks_are_suspended_resumed_and_moved_each_in_its_size(cluster: Cluster) -> None:
    """Three tasks on two VMs: one of them has a node for itself, the other one half of a node."""
    wait_rooms(cluster)
    job = cluster.sbatch(UNEVEN, "-N", "2", "-n", "3", "--mem=96")
    large, small = (f"vjob{job}-{index}" for index in range(2))

    def places() -> dict[str, str]:
        answer = cluster.ask("/v1/vms")
        assert answer is not None
        return {vm["name"]: vm["node"] for vm in answer["vms"] if vm["name"] in (large, small)}

    def cpus() -> dict[str, int]:
        found = {name: cluster.ok("virsh", "domstats", "--vcpu", name, host=node) for name, node in places().items()}
        return {
            name: int(match[1]) for name, text in found.items() if (match := re.search(r"vcpu.current=(\d+)", text))
        }

    wait_number(cluster, job, 2, timeout_s=300)
    sizes = {large: 2, small: 1}
    assert cpus() == sizes
    assert cluster.plugin("suspend", str(job)).code == 0
    assert cluster.qemus(job) == []
    resumed = cluster.plugin("resume", str(job))
    assert resumed.code == 0, resumed.err
    assert cpus() == sizes
    wait_number(cluster, job, 2)
    for name in (large, small):
        free = next(node for node in cluster.nodes if node not in places().values())
        moved = cluster.plugin("migrate", str(job), "--vm", name, "--to", free)
        assert moved.code == 0, moved.err
        assert places()[name] == free
        assert cpus() == sizes
    assert cluster.plugin("suspend", str(job)).code == 0
    elsewhere = cluster.plugin("resume", str(job))
    assert elsewhere.code == 0, elsewhere.err
    assert cpus() == sizes
    wait_number(cluster, job, 2)
    cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    assert cluster.wait_job(job)["JobState"] == "COMPLETED", cluster.describe(job)
    said = ["0: 2", "1: 1", f"0: {large}", f"1: {large}", f"2: {small}"]
    counted = numbers(cluster.output(job))
    assert counted == list(range(1, len(counted) + 1))
    assert cluster.lines(job) == [*said, *map(str, counted), *said]
    assert "cpu=3," in cluster.accounted(job, "AllocTRES")[0]["AllocTRES"] + ","
    cluster.wait_gone(job)
