"""Platform podman: the same wrapper and the same scripts, in containers that CRIU saves and restores elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import Cluster, files_below
from e2e.native_site import COUNTS
from minicluster_lib import podman

from rmsplugin.engine.ledger.ledger_file import read_only

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(podman.reason_against()), reason=podman.reason_against() or "-"),
]

#: All CPUs of a node.
WHOLE = ("-c", "2", "--mem=96")
URGENT = ("-p", "urgent", "-N", "2", "--ntasks-per-node=1", "-c", "2", "--mem=96")

#: What a job sees of itself, of its node, and of the network.
_SEES = r"""#!/bin/sh
echo "user $(id -un) of $(id -gn) on $(hostname), pwd $(pwd), $# arguments, stdin $(wc -c)"
echo to-stderr >&2
grep -E '^(CapEff|NoNewPrivs):' /proc/self/status | tr '\t' ' '
echo "processes $(ls /proc | grep -c '^[0-9]')"
echo "others' $(ls /home/bob 2>&1)"
echo "key $(cat /usr/lib/rmsplugin/config 2>&1)"
echo written > "$HOME/by-container"
touch /usr/bin/mine 2>/dev/null || echo "root file system is read-only"
mount -t tmpfs none /mnt 2>/dev/null || echo "no mounts"
exit 7
"""

#: Two tasks that say how far they have counted over a connection between two containers.
_COUNTS_ON_BOTH = """#!/bin/sh
echo started
srun sh -c 'i=0; while :; do i=$((i+1)); echo $SLURM_PROCID:$i; sleep 0.2; done'
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of two CPUs. RMSPLUGIN_E2E_PODMAN_DIR names one that is up already."""
    kept = os.environ.get("RMSPLUGIN_E2E_PODMAN_DIR")
    if kept:
        yield Cluster(Path(kept))
        return
    site = Cluster(Path("/var/tmp") / f"rmsplugin-e2e-podman-{os.getpid()}-{secrets.token_hex(2)}")
    try:
        result = site.manage("up", "--podman", "--nodes", "2", "--cycle-s", "3", "--watch-s", "1")
        assert result.code == 0, result.err
        yield site
    finally:
        site.manage("down")


@pytest.fixture(autouse=True)
def clean(cluster: Cluster) -> Iterator[None]:
    """No job outlives the test that submitted it, and no container outlives its job."""
    yield
    if cluster.ask("/v1/status") is None:
        cluster.restart_engine()
    cluster.run("scancel", "--user", "alice")
    queue = ("squeue", "-h", "-u", "alice")
    cluster.wait("an empty queue", lambda: not cluster.ok(*queue).strip(), 90, lambda: cluster.ok(*queue))
    cluster.wait("nothing left", lambda: not left(cluster), 60, lambda: left(cluster))


def containers(cluster: Cluster) -> dict[str, str]:
    """The node of each container; one that is on two nodes is a failure."""
    found: dict[str, str] = {}
    for node in cluster.nodes:
        for name in cluster.ok("podman", "ps", "--all", "--format", "{{.Names}}", host=node).split():
            assert name not in found, f"{name} is on {found[name]} and on {node}"
            found[name] = node
    return found


def left(cluster: Cluster) -> list[str]:
    """What nodes have of vjobs: containers, files, networks, control groups."""
    found = [f"{name} on {node}" for name, node in containers(cluster).items()]
    for node in cluster.nodes:
        files = files_below(cluster.host_path(node, "/var/lib/rmsplugin"))
        found += [f"{node}: {path}" for path in files if path.name.startswith("vjob")]
        links = cluster.ok("ip", "-o", "link", host=node) + cluster.ok("ip", "netns", host=node)
        found += [f"{node}: {name}" for name in re.findall(r"\brms[a-z]\w+", links)]
        # The hierarchy without controllers is one of the whole machine, with the groups of all its miniclusters.
        own = ("-path", "/sys/fs/cgroup/systemd", "-prune", "-o")
        groups = cluster.ok("find", "/sys/fs/cgroup", *own, "-type", "d", "-name", "vjob*", "-print", host=node)
        found += [f"{node}: {path}" for path in groups.split()]
    return found


def counted(text: str, prefix: str = "") -> list[int]:
    return [int(number) for number in re.findall(rf"^{prefix}(\d+)$", text, re.M)]


def wait_counting(cluster: Cluster, job: int, beyond: int = 0, prefix: str = "") -> None:
    """Wait until it has counted, from 1 on and without a gap, beyond a number, by one script."""

    def there() -> bool:
        text = cluster.output(job)
        numbers = counted(text, prefix)
        assert numbers == list(range(1, len(numbers) + 1)), f"a gap, or a second start: {text[:3000]}"
        assert text.count("started\n") <= 1
        return len(numbers) > beyond

    cluster.wait(f"job {job} to count beyond {beyond}", there, 120, lambda: cluster.describe(job))


def run(cluster: Cluster, script: str, *options: str, prefix: str = "") -> int:
    """A job that has begun to count."""
    job = cluster.sbatch(script, *options)
    wait_counting(cluster, job, prefix=prefix)
    return job


def steps(cluster: Cluster) -> set[str]:
    """The kinds of all actions that the engine has ever begun."""
    with contextlib.closing(read_only(cluster.ledger(), busy_s=20)) as ledger:
        return {kind for (kind,) in ledger.execute("select distinct kind from actions")}


def test_a_job_runs_in_a_container_as_it_would_in_a_vm(cluster: Cluster) -> None:
    job = cluster.sbatch(_SEES, arguments=("a", "b c"))
    assert cluster.wait_job(job)["ExitCode"] == "7:0"
    said = cluster.output(job)
    assert f"user alice of physics on vjob{job}-0, pwd /home/alice, 2 arguments, stdin 0\n" in said
    assert "to-stderr\n" in said
    assert (cluster.home() / "by-container").read_text() == "written\n"
    assert (cluster.home() / "by-container").stat().st_uid == 2001


def test_a_job_in_a_container_has_no_privilege_and_sees_nothing_of_its_node(cluster: Cluster) -> None:
    job = cluster.sbatch(_SEES)
    cluster.wait_job(job)
    said = cluster.output(job)
    assert "CapEff: 0000000000000000\n" in said
    assert "NoNewPrivs: 1\n" in said
    assert "root file system is read-only\n" in said
    assert "no mounts\n" in said
    assert re.search(r"^others' .*Permission denied$", said, re.M)
    assert re.search(r"^key .*Permission denied$", said, re.M)
    [processes] = re.findall(r"^processes (\d+)$", said, re.M)
    host = len(cluster.ok("ls", "/proc").split())
    assert 2 < int(processes) < host


def test_a_container_is_suspended_and_its_script_counts_on_on_the_other_node(cluster: Cluster) -> None:
    job = run(cluster, COUNTS, *WHOLE)
    [(name, home)] = containers(cluster).items()
    assert cluster.plugin("suspend", str(job)).code == 0
    assert containers(cluster) == {}
    assert cluster.job(job)["JobState"] == "SUSPENDED"
    slept_at = len(counted(cluster.output(job)))
    other = next(node for node in cluster.nodes if node != home)
    resumed = cluster.plugin("resume", str(job), "--to", other)
    assert resumed.code == 0, resumed.err
    assert containers(cluster) == {name: other}
    wait_counting(cluster, job, beyond=slept_at + 10)


def size(cluster: Cluster, name: str) -> tuple[int, int]:
    """The CPUs and the MiB that its node's kernel lets a container use."""
    groups = f"/sys/fs/cgroup/{{}}/rmsplugin/{name}/libpod-*/{{}}"
    files = groups.format("cpu", "cpu.cfs_quota_us"), groups.format("memory", "memory.limit_in_bytes")
    said = cluster.ok("sh", "-c", f"cat {' '.join(files)}", host=containers(cluster)[name])
    quota_us, memory_bytes = map(int, said.split())
    return quota_us // 100_000, memory_bytes >> 20


