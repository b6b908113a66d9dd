"""The world fails while the engine decides: daemons, nodes and VMs go, and nothing is lost or run twice (issue 8)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import WHOLE, nothing_left, wait_rooms
from e2e.rooms import Machine, count, finish, host_of, last_number, ledger, native, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

#: What a node answers by.
DAEMONS = ("libvirtd", "sshd", "slurmd")

#: Seconds between cycles that nothing has started: more than anything here is waited for.
NO_CYCLE_S = 900


def tell(cluster: Cluster, node: str, name: str) -> None:
    """Send a signal to all daemons by which the node answers."""
    for daemon in DAEMONS:
        result = cluster.manage("kill", node, daemon, "--signal", name)
        assert result.code == 0, result.err


def node_state(cluster: Cluster, node: str) -> str:
    """What ``rmsplugin nodes`` says of it; empty while the engine does not answer."""
    found = (cluster.ask("/v1/nodes") or {"nodes": []})["nodes"]
    return next((str(each["state"]) for each in found if each["name"] == node), "")


def wait_node(cluster: Cluster, node: str, *, answers: bool) -> None:
    """Wait until the engine sees that the node does not answer, or that it does."""

    def there() -> bool:
        state = node_state(cluster, node)
        return bool(state) and (state not in ("unreachable", "gone")) is answers

    what = f"{node} to answer" if answers else f"{node} to be unreachable"
    cluster.wait(what, there, 180, lambda: node_state(cluster, node))


def wait_losses(cluster: Cluster, job: int, losses: int) -> None:
    """Wait until the vjob has begun again so many times."""

    def there() -> bool:
        return ledger(cluster, "select losses from vjobs where job_id = ?", job) == [(losses,)]

    cluster.wait(f"{losses} losses of {job}", there, 180, lambda: cluster.describe(job))


def unharmed(cluster: Cluster, job: int) -> None:
    """It counts on where it was."""
    vjob = cluster.vjob(job)
    assert vjob is not None and (vjob["state"], vjob["losses"]) == ("running", 0)
    wait_number(cluster, job, 2)


def end_vms(cluster: Cluster, job: int, node: str) -> None:
    """End the vjob's QEMU on the node as a power failure would: nobody there is asked."""
    for pid, words in Machine(cluster).processes(node).items():
        if words and "qemu-system" in words[0] and any(f"guest=vjob{job}-" in word for word in words):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def fencing(cluster: Cluster) -> Iterator[Path]:
    """The engine has a program that cuts the power of nodes; yields the file in which it notes what it is told."""
    program, notes = (cluster.host_path("head", f"/etc/rmsplugin/{name}") for name in ("fence", "fenced"))
    program.write_text('#!/bin/sh\necho "$@" >>/etc/rmsplugin/fenced\n')
    program.chmod(0o755)
    notes.write_text("")
    notes.chmod(0o666)
    with configured(cluster, "nodes", 'fence = ["/etc/rmsplugin/fence", "--plug={node}", "--action=off"]'):
        yield notes


def panic(cluster: Cluster, job: int) -> None:
    """Let the kernel of the vjob's guest panic."""
    ((address,),) = ledger(cluster, "select address from vms where job_id = ?", job)
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ServerAliveInterval=2")
    ssh = ("ssh", "-i", "/var/lib/rmsplugin/guest_root_key", *(word for each in options for word in ("-o", each)))
    # The guest has no time to answer.
    assert cluster.run(*ssh, f"root@{address}", "echo c >/proc/sysrq-trigger").code != 0


