"""What the script finds in its environment, and what the wrapper makes of Slurm's words."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.vjob import Geometry
from rmsplugin.wrapper import signals
from rmsplugin.wrapper.main import check_command_line
from rmsplugin.wrapper.prepare import environment
from rmsplugin.wrapper.signals import Fate

GEOMETRY = Geometry(vms=2, cpus=4, memory_mib=512, ntasks=3, cpus_per_task=2)


@pytest.mark.parametrize(
    ("geometry", "cpus", "tasks"),
    [
        (Geometry(2, 3, 768, 5, small_cpus=2, small_memory_mib=512), "3,2", "3,2"),
        (Geometry(3, 6, 768, 8, 2, small_cpus=4, small_memory_mib=512), "6(x2),4", "3(x2),2"),
        (Geometry(4, 2, 512, 5, small_cpus=1, small_memory_mib=256), "2,1(x3)", "2,1(x3)"),
    ],
)
def test_each_node_has_the_cpus_of_its_tasks(geometry: Geometry, cpus: str, tasks: str) -> None:
    names = [f"vjob12-{index}" for index in range(geometry.vms)]
    result = environment.script_environment({}, geometry, names, user="alice", home="/", hints={"x_memory=per_cpu"})
    assert (result["SLURM_JOB_CPUS_PER_NODE"], result["SLURM_TASKS_PER_NODE"]) == (cpus, tasks)
    assert result["SLURM_CPUS_ON_NODE"] == str(geometry.cpus)
    assert result["SLURM_MEM_PER_CPU"] == str(geometry.memory_mib // geometry.cpus)


@pytest.mark.parametrize(
    ("geometry", "per_node", "tasks"),
    [
        (Geometry(2, 2, 256, 3), "2", "2(x2)"),  # natively: measured
        (Geometry(2, 2, 256, 4), "2", "2(x2)"),
        (Geometry(2, 2, 256, 3), "", "2,1"),
        (Geometry(2, 2, 256, 3, small_cpus=1, small_memory_mib=128), "2", "2,1"),  # of another job
        (Geometry(2, 2, 256, 3), "3", "2,1"),
        (Geometry(2, 2, 256, 3), "many", "2,1"),
    ],
)
def test_tasks_per_node_that_were_asked_for_are_told_where_there_are_fewer(
    geometry: Geometry, per_node: str, tasks: str
) -> None:
    environ = {"SLURM_NTASKS_PER_NODE": per_node}
    result = environment.script_environment(environ, geometry, ["vjob12-0", "vjob12-1"], user="alice", home="/")
    assert result["SLURM_TASKS_PER_NODE"] == tasks


def test_the_nodes_of_the_job_are_its_vms() -> None:
    environ = {
        "PATH": "/usr/bin",
        "MINE": "kept",
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_MEM_PER_CPU": "1",
        "SLURM_TOPOLOGY_ADDR": "n1",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURM_TASK_PID": "4711",
        "HOSTNAME": "front1",
    }
    result = environment.script_environment(
        environ, GEOMETRY, ("vjob12-0", "vjob12-1"), user="alice", home="/home/alice"
    )
    assert result == {
        "PATH": "/run/rmsplugin/bin:/usr/bin",
        "HOME": "/home/alice",
        "USER": "alice",
        "LOGNAME": "alice",
        "MINE": "kept",
        "RMSPLUGIN_HOSTFILE": "/run/rmsplugin/etc/hostfile",
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NODELIST": "vjob12-[0-1]",
        "SLURM_NODELIST": "vjob12-[0-1]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2",
        "SLURM_NTASKS": "3",
        "SLURM_NPROCS": "3",
        "SLURM_TASKS_PER_NODE": "2,1",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_MEM_PER_NODE": "512",
        "SLURMD_NODENAME": "vjob12-0",
        "SLURM_TOPOLOGY_ADDR": "vjob12-0",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "HOSTNAME": "vjob12-0",
    }


def test_what_was_not_asked_for_is_not_told() -> None:
    result = environment.script_environment(
        {"SLURM_MEM_PER_NODE": "1024", "SLURM_NTASKS": "3"},
        GEOMETRY,
        ("vjob12-0", "vjob12-1"),
        user="alice",
        home="/home/alice",
        hints=("vms=2", "x_ntasks=default", "x_memory=per_cpu"),
    )
    assert result["SLURM_MEM_PER_CPU"] == "128"
    assert not {"SLURM_MEM_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS"} & set(result)


@pytest.mark.parametrize(
    ("ntasks", "nodes", "words"), [(4, 2, "2(x2)"), (3, 2, "2,1"), (1, 1, "1"), (8, 3, "3(x2),2"), (1, 2, "1")]
)
def test_tasks_per_node(ntasks: int, nodes: int, words: str) -> None:
    assert environment.tasks_per_node(ntasks, nodes) == words


WORDS = st.lists(st.binary(max_size=20).map(lambda word: os.fsdecode(word.replace(b"\0", b"'"))), max_size=5)


@pytest.mark.parametrize("shell", [["dash"], ["busybox", "ash"]], ids=" ".join)
@given(words=WORDS)
def test_every_argument_survives_the_shell(shell: list[str], words: list[str]) -> None:
    script = environment.arguments_file(words) + b'exec printf "%s\\0" "$@" end\n'
    result = subprocess.run(shell, input=script, capture_output=True, check=True)
    assert result.stdout == b"".join(os.fsencode(word) + b"\0" for word in [*words, "end"])


@pytest.mark.parametrize(
    ("line", "restarts", "fate"),
    [
        # Slurm 22.05, measured: the state alone does not tell a cancellation from a requeue.
        ("JobId=4 JobName=x UserId=u(1001) JobState=COMPLETING Reason=None Restarts=1", 0, Fate.REQUEUED),
        ("JobId=4 JobName=x UserId=u(1001) JobState=COMPLETING Reason=None Restarts=1", 1, Fate.ENDING),
        ("JobId=1 JobName=x UserId=u(1001) JobState=COMPLETING Reason=None Restarts=0", 0, Fate.ENDING),
        ("JobId=3 JobName=x UserId=u(1001) JobState=COMPLETING Reason=TimeLimit Restarts=0", 0, Fate.ENDING),
        ("JobId=3 JobName=x UserId=u(1001) JobState=TIMEOUT Restarts=0", 0, Fate.ENDING),
        ("JobId=2 JobName=x UserId=u(1001) JobState=RUNNING Reason=None Restarts=0", 0, Fate.RUNNING),
        ("JobId=2 JobName=x UserId=u(1001) JobState=STOPPED Reason=None Restarts=0", 0, Fate.RUNNING),
        ("JobId=2 JobName=x UserId=u(1001) JobState=PENDING Reason=BeginTime Restarts=0", 0, Fate.REQUEUED),
        ("", 0, Fate.UNKNOWN),
        # What users write into their jobs, and the other tasks of the array whose last one has its id.
        ("JobName=a JobState=FAILED UserId=u(1) JobState=RUNNING Restarts=0 Comment=JobState=FAILED", 0, Fate.RUNNING),
        ("JobName=a Restarts=9 UserId=u(1) JobState=RUNNING Restarts=0 Comment=b Restarts=9", 0, Fate.RUNNING),
        (
            "JobId=5 JobName=x UserId=u(1001) JobState=COMPLETING Restarts=0 BatchFlag=1\n"
            "JobId=6 JobName=x UserId=u(1001) JobState=RUNNING Restarts=1 BatchFlag=1\n",
            0,
            Fate.ENDING,
        ),
    ],
)
def test_what_slurm_does_to_the_job(line: str, restarts: int, fate: Fate) -> None:
    assert signals.parse_fate(line, restarts) == fate


def test_the_wrapper_takes_what_a_user_can_send_and_leaves_its_own_faults() -> None:
    taken = signals.taken()
    assert {signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGTSTP, signal.SIGRTMIN} <= taken
    assert not {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGPIPE} & taken


def test_a_command_line_that_is_not_slurms() -> None:
    geometry = "vms=1,cpus=1,memory=1,ntasks=1,cpus_per_task=1,image=default"
    check_command_line(["w", geometry, "s", "a"], {"SLURM_JOB_ID": "7"})
    for argv, environ in [
        (["w", geometry], {"SLURM_JOB_ID": "7"}),
        (["w", geometry, "s"], {}),
        (["w", geometry, "s"], {"SLURM_JOB_ID": "../7"}),
        (["w", "vms=1", "s"], {"SLURM_JOB_ID": "7"}),
    ]:
        with pytest.raises(ValueError, match=r"."):
            check_command_line(argv, environ)