def wait_size(cluster: Cluster, name: str, cpus: int, memory_mib: int) -> None:
    cluster.wait("its size", lambda: size(cluster, name) == (cpus, memory_mib), 60, lambda: str(size(cluster, name)))


def test_a_container_is_resized_and_has_its_size_on_the_other_node(cluster: Cluster) -> None:
    job = run(cluster, COUNTS, *WHOLE)
    [(name, home)] = containers(cluster).items()
    assert size(cluster, name) == (2, 96)
    assert cluster.plugin("resize", str(job), "--cpus", "1", "--memory", "80M", user="alice").code == 0
    wait_size(cluster, name, 1, 80)
    assert cluster.plugin("suspend", str(job)).code == 0
    slept_at = len(counted(cluster.output(job)))
    other = next(node for node in cluster.nodes if node != home)
    assert cluster.plugin("resume", str(job), "--to", other).code == 0
    assert containers(cluster) == {name: other}
    assert size(cluster, name) == (1, 80)
    wait_counting(cluster, job, beyond=slept_at + 5)
    cluster.wait("ten seconds to pass", lambda: resized(cluster, job, "--cpus", "all", "--memory", "all"), 30)
    wait_size(cluster, name, 2, 96)
    told = cluster.events(job)
    assert f"{name} uses 1 of its 2 CPUs, and used 2" in told
    assert f"{name} may use 80 of its 96 MiB, and had 96" in told


