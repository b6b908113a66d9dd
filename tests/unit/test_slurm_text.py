"""Reading what Slurm prints, on output captured from Slurm 22.05.8; where it says so, as other releases spell it."""

from __future__ import annotations

import pytest

from rmsplugin.adapters.rms import slurm_text
from rmsplugin.adapters.rms.base import HELD_DEPENDENCY, JobState
from rmsplugin.adapters.rms.slurm_text import GATE_S, JobRow
from rmsplugin.model.hostlist import expand

NOW = 1795253000
TOKEN = "5f1c"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("(null)", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11,20],gpu1", ["n08", "n09", "n10", "n11", "n20", "gpu1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a-b.c,n[1,3]-ib", ["a-b.c", "n1-ib", "n3-ib"]),
    ],
)
def test_hostlist(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


def squeue(**fields: str) -> str:
    """A row as squeue prints it: a held job, with these differences."""
    usual = {
        "display_id": "12",
        "job_id": "12",
        "array_id": "12",
        "task": "N/A",
        "partition": "vjob",
        "user": "alice",
        "uid": "2001",
        "word": "PENDING",
        "reason": "JobHeldUser",
        "priority": "0",
        "cpus": "2",
        "memory": "64M",
        "submit": str(NOW - 100),
        "start": "N/A",
        "end": "N/A",
        "dependency": "(null)",
        "nodes": "",
        "batch_host": "n/a",
        "name": "t.sh",
    }
    assert list(usual) == list(slurm_text.JOB_FIELDS)
    return "|".join([TOKEN, *{**usual, **fields}.values()]) + "\n"


def read(text: str, restarts: int = 0) -> JobRow:
    (row,) = slurm_text.job_rows(text, TOKEN, {12: restarts}, NOW)
    return row


def test_format() -> None:
    assert slurm_text.squeue_format(TOKEN) == "5f1c|%i|%A|%F|%K|%P|%u|%U|%T|%r|%Q|%C|%m|%V|%S|%e|%E|%N|%B|%j"


def test_held_job() -> None:
    job = read(squeue()).job
    assert (job.display_id, job.job_id, job.uid, job.cpus, job.memory_mib) == ("12", 12, 2001, 2, 64)
    assert (job.state, job.held, job.eligible, job.completing) == (JobState.PENDING, True, True, False)
    assert (job.nodes, job.batch_host, job.submit_time) == ((), "", NOW - 100)


@pytest.mark.parametrize(
    "name", ["a|b|c", "", "two\nlines", f"x\n{squeue(display_id='99', job_id='99').replace(TOKEN, 'guess')}", "é%s$(x)"]
)
def test_names_hold_anything(name: str) -> None:
    first, second = slurm_text.job_rows(squeue(name=name) + squeue(), TOKEN, {}, NOW)
    assert (first.job.name, second.job.name) == (name, "t.sh")


def test_running_job() -> None:
    job = read(squeue(word="RUNNING", reason="None", priority="7", nodes="n[1-2]", batch_host="n1"), restarts=2).job
    assert (job.state, job.held, job.eligible, job.restarts) == (JobState.RUNNING, False, False, 2)
    assert (job.nodes, job.batch_host) == (("n1", "n2"), "n1")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CONFIGURING", JobState.CONFIGURING),
        ("SUSPENDED", JobState.SUSPENDED),
        ("STOPPED", JobState.RUNNING),
        ("STAGE_OUT", JobState.RUNNING),
        ("SPECIAL_EXIT", JobState.PENDING),
        ("REQUEUE_HOLD", JobState.PENDING),
        ("TIMEOUT", JobState.ENDED),
        ("NODE_FAIL", JobState.ENDED),
        ("OUT_OF_MEMORY", JobState.ENDED),
    ],
)
def test_states(word: str, state: JobState) -> None:
    job = read(squeue(word=word)).job
    assert (job.state, job.detail) == (state, word)


def test_a_suspended_or_running_job_of_priority_0_is_not_held() -> None:
    assert not read(squeue(word="SUSPENDED")).job.held
    assert not read(squeue(word="RUNNING", reason="JobHeldAdmin")).job.held


def test_completing_after_the_end() -> None:
    job = read(squeue(word="COMPLETING", end=str(NOW - 1), priority="7")).job
    assert (job.state, job.completing, job.eligible) == (JobState.ENDED, True, False)


