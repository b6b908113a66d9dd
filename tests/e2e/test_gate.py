"""The gate: vjobs start in Slurm's order, by the engine's leave only, on hosts that suit them (issue 7, 6 c, e, i)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import BY_QUEUE, configured
from e2e.queued import (
    GATE,
    LOOP,
    SMALL,
    WHOLE,
    begun,
    native,
    nothing_left,
    queue,
    submit_all,
    vjobs,
    wait_begun,
    wait_reason,
    wait_rooms,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True, scope="module")
def by_queue(cluster: Cluster) -> Iterator[None]:
    """The engine decides in the order of the queue."""
    with configured(cluster, *BY_QUEUE):
        yield


# --- the order (6 c) ---


@pytest.fixture
def urgent(cluster: Cluster) -> Iterator[str]:
    """A QOS of a higher priority, which bob may use."""
    cluster.ok("sacctmgr", "-i", "add", "qos", "urgent", "Priority=100")
    cluster.ok("sacctmgr", "-i", "modify", "user", "bob", "set", "qos+=urgent")
    yield "--qos=urgent"
    cluster.ok("sacctmgr", "-i", "modify", "user", "bob", "set", "qos-=urgent")
    cluster.ok("sacctmgr", "-i", "delete", "qos", "urgent")


def next_to_start(cluster: Cluster, running: str) -> str:
    """End the vjob that has the node, and see which one has it next: the first that Slurm's queue had just before."""
    waiting = [each for each in queue(cluster) if each.job != running]  # its gate may not be open yet
    expected = next(each.job for each in waiting if not each.kept)
    cluster.wait_cycle()  # One that read the queue before it changed may still be deciding.
    cluster.ok("scancel", running)
    found = cluster.wait(
        "another vjob to begin", lambda: begun(cluster, [each.job for each in waiting]), 120, lambda: vjobs(cluster)
    )
    assert found == {expected}, (waiting, cluster.describe(expected))
    return expected


def running_on(cluster: Cluster, there: tuple[str, ...]) -> int:
    """A vjob whose script runs: one that only begins may fail to, and the next of the queue has its node then."""
    [job] = submit_all(cluster, there)
    cluster.wait_output(job, "up", timeout_s=240)
    return job


def test_vjobs_start_in_the_order_of_slurms_queue(cluster: Cluster, urgent: str) -> None:
    """One after the other has node n3, while users and admins change the queue as they can that of native jobs."""
    there = (*WHOLE, "-w", "n3")
    running = running_on(cluster, there)
    plain, nice, held, freed, admins, kept = map(str, submit_all(
        cluster, there, (*there, "--nice=2000"), (*there, "--hold"), there, there, there
    ))  # fmt: skip
    [bobs] = map(str, submit_all(cluster, (*there, urgent), user="bob"))
    cluster.ok("scontrol", "hold", freed, user="alice")
    cluster.ok("scontrol", "hold", kept)
    cluster.ok("scontrol", "update", f"JobId={admins}", "Priority=900000")
    assert next_to_start(cluster, str(running)) == admins
    assert next_to_start(cluster, admins) == bobs
    # Of equal priority, but nicer than `plain`; and `freed` is as it was before it was held.
    cluster.ok("scontrol", "release", freed, user="alice")
    cluster.ok("scontrol", "update", f"JobId={plain}", "Nice=4000", user="alice")
    assert next_to_start(cluster, bobs) == freed
    assert next_to_start(cluster, freed) == nice
    cluster.ok("scontrol", "hold", plain, user="alice")
    cluster.ok("scontrol", "release", held, user="alice")
    assert next_to_start(cluster, nice) == held
    # Slurm shows a job as pending for a moment after its gate was opened.
    left = {plain: "JobHeldUser", kept: "JobHeldAdmin"}
    cluster.wait(
        "only what is held to be left",
        lambda: {each.job: each.reason for each in queue(cluster)} == left,
        60,
        lambda: queue(cluster),
    )


@pytest.fixture
def bobs_share(cluster: Cluster) -> Iterator[None]:
    """More for bob, whatever both have used."""
    cluster.ok("sacctmgr", "-i", "modify", "user", "bob", "set", "fairshare=1000")
    yield
    cluster.ok("sacctmgr", "-i", "modify", "user", "bob", "set", "fairshare=1")