def test_what_a_job_in_a_container_uses_is_told_also_over_a_suspend(cluster: Cluster) -> None:
    job = run(cluster, "#!/bin/sh\nhead -c 20000000 /dev/zero >/tmp/some\n(while :; do :; done) &\n" + COUNTS, *WHOLE)

    def used() -> dict[str, float]:
        done = cluster.plugin("usage", str(job), "--json")
        assert done.code == 0, done.err
        [found] = json.loads(done.out)["usage"]
        return {name: found[name] or 0 for name in ("cpu_s", "memory_used_mib", "memory_with_caches_mib")}

    cluster.wait("two seconds of CPU", lambda: used()["cpu_s"] > 2, 60, lambda: str(used()))
    before = used()
    assert 19 < before["memory_used_mib"] <= before["memory_with_caches_mib"] <= 96
    assert cluster.plugin("suspend", str(job)).code == 0
    assert used()["cpu_s"] >= before["cpu_s"]
    assert cluster.plugin("resume", str(job)).code == 0
    cluster.wait("it to use more", lambda: used()["cpu_s"] > before["cpu_s"] + 1, 60, lambda: str(used()))


def resized(cluster: Cluster, job: int, *words: str) -> bool:
    return cluster.plugin("resize", str(job), *words, user="alice").code == 0


def test_a_container_that_uses_more_memory_than_it_is_to_have_loses_nothing(cluster: Cluster) -> None:
    job = run(cluster, f"#!/bin/sh\nhead -c 50000000 /dev/zero >/tmp/much\n{COUNTS.partition(chr(10))[2]}", *WHOLE)
    [name] = containers(cluster)
    if resized(cluster, job, "--memory", "40M"):  # its use may not have been seen yet
        cluster.wait("the refusal", lambda: "it uses more memory than that" in cluster.events(job), 60)
    beyond = len(counted(cluster.output(job)))
    wait_counting(cluster, job, beyond=beyond + 10)
    assert size(cluster, name) == (2, 96)


def test_two_containers_that_talk_are_saved_at_one_instant(cluster: Cluster) -> None:
    both = ("-N", "2", "--ntasks-per-node=1", *WHOLE)
    job = run(cluster, _COUNTS_ON_BOTH, *both, prefix="0:")
    wait_counting(cluster, job, prefix="1:")
    for _ in range(2):
        assert cluster.plugin("suspend", str(job)).code == 0
        assert containers(cluster) == {}
        slept_at = {prefix: len(counted(cluster.output(job), prefix)) for prefix in ("0:", "1:")}
        resumed = cluster.plugin("resume", str(job))
        assert resumed.code == 0, resumed.err
        for prefix, beyond in slept_at.items():
            wait_counting(cluster, job, beyond=beyond + 5, prefix=prefix)