def test_vms_that_are_destroyed_or_panic_begin_again_and_a_libvirtd_restarted_in_a_migration_harms_nobody(
    cluster: Cluster,
) -> None:
    wait_rooms(cluster)
    dies, panics, moves = count(cluster), count(cluster), count(cluster)
    for job in (dies, panics, moves):
        wait_number(cluster, job, 2)
    cluster.ok("virsh", "destroy", f"vjob{dies}-0", host=host_of(cluster, dies))
    panic(cluster, panics)
    source = host_of(cluster, moves)
    cluster.ok("virsh", "migrate-setspeed", f"vjob{moves}-0", "8", host=source)
    cluster.plugin("migrate", str(moves), "--no-wait")
    cluster.wait_action(moves, "migrate")
    # Told to end, libvirtd finishes its migrations first; where that takes longer than 15 s, it is killed in one.
    assert cluster.manage("restart", source, "libvirtd").code == 0
    for job in (dies, panics):
        wait_losses(cluster, job, 1)
        assert "lost" in cluster.events(job)
    wait_node(cluster, source, answers=True)
    settled = "select count(*) from vms where job_id = ? and destination = ''"
    cluster.wait("its migration to end", lambda: ledger(cluster, settled, moves) == [(1,)], 120)
    assert cluster.qemus(moves) == [host_of(cluster, moves)], cluster.events(moves)
    unharmed(cluster, moves)
    finish(cluster, moves)
    for job in (dies, panics):
        wait_number(cluster, job, 1)
        finish(cluster, job, losses=1)
    nothing_left(cluster, [dies, panics, moves])


@pytest.mark.long
def test_a_vm_that_died_is_missed_at_once_however_far_apart_cycles_are(cluster: Cluster) -> None:
    wait_rooms(cluster)
    with configured(cluster, "engine", f"cycle_s = {NO_CYCLE_S}"):
        wait_rooms(cluster)
        job = count(cluster)
        wait_number(cluster, job, 2)
        end_vms(cluster, job, host_of(cluster, job))
        wait_losses(cluster, job, 1)
    wait_number(cluster, job, 1)
    finish(cluster, job, losses=1)
    nothing_left(cluster, [job])


def test_a_libvirtd_killed_at_the_very_end_of_a_migration_leaves_one_copy_that_runs(cluster: Cluster) -> None:
    wait_rooms(cluster)
    job = count(cluster)
    wait_number(cluster, job, 2)
    vm, source = f"vjob{job}-0", host_of(cluster, job)
    cluster.ok("virsh", "migrate-setspeed", vm, "8", host=source)
    cluster.plugin("migrate", str(job), "--no-wait")
    cluster.wait_action(job, "migrate")
    [[to]] = ledger(cluster, "select destination from vms where job_id = ?", job)

    def is_prepared() -> bool:
        return cluster.run("virsh", "domstate", "--reason", vm, host=to).out.strip() == "paused (migrating)"

    def is_sent() -> bool:
        # By what libvirtd keeps for its next start: one that is killed earlier has the VM run on at its source.
        kept = f"/run/libvirt/qemu/{vm}.xml"
        return "phase='perform3_done'" in cluster.run("cat", kept, host=source).out

    cluster.wait("its destination to be prepared", is_prepared, 60)
    # QEMU goes on; the libvirtd of the source waits for that of the destination to finish, and is killed then.
    assert cluster.manage("kill", to, "libvirtd", "--signal", "STOP").code == 0
    try:
        cluster.wait("its source to have sent all", is_sent, 120, every_s=0.05)
        cluster.kill(source, "libvirtd")
        assert sorted(cluster.qemus(job)) == sorted([source, to])
        cluster.start(source, "libvirtd")
    finally:
        assert cluster.manage("kill", to, "libvirtd", "--signal", "CONT").code == 0
    wait_node(cluster, source, answers=True)
    wait_node(cluster, to, answers=True)
    settled = "select count(*) from vms where job_id = ? and destination = ''"
    cluster.wait("its migration to end", lambda: ledger(cluster, settled, job) == [(1,)], 180)
    assert cluster.qemus(job) == [host_of(cluster, job)], cluster.events(job)
    # Whoever comes first has it run on where it was: the call that broke off, once the node answers, or the engine.
    unharmed(cluster, job)
    finish(cluster, job)
    nothing_left(cluster, [job])