@pytest.mark.usefixtures("bobs_share")
def test_whose_share_is_used_up_starts_later(cluster: Cluster) -> None:
    """Fair share: what alice's vjobs use, and that bob is to have more, puts bob's vjobs first, though sent later."""
    there = (*WHOLE, "-w", "n3")
    running = running_on(cluster, there)
    [alices] = map(str, submit_all(cluster, there))
    [bobs] = map(str, submit_all(cluster, there, user="bob"))

    def order() -> list[str]:
        return [each.job for each in queue(cluster)]

    # Slurm computes usage and shares once a minute; until then both may be the same.
    def explain() -> str:
        return "\n".join([cluster.ok("sprio", "-l"), *map(str, queue(cluster)), cluster.describe(running)])

    cluster.wait("bob's share to count", lambda: order() == [bobs, alices], 150, explain)
    assert next_to_start(cluster, str(running)) == bobs


@pytest.fixture
def no_rooms(cluster: Cluster) -> Iterator[None]:
    """The nodes are native jobs' alone for a while; called for by a test when its vjobs have ended."""
    yield
    cluster.ok("scontrol", "update", "PartitionName=vmhosts", "State=UP")


@pytest.fixture
def no_switches(cluster: Cluster) -> Iterator[None]:
    """As native jobs: what runs is never suspended."""
    cluster.ok("scontrol", "update", "PartitionName=vjob", "PreemptMode=OFF")
    yield
    cluster.ok("scontrol", "update", "PartitionName=vjob", "PreemptMode=REQUEUE")


@pytest.mark.usefixtures("no_rooms", "no_switches")
def test_small_vjobs_pass_a_large_one_only_as_native_jobs_would(cluster: Cluster) -> None:
    first = (*SMALL, "-w", "n1", "-t", "60")
    large = ("-n", "3", "-N", "3", "-c", "2", "--mem=96", "-t", "60")
    small, short = (*SMALL, "-t", "180"), (*SMALL, "-t", "5")
    wait_rooms(cluster)
    [ahead] = submit_all(cluster, first)
    wait_begun(cluster, ahead)
    jobs = submit_all(cluster, large, *[small] * 12, short)
    wait_begun(cluster, jobs[-1])
    wait_reason(cluster, jobs[1], f"leaves no room for {jobs[0]} to start in")
    assert begun(cluster, jobs) == {str(jobs[-1])}
    cluster.ok("scancel", str(ahead), str(jobs[-1]))
    wait_begun(cluster, jobs[0])
    assert begun(cluster, jobs[:-1]) == {str(jobs[0])}
    cluster.ok("scancel", *map(str, jobs))
    nothing_left(cluster, [ahead, *jobs])
    # The same of native jobs.
    cluster.ok("scontrol", "update", "PartitionName=vmhosts", "State=DOWN")
    cluster.ok("scancel", "-p", "vmhosts", user="slurm")
    ahead = native(cluster, *first)
    cluster.wait_job(ahead, "RUNNING")
    jobs = [native(cluster, *options) for options in (large, *[small] * 12, short)]
    cluster.wait_job(jobs[-1], "RUNNING")
    assert running_natives(cluster) == {ahead, jobs[-1]}
    cluster.ok("scancel", str(ahead), str(jobs[-1]))
    cluster.wait_job(jobs[0], "RUNNING")
    assert running_natives(cluster) == {jobs[0]}


def running_natives(cluster: Cluster) -> set[int]:
    return {int(word) for word in cluster.ok("squeue", "-h", "-p", "plain", "-t", "R", "-o", "%i").split()}


# --- what Slurm keeps from starting is not started ---


def test_an_array_runs_as_many_elements_as_its_limit_allows(cluster: Cluster) -> None:
    [job] = submit_all(cluster, (*SMALL, "--array=1-5%2"))
    elements = [f"{job}_{index}" for index in range(1, 6)]
    cluster.wait("two elements", lambda: len(begun(cluster, elements)) == 2, 120, lambda: cluster.describe(job))
    assert begun(cluster, elements) == set(elements[:2])
    cluster.ok("scancel", elements[0])
    wait_begun(cluster, elements[2])
    assert begun(cluster, elements) == set(elements[:3])
    # One that has begun may be in the queue yet, with its gate open.
    assert {each.licences for each in queue(cluster) if each.job not in elements[:3]} == {GATE}