def test_nothing_is_left_of_a_job_that_is_cancelled_awake_or_asleep(cluster: Cluster) -> None:
    awake, asleep = run(cluster, COUNTS), run(cluster, COUNTS)
    assert cluster.plugin("suspend", str(asleep)).code == 0
    cluster.ok("scancel", str(awake), str(asleep), user="alice")
    cluster.wait("nothing left", lambda: not left(cluster), 90, lambda: left(cluster))
    assert {cluster.wait_job(job)["JobState"] for job in (awake, asleep)} == {"CANCELLED"}


def test_a_requeued_job_goes_on_in_its_container(cluster: Cluster) -> None:
    job = run(cluster, COUNTS)
    there = containers(cluster)
    cluster.ok("scontrol", "requeue", str(job))
    cluster.wait("a second run", lambda: cluster.job(job).get("Restarts") == "1", 60, lambda: cluster.describe(job))
    cluster.wait_job(job, "RUNNING", timeout_s=240)
    wait_counting(cluster, job, beyond=len(counted(cluster.output(job))) + 10)
    assert containers(cluster) == there


def test_a_job_that_requeues_itself_begins_anew_in_a_new_container(cluster: Cluster) -> None:
    script = """#!/bin/sh
echo "begun with $(cat /tmp/mark 2>&1), restarts ${SLURM_RESTART_COUNT:-0}"
echo mark > /tmp/mark
[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || scontrol requeue $SLURM_JOB_ID
sleep 600
"""
    job = cluster.sbatch(script, "--requeue", "--open-mode=append")
    said = cluster.wait_output(job, r"^begun with .*, restarts 1$", timeout_s=240)
    assert "begun with mark" not in said


@pytest.mark.parametrize("action", ["suspend", "resume"])
def test_a_job_survives_a_kill_of_the_engine_while_its_container_is_saved_or_restored(
    cluster: Cluster, action: str
) -> None:
    job = run(cluster, COUNTS, *WHOLE)
    if action == "resume":
        assert cluster.plugin("suspend", str(job)).code == 0
    cluster.plugin(action, str(job), "--no-wait")
    cluster.wait_action(job, action)
    cluster.kill("head", "engine")
    cluster.restart_engine()
    if action == "suspend":
        cluster.wait_still(job, "sleeping")
        assert cluster.plugin("resume", str(job)).code == 0
    cluster.wait_vjob(job, "running")
    wait_counting(cluster, job, beyond=len(counted(cluster.output(job))) + 5)
    assert len(containers(cluster)) == 1


def test_jobs_make_way_asleep_and_nobody_asks_for_a_migration(cluster: Cluster) -> None:
    jobs = [run(cluster, COUNTS, *WHOLE) for _ in cluster.nodes]
    urgent = cluster.sbatch("#!/bin/sh\nhostname\nsleep 5\n", *URGENT)
    assert cluster.wait_job(urgent, timeout_s=240)["JobState"] == "COMPLETED"
    for job in jobs:
        cluster.wait_vjob(job, "running")
        wait_counting(cluster, job, beyond=len(counted(cluster.output(job))) + 5)
    assert {"suspend", "resume"} <= steps(cluster)
    assert "migrate" not in steps(cluster)


def test_a_migration_is_refused_with_the_reason(cluster: Cluster) -> None:
    job = run(cluster, COUNTS)
    refused = cluster.plugin("migrate", str(job))
    assert refused.code != 0
    assert "podman cannot move a VM that runs" in refused.err
    assert cluster.vjob(job)["state"] == "running"


def test_check_finds_no_fault_of_a_site_with_containers(cluster: Cluster) -> None:
    said = cluster.plugin("check").out.splitlines()
    assert [line for line in said if line.startswith("error")] == []
    saves = [line for line in said if re.search(r"^ok +node n\d: CRIU .* saves and restores containers", line)]
    assert len(saves) == len(cluster.nodes)
