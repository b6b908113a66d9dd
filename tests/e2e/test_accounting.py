"""Slurm's books of vjobs are those of native jobs: limits, accounting, billing, fair share (issue 7, 2 and 6 d)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.queued import GATE, LOOP, SMALL, native, queue, submit_all, wait_begun, wait_reason

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

#: An entity of sacctmgr's, what is set and how it is undone, what Slurm calls it, and whether other users go on.
LIMITS = {
    "GrpTRES of a user": (("user", "alice"), "GrpTRES=cpu=1", "GrpTRES=cpu=-1", "AssocGrpCpuLimit", True),
    "MaxJobs of a user": (("user", "alice"), "MaxJobs=1", "MaxJobs=-1", "AssocMaxJobsLimit", True),
    "GrpTRES of an account": (("account", "users"), "GrpTRES=mem=150", "GrpTRES=mem=-1", "AssocGrpMemLimit", False),
    "MaxTRESPerUser of a QOS": (
        ("qos", "normal"), "MaxTRESPerUser=cpu=1", "MaxTRESPerUser=cpu=-1", "QOSMaxCpuPerUserLimit", True
    ),
}  # fmt: skip


@pytest.fixture
def limit(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    """One limit; Slurm's reason for a job that is over it, and whether it is alice's alone."""
    entity, there, gone, reason, hers_alone = LIMITS[request.param]
    cluster.ok("sacctmgr", "-i", "modify", *entity, "set", there)
    yield reason, hers_alone
    cluster.ok("sacctmgr", "-i", "modify", *entity, "set", gone)


@pytest.mark.parametrize("limit", LIMITS, indirect=True)
def test_a_vjob_over_a_limit_waits_like_a_native_job_and_starts_when_it_may(
    cluster: Cluster, limit: tuple[str, bool]
) -> None:
    reason, hers_alone = limit
    first = cluster.sbatch(LOOP, *SMALL, "-w", "n1")
    cluster.wait_job(first, "CONFIGURING", "RUNNING")
    over = cluster.sbatch(LOOP, *SMALL, "-w", "n1")
    wait_reason(cluster, over, reason)
    # It is tried again now and then: Slurm says only of an open gate which limit is in the way.
    behind = [(str(over), GATE)]
    cluster.wait("the gate", lambda: [(each.job, each.licences) for each in queue(cluster)] == behind, 60)
    beside = native(cluster, *SMALL, user="alice")
    cluster.wait(f"{reason} of a native job", lambda: cluster.job(beside)["Reason"] == reason, 60,
                 lambda: cluster.job(beside))  # fmt: skip
    cluster.ok("scancel", str(beside))
    if hers_alone:
        [bobs] = submit_all(cluster, (*SMALL, "-w", "n2"), user="bob")
        wait_begun(cluster, bobs)
    assert cluster.job(over)["JobState"] == "PENDING"
    cluster.ok("scancel", str(first))
    cluster.wait_job(over, "CONFIGURING", "RUNNING")


SIZE = ("-c", "2", "--mem=300", "-t", "10")
#: What scontrol shows of a job's size, whatever its host is.
FIELDS = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "MinMemoryNode", "TRES", "AllocTRES", "TimeLimit")


@pytest.fixture
def billed(cluster: Cluster) -> Iterator[None]:
    """Memory has its price."""
    for partition in ("plain", "vjob"):
        cluster.ok("scontrol", "update", f"PartitionName={partition}", "TRESBillingWeights=CPU=1.0,Mem=0.01")
    yield
    for partition in ("plain", "vjob"):
        cluster.ok("scontrol", "update", f"PartitionName={partition}", "TRESBillingWeights=CPU=1.0")


def usage(cluster: Cluster, user: str) -> int:
    """What the shares of a user have been charged, in seconds of one billing unit."""
    return int(cluster.ok("sshare", "-h", "-P", "-u", user, "-o", "User,RawUsage").split(f"{user}|")[1].split()[0])


@pytest.mark.usefixtures("billed")
def test_accounting_billing_and_shares_are_those_of_a_native_job(cluster: Cluster) -> None:
    before = {user: usage(cluster, user) for user in ("alice", "bob")}
    beside = native(cluster, *SIZE, "-w", "n3", user="bob")
    vjob = cluster.sbatch(LOOP, *SIZE, "-w", "n1")
    cluster.wait_output(vjob, "up", timeout_s=240)
    cluster.wait_job(beside, "RUNNING")
    shown = [{field: cluster.job(job).get(field) for field in FIELDS} for job in (vjob, beside)]
    assert shown[0] == shown[1]
    # Slurm 24 has another name for it.
    assert re.search(r"billing=5\b", str(shown[0]["TRES"] or shown[0]["AllocTRES"])), "two CPUs, and three for 300 MiB"
    cluster.ok("scancel", str(vjob), str(beside))
    fields = "ReqMem,ReqTRES,AllocTRES,AllocCPUS"

    def rows() -> list[dict[str, str]]:
        found = [row for job in (vjob, beside) for row in cluster.sacct(job, f"{fields},State,ElapsedRaw")]
        return found if len(found) == 2 and all("CANCELLED" in row["State"] for row in found) else []

    ours, theirs = cluster.wait("accounting", rows, 60)
    assert {key: ours[key] for key in fields.split(",")} == {key: theirs[key] for key in fields.split(",")}
    assert "mem=300M" in ours["AllocTRES"]
    # Slurm charges once a minute. What was charged is the time that sacct tells, at the price of the job.
    for user, row in (("alice", ours), ("bob", theirs)):
        due = 5 * int(row["ElapsedRaw"])
        charged = cluster.wait(
            f"{user} to be charged {due}",
            lambda user=user, due=due: (used := usage(cluster, user) - before[user]) >= 0.9 * due - 10 and used,
            150,
            lambda: cluster.ok("sshare", "-a", "-l"),
        )
        assert charged <= 1.1 * due + 10