@pytest.mark.parametrize("end", [str(NOW + 600), "N/A"])
def test_completing_after_a_requeue(end: str) -> None:
    """Slurm shows the end that it would have if it started now; without a time limit, none."""
    job = read(squeue(word="COMPLETING", end=end, start=str(NOW), reason="None", priority="7"), restarts=1).job
    assert (job.state, job.completing, job.held) == (JobState.PENDING, True, False)


def test_begin_time() -> None:
    assert not read(squeue(start=str(NOW + 1))).job.eligible
    assert read(squeue(start=str(NOW))).job.eligible


def test_the_guess_of_the_scheduler_is_no_begin_time() -> None:
    assert read(squeue(reason="Resources", priority="7", start=str(NOW + 600))).job.eligible


def test_slurms_delay_after_a_requeue_counts_for_nothing() -> None:
    delayed = squeue(submit=str(NOW), start=str(NOW + 121), reason="BeginTime", priority="7")
    assert read(delayed, restarts=1).job.eligible
    assert not read(delayed, restarts=0).job.eligible
    assert not read(squeue(submit=str(NOW), start=str(NOW + 600), reason="BeginTime", priority="7"), 1).job.eligible


def test_dependency_of_a_held_job() -> None:
    job = read(squeue(dependency="afterok:11(unfulfilled)")).job
    assert (job.held, job.eligible, job.reason) == (True, False, HELD_DEPENDENCY)


@pytest.mark.parametrize("reason", ["Dependency", "DependencyNeverSatisfied", "None"])
def test_gated_job_with_a_dependency(reason: str) -> None:
    gate = str(NOW - 100 + GATE_S)
    row = read(squeue(dependency="afterok:11(failed)", reason=reason, priority="7", start=gate))
    assert (row.gated, row.job.held, row.job.eligible, row.job.reason) == (True, True, False, reason)


def test_gated_job_whose_dependency_is_fulfilled() -> None:
    row = read(squeue(reason="BeginTime", priority="7", start=str(NOW - 100 + GATE_S)))
    assert (row.gated, row.job.held, row.job.eligible) == (True, True, True)


def test_gated_job_with_a_begin_time_of_its_own() -> None:
    row = read(squeue(reason="BeginTime", priority="7", start=str(NOW + 50 + GATE_S)))
    assert (row.gated, row.job.held, row.job.eligible) == (True, True, False)


def array(*elements: tuple[str, str, str]) -> str:
    """Rows of array 20: (index, job id, state)."""
    return "".join(
        squeue(
            display_id=f"20_{index}",
            task=index,
            job_id=job_id,
            array_id="20",
            word=word,
            priority="0" if word == "PENDING" else "7",
        )
        for index, job_id, word in elements
    )


def test_elements_without_a_record_of_their_own() -> None:
    text = array(("1", "20", "PENDING"), ("2", "21", "PENDING"), ("3", "20", "PENDING"))
    rows = slurm_text.job_rows(text, TOKEN, {}, NOW)
    assert [row.job.split for row in rows] == [False, True, False]
    assert [row.target for row in rows] == ["20_1", "20_2", "20_3"]
    assert read(squeue()).target == "12"


def test_the_last_element_has_the_id_of_its_array() -> None:
    rows = slurm_text.job_rows(array(("1", "21", "RUNNING"), ("2", "20", "PENDING")), TOKEN, {}, NOW)
    assert [row.job.split for row in rows] == [True, True]


@pytest.mark.parametrize(
    ("limit", "eligible"), [(0, ["2", "3", "10"]), (1, []), (2, ["2"]), (3, ["2", "3"]), (9, ["2", "3", "10"])]
)
def test_array_limit(limit: int, eligible: list[str]) -> None:
    text = array(("1", "21", "SUSPENDED"), ("10", "20", "PENDING"), ("2", "20", "PENDING"), ("3", "20", "PENDING"))
    rows = slurm_text.job_rows(text, TOKEN, {}, NOW)
    assert slurm_text.limited_arrays(rows) == {20}
    limited = slurm_text.within_array_limits(rows, {20: limit} if limit else {})
    assert sorted((row.task for row in limited if row.job.eligible), key=int) == eligible