def test_a_begin_time_and_a_chain_of_dependencies_are_waited_for(cluster: Cluster) -> None:
    [begins] = submit_all(cluster, (*SMALL, "--begin=now+3600"))
    [good] = submit_all(cluster, SMALL, script="#!/bin/sh\nexit 0\n")
    [bad] = submit_all(cluster, (*SMALL, f"--dependency=afterok:{good}"), script="#!/bin/sh\nexit 1\n")
    [never] = submit_all(cluster, (*SMALL, f"--dependency=afterok:{bad}"))
    [then] = submit_all(cluster, (*SMALL, f"--dependency=afternotok:{bad}"))
    assert cluster.wait_job(good, timeout_s=240)["JobState"] == "COMPLETED"
    assert cluster.wait_job(bad, timeout_s=240)["JobState"] == "FAILED"
    cluster.wait_job(then, "RUNNING", timeout_s=240)
    reasons = {each.job: each.reason for each in queue(cluster)}
    assert reasons == {str(begins): "BeginTime", str(never): "DependencyNeverSatisfied"}
    assert begun(cluster, [begins, never]) == set()
    end, start = (cluster.job(good)["EndTime"], cluster.job(bad)["StartTime"])
    assert end <= start
    cluster.ok("scontrol", "update", f"JobId={begins}", "StartTime=now", user="alice")
    wait_begun(cluster, begins)


def test_a_vjob_that_its_user_requeues_goes_on_and_its_script_runs_once(cluster: Cluster) -> None:
    script = "#!/bin/sh\nfor number in $(seq 20); do echo $number; sleep 1; done\n"
    job = cluster.sbatch(script, *SMALL, "--open-mode=append")
    cluster.wait_output(job, "^1$", timeout_s=240)
    cluster.ok("scontrol", "requeue", str(job), user="alice")
    fields = cluster.wait_job(job, timeout_s=240)
    assert (fields["JobState"], fields["Restarts"]) == ("COMPLETED", "1")
    assert cluster.lines(job) == [str(number) for number in range(1, 21)]
    assert cluster.vjob(job)["losses"] == 0


# --- constraints (6 e), and who opens the gate ---


@pytest.fixture
def features(cluster: Cluster) -> Iterator[None]:
    """Node n1 is slow, and n3 is fast."""
    for node, feature in {"n1": "slow", "n3": "fast"}.items():
        cluster.ok(
            "scontrol", "update", f"NodeName={node}", f"AvailableFeatures={feature}", f"ActiveFeatures={feature}"
        )
    yield
    for node in ("n1", "n3"):
        cluster.ok("scontrol", "update", f"NodeName={node}", "AvailableFeatures=", "ActiveFeatures=")


@pytest.mark.usefixtures("features")
def test_constraints_choose_the_host_of_the_vm(cluster: Cluster) -> None:
    wanted = {("-C", "fast"): "n3", ("-w", "n2"): "n2", ("-x", "n1,n3"): "n2", ("-C", "fast|slow", "-x", "n3"): "n1"}
    jobs = submit_all(cluster, *[(*SMALL, *options) for options in wanted])
    for job, host in zip(jobs, wanted.values(), strict=True):
        cluster.wait(f"a VM of {job}", lambda job=job: cluster.qemus(job), 120, lambda job=job: cluster.describe(job))
        assert (cluster.qemus(job), cluster.vjob(job)["nodes"]) == ([host], [host])
        fields = cluster.wait_job(job, "RUNNING")
        assert fields["NodeList"].startswith("front"), "a VM's host is none of its job"
    cluster.ok("scancel", *map(str, jobs))
    for options, host in wanted.items():
        job = native(cluster, *SMALL, *options)
        assert cluster.wait_job(job, "RUNNING")["NodeList"] == host
        cluster.ok("scancel", str(job))