def test_a_silent_node_costs_nothing_and_a_dead_one_a_new_start_once_its_power_is_off(cluster: Cluster) -> None:
    wait_rooms(cluster)
    job = count(cluster)
    wait_number(cluster, job, 2)
    node = host_of(cluster, job)
    with fencing(cluster) as notes:
        tell(cluster, node, "STOP")
        try:
            wait_node(cluster, node, answers=False)
            unharmed(cluster, job)
        finally:
            tell(cluster, node, "CONT")
        wait_node(cluster, node, answers=True)
        unharmed(cluster, job)
        assert cluster.qemus(job) == [node]

        tell(cluster, node, "KILL")
        end_vms(cluster, job, node)
        try:
            wait_node(cluster, node, answers=False)
            asked = cluster.plugin("node", "fence", node)
            assert str(job) in asked.out + asked.err, "whose vjobs would begin again"
            assert (cluster.vjob(job) or {})["losses"] == 0
            assert notes.read_text() == "", "nothing was done without --yes"
            assert cluster.plugin("node", "fence", node, "--yes").code == 0
            assert notes.read_text() == f"--plug={node} --action=off\n"
            assert node_state(cluster, node) == "gone"
            wait_losses(cluster, job, 1)
            cluster.wait_vjob(job, "running", timeout_s=180)
            assert host_of(cluster, job) != node
        finally:
            for daemon in DAEMONS:
                cluster.start(node, daemon)
        assert cluster.plugin("node", "back", node).code == 0
        wait_node(cluster, node, answers=True)
    wait_number(cluster, job, 1)
    finish(cluster, job, losses=1)
    cluster.wait_nodes()
    wait_rooms(cluster)
    nothing_left(cluster, [job])


def wait_associations_saved(cluster: Cluster) -> None:
    """Wait until slurmctld has saved its users and accounts, which it does every five minutes and when it ends.

    Without them it does not start as long as slurmdbd is down, from Slurm 24.11 on.
    """
    state = cluster.host_path("head", "/var/spool/slurm/ctld/assoc_mgr_state")
    if state.exists():
        return

    def answers() -> bool:
        return cluster.run("scontrol", "ping").code == 0

    def starts() -> bool:
        cluster.start("head", "slurmctld")  # one that has not ended yet is left alone
        return answers()

    assert cluster.manage("kill", "head", "slurmctld", "--signal", "TERM").code == 0
    cluster.wait("slurmctld to end", lambda: state.exists() and not answers(), 60)
    cluster.wait("slurmctld to start", starts, 60)