def test_array_limit_is_read_before_the_users_own_words() -> None:
    captured = (
        "JobId=48 ArrayJobId=48 ArrayTaskId=1-3%1 ArrayTaskThrottle=1 JobName=x ArrayTaskThrottle=99 UserId=alice(2001)"
        " Comment= ArrayTaskThrottle=98 \n"
        "JobId=50 ArrayJobId=48 ArrayTaskId=1 JobName=t.sh UserId=alice(2001)\n"
    )
    assert slurm_text.array_limit(captured) == 1
    assert slurm_text.array_limit("JobId=12 JobName= ArrayTaskThrottle=9") == 0


def test_restart_counts() -> None:
    assert slurm_text.restart_counts("40          0           \n44          2           \n") == {40: 0, 44: 2}


NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.41 AvailableFeatures=big "
    "ActiveFeatures=big Gres=(null) NodeAddr=10.9.9.1 NodeHostName=n1 Port=7001 Version=22.05.8 "
    "OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=2000 AllocMem=0 FreeMem=23149 Sockets=2 Boards=1 "
    "State={} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=plain,vjob  "
    "Comment=NodeName=n9 State=DOWN CPUTot=99 Reason=State=DOWN [root@2026-11-21T09:00:00]\n"
)


@pytest.mark.parametrize(
    ("state", "up", "draining"),
    [
        ("IDLE", True, False),
        ("MIXED", True, False),
        ("ALLOCATED+COMPLETING", True, False),
        ("IDLE+PLANNED", True, False),
        ("IDLE+DRAIN", True, True),
        ("MIXED+DRAIN", True, True),
        ("DOWN", False, False),
        ("DOWN+DRAIN", False, True),
        ("IDLE*", False, False),
        ("DOWN*+DRAIN", False, True),
        ("IDLE+NOT_RESPONDING", False, False),  # 23.02 and later
        ("IDLE+POWERED_DOWN", False, False),
        ("UNKNOWN*", False, False),
        ("FUTURE", False, False),
        ("IDLE+FAIL", True, True),
    ],
)
def test_nodes(state: str, up: bool, draining: bool) -> None:
    found = slurm_text.nodes(NODE.format(state))
    assert list(found) == ["n1"]
    node = found["n1"]
    assert (node.cpus, node.memory_mib, node.up, node.draining, node.state) == (2, 2000, up, draining, state)


def test_partitions() -> None:
    captured = (
        "PartitionName=vjob AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
        "DefaultTime=00:10:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=30 Hidden=NO MaxNodes=UNLIMITED "
        "MaxTime=01:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-2] PriorityJobFactor=1 PriorityTier=10 "
        "RootOnly=NO ReqResv=NO OverSubscribe=FORCE:4 OverTimeLimit=NONE PreemptMode=SUSPEND State=UP TotalCPUs=4 "
        "TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
        "PartitionName=empty GraceTime=0 Nodes=(null) PriorityTier=1 PreemptMode=OFF State=DRAIN\n"
    )
    found = slurm_text.partitions(captured)
    vjob = found["vjob"]
    assert (vjob.up, vjob.nodes, vjob.preempt_mode) == (True, ("n1", "n2"), "SUSPEND")
    assert (vjob.priority_tier, vjob.grace_time_s) == (10, 30)
    assert (found["empty"].up, found["empty"].nodes) == (False, ())


def test_configuration() -> None:
    captured = (
        "Configuration data as of 2026-11-21T09:23:26\n"
        "PreemptMode             = OFF\nPreemptType             = preempt/none\n"
        "SchedulerParameters     = bf_interval=5,sched_interval=5\n\nSlurmctld(primary) at head is UP\n"
    )
    found = slurm_text.configuration(captured)
    assert found["PreemptMode"] == "OFF"
    assert found["SchedulerParameters"] == "bf_interval=5,sched_interval=5"


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:00:00", 0), ("00:10:05", 605), ("1-02:00:00", 93600), ("N/A", 0), ("", 0)]
)
def test_duration(text: str, seconds: int) -> None:
    assert slurm_text.duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "mib"),
    [("0", 0), ("64M", 64), ("2G", 2048), ("1.50G", 1536), ("1T", 1048576), ("100Mc", 100), ("512K", 0)],
)
def test_memory(text: str, mib: int) -> None:
    assert read(squeue(memory=text)).job.memory_mib == mib