def test_a_job_that_root_starts_without_leave_is_sent_back_and_starts_when_it_may(cluster: Cluster) -> None:
    wait_rooms(cluster)
    job = cluster.sbatch(LOOP, *SMALL, "-C", "huge")
    wait_reason(cluster, job, "huge")
    cluster.ok("scontrol", "update", f"JobId={job}", "Licenses=", user="alice")
    assert [(each.job, each.licences) for each in queue(cluster)] == [(str(job), GATE)], "its user cannot open the gate"
    # The engine would shut the gate again before Slurm has looked: it is dead, and Slurm has started the job.
    cluster.kill("head", "engine")
    try:
        cluster.ok("scontrol", "update", f"JobId={job}", "Licenses=")
        cluster.wait_job(job, "CONFIGURING")
    finally:
        cluster.restart_engine()

    def sent_back() -> bool:
        fields = cluster.job(job)
        return fields["JobState"] == "PENDING" and fields["Restarts"] == "1" and fields["Licenses"] == GATE

    cluster.wait("the job behind the gate", sent_back, 120, lambda: cluster.describe(job))
    assert (begun(cluster, [job]), cluster.qemus(job), cluster.lines(job)) == (set(), [], [])
    cluster.ok("scontrol", "update", "NodeName=n2", "AvailableFeatures=huge", "ActiveFeatures=huge")
    try:
        wait_begun(cluster, job, timeout_s=200)
        assert cluster.vjob(job)["nodes"] == ["n2"]
    finally:
        cluster.ok("scontrol", "update", "NodeName=n2", "AvailableFeatures=", "ActiveFeatures=")


# --- slurmctld is lost (6 i) ---


def wait_saved_as_entered(cluster: Cluster, jobs: Sequence[int]) -> None:
    """Wait until slurmctld has saved that all of the jobs are entered in the accounting.

    One that is killed while they are being entered goes on thinking so, for ever, and lets nobody change them (22.05).
    """
    which = ",".join(map(str, jobs))
    cluster.wait(
        "the accounting",
        lambda: len(cluster.ok("sacct", "-nXP", "-o", "JobID", "-j", which).split()) == len(jobs),
        120,
    )
    name = f"last-{time.monotonic_ns()}"
    for job in jobs:
        change = ("scontrol", "update", f"JobId={job}", f"JobName={name}" if job == jobs[-1] else "Comment=entered")
        cluster.wait(f"Slurm to know that {job} is entered", lambda change=change: cluster.run(*change).code == 0, 60)
    cluster.wait_saved(name)


def test_a_new_slurmctld_lets_none_of_twelve_vjobs_start_without_leave(cluster: Cluster) -> None:
    blocker = native(cluster, "-N", "3", "--exclusive")
    cluster.wait_job(blocker, "RUNNING")
    tiny = [(*SMALL, f"--nice={number % 7}") for number in range(11)]
    jobs = submit_all(cluster, *tiny, SMALL, script="#!/bin/sh\n:\n")
    before = queue(cluster)
    assert sorted(int(each.job) for each in before) == jobs
    wait_saved_as_entered(cluster, jobs)
    cluster.kill("head", "slurmctld")
    cluster.start("head", "slurmctld")
    cluster.wait("slurmctld", lambda: cluster.run("squeue", "-h").code == 0, 120)
    cluster.wait_nodes()
    cluster.wait("the engine", lambda: set(vjobs(cluster)) >= set(map(str, jobs)), 60, lambda: vjobs(cluster))
    after = queue(cluster)
    assert [each.job for each in after] == [each.job for each in before]
    assert {each.licences for each in after} <= {GATE, f"{GATE}:1"}
    assert begun(cluster, jobs) == set()
    # They start as nodes become free, first come the first of the queue: six have room at a time.
    cluster.ok("scancel", str(blocker))
    first = {each.job for each in after[:6]}
    cluster.wait("six vjobs", lambda: len(begun(cluster, jobs)) >= 6, 180, lambda: vjobs(cluster))
    assert first <= begun(cluster, jobs)
    for job in first:
        assert cluster.wait_job(job, timeout_s=300)["JobState"] == "COMPLETED"
    cluster.ok("scancel", *map(str, jobs))
    nothing_left(cluster, jobs)