def accounted(cluster: Cluster, job: int) -> str:
    """How a job stands in accounting; empty while accounting does not know it."""
    return cluster.run("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "State").out.strip()


def slurm_release(cluster: Cluster) -> tuple[int, ...]:
    """Year and month of the Slurm that runs."""
    return tuple(int(word) for word in re.findall(r"\d+", cluster.ok("scontrol", "--version"))[:2])


def undelivered(cluster: Cluster) -> str:
    """What slurmctld has not told slurmdbd yet."""
    return "".join(line for line in cluster.run("sdiag").out.splitlines(True) if "DBD" in line)


def test_a_front_is_not_drained_when_slurmctld_forgets_that_it_has_started_a_vjob_there(cluster: Cluster) -> None:
    """It is killed before it saves the start. Started at once again, the job would meet its first wrapper there."""
    wait_rooms(cluster)
    wait_associations_saved(cluster)
    job = count(cluster, "--begin=now+15", "--job-name=forgotten")
    cluster.wait_saved("forgotten")
    states = [cluster.host_path("head", f"/var/spool/slurm/ctld/job_state{end}") for end in ("", ".old")]
    saved = states[0].read_bytes()
    assert cluster.job(job)["JobState"] == "PENDING", "it waits for its begin time longer than slurmctld for its save"
    wait_number(cluster, job, 1)
    front = cluster.job(job)["BatchHost"]
    cluster.kill("head", "slurmctld")
    for state in states:
        state.write_bytes(saved)
    # slurmctld asks slurmd for its jobs three seconds after its start, and ends those that it does not know.
    assert cluster.manage("kill", front, "slurmd", "--signal", "STOP").code == 0
    try:
        cluster.start("head", "slurmctld")
        cluster.wait("the engine to see it", lambda: "forgotten" in cluster.events(job), 60)
        time.sleep(2)
        assert cluster.job(job)["JobState"] == "PENDING"
    finally:
        assert cluster.manage("kill", front, "slurmd", "--signal", "CONT").code == 0
    cluster.wait_job(job, "RUNNING", timeout_s=300)
    wait_number(cluster, job, 2)
    assert "DRAIN" not in cluster.ok("scontrol", "show", "node", "-o", front)
    finish(cluster, job)
    nothing_left(cluster, [job])


@pytest.mark.long
def test_a_script_whose_end_slurmctld_forgets_is_not_run_again(cluster: Cluster) -> None:
    """It is killed before it saves the end, and finds a job that runs. Slurm would let it begin anew, after a while."""
    wait_rooms(cluster)
    wait_associations_saved(cluster)
    script = "#!/bin/sh\necho begun >> begun\nwhile [ ! -e the-end ]; do sleep 0.5; done\necho all\nexit 3\n"
    job = cluster.sbatch(script, "--mem=96")
    cluster.wait("the script", lambda: (cluster.home("alice") / "begun").exists(), 180, lambda: cluster.describe(job))
    states = [cluster.host_path("head", f"/var/spool/slurm/ctld/job_state{end}") for end in ("", ".old")]
    cluster.ok("scontrol", "update", f"JobId={job}", "JobName=it-runs")
    cluster.wait_saved("it-runs")
    saved = states[0].read_bytes()
    (cluster.home("alice") / "the-end").touch()
    nothing_left(cluster, [job])
    cluster.wait_job(job, "FAILED")
    cluster.kill("head", "slurmctld")
    for state in states:
        state.write_bytes(saved)
    cluster.start("head", "slurmctld")
    cluster.wait("the engine to tell it", lambda: "end-told" in cluster.events(job), 90)
    cluster.wait_job(job, "FAILED")
    found = cluster.job(job)
    assert (found["ExitCode"], found["Restarts"], found["Reason"]) == ("3:0", "0", "NonZeroExitCode")
    assert (cluster.home("alice") / "begun").read_text() == "begun\n"
    assert cluster.lines(job) == ["all"]


def test_slurmctld_is_restarted_in_a_context_switch_while_slurmdbd_is_down(cluster: Cluster) -> None:
    wait_rooms(cluster)
    wait_associations_saved(cluster)
    low = [count(cluster, *WHOLE) for _ in cluster.nodes]
    for job in low:
        wait_number(cluster, job, 1, timeout_s=300)
    cluster.kill("head", "slurmdbd")
    try:
        beside = native(cluster, "--hold", "--mem=16", seconds=0)
        # What was submitted a moment ago is not saved yet: it begins to count when it is.
        begins = ("--begin=now+10", "--job-name=saved-first")
        high = cluster.sbatch("#!/bin/sh\necho here\n", *WHOLE, *begins, "-p", "urgent", user="bob")
        cluster.wait_saved("saved-first")
        saves = "select vm from actions where state = 'running' and kind = 'suspend'"
        [[vm]] = cluster.wait("a suspend under way", lambda: ledger(cluster, saves), 180, every_s=0.02)
        cluster.kill("head", "slurmctld")
        cluster.start("head", "slurmctld")
        assert cluster.wait_job(high, timeout_s=300)["JobState"] == "COMPLETED"
        slept = next(job for job in low if vm == f"vjob{job}-0")
        wait_number(cluster, slept, 2, timeout_s=300)
    finally:
        cluster.start("head", "slurmdbd")
    assert all(last_number(cluster, job) > 0 for job in low)
    finish(cluster, *low)
    assert cluster.output(high, user="bob") == "here\n"
    # Accounting has of the vjob what it has of a native job that was submitted and saved when it was. From 24.11 on
    # that is nothing: slurmctld saves that it has told slurmdbd of a job when it has only meant to
    # (docs/operator/losses.md).
    cluster.ok("scontrol", "release", str(beside))
    assert cluster.wait_job(beside, timeout_s=300)["JobState"] == "COMPLETED"
    later = native(cluster, "--mem=16", seconds=0)

    def told() -> str:
        return f"{[accounted(cluster, job) for job in (high, beside, later)]} {undelivered(cluster)}"

    cluster.wait("accounting to catch up", lambda: accounted(cluster, later) == "COMPLETED", 300, told)
    cluster.wait("the same of both", lambda: accounted(cluster, high) == accounted(cluster, beside), 180, told)
    if slurm_release(cluster) < (24, 11):
        cluster.wait("both to be accounted", lambda: accounted(cluster, high) == "COMPLETED", 180, told)
    cluster.wait_nodes()
    nothing_left(cluster, [*low, high])
