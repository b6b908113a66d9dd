"""Reading what a job asks for on each of its nodes, on output captured from Slurm 22.05.8."""

from __future__ import annotations

import pytest

from rmsplugin.adapters.rms.slurm_request import geometry
from rmsplugin.errors import RefusedError
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.vjob import Geometry

JOB = """\
JobId=50001 JobName=two.sh
   UserId=alice(2001) GroupId=physics(2001) MCS_label=N/A
   Priority=100000 Nice=0 Account=users QOS=normal
   JobState=PENDING Reason=Licenses Dependency=(null)
   Partition=batch AllocNode:Sid=head:0
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=
   NumNodes=2-2 NumCPUs=4 NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=4,mem=800M,node=2,billing=4
   Socks/Node=* NtasksPerN:B:S:C=2:0:*:* CoreSpec=*
   MinCPUsNode=2 MinMemoryNode=400M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=vjobgate Network=(null)
   Command=/home/alice/two.sh
   WorkDir=/home/alice
   Power=
"""


def test_a_job_of_two_nodes_has_half_of_its_cpus_on_each() -> None:
    assert geometry(JOB) == Geometry(2, 2, 400, ntasks=4)


def test_memory_for_each_cpu_is_that_of_all_cpus_of_a_node() -> None:
    text = JOB.replace("MinMemoryNode=400M", "MinMemoryCPU=1.50G")
    assert geometry(text).memory_mib == 2 * 1536


def test_tasks_with_several_cpus_are_known() -> None:
    text = JOB.replace("NumNodes=2-2 NumCPUs=4 NumTasks=4 CPUs/Task=1", "NumNodes=1 NumCPUs=6 NumTasks=3 CPUs/Task=2")
    assert geometry(text) == Geometry(1, 6, 400, ntasks=3, cpus_per_task=2)


def test_nodes_and_features_that_its_user_names_are_its_constraints() -> None:
    text = JOB.replace("ReqNodeList=(null) ExcNodeList=(null)", "ReqNodeList=n[1-2] ExcNodeList=n3,n5").replace(
        "Features=(null)", "Features=a&b"
    )
    assert geometry(text).constraints == Constraints.parse(features="a&b", nodes="n[1-2]", exclude="n3,n5")


def test_elements_of_an_array_that_ask_for_the_same_are_one() -> None:
    assert geometry(f"{JOB}\n{JOB.replace('50001', '50002')}").vms == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("NumNodes=2-2", "NumNodes=1-3", "asks for 1-3 nodes"),
        ("NumCPUs=4", "NumCPUs=5", "5 CPUs are not the same number on each of its 2 nodes"),
        ("MinMemoryNode=400M", "MinMemoryNode=0", "asks for no memory"),
        ("OverSubscribe=OK", "OverSubscribe=NO", "whole nodes"),
        ("Features=(null)", "Features=[a*2]", "cannot be read"),
        ("   NumNodes=2-2", "   Nodes=2", "says nothing of its NumNodes"),
        ("two.sh\n", "x\n   MinCPUsNode=2 MinMemoryNode=1M MinTmpDiskNode=0\n", "two things of its MinMemory"),
        ("two.sh\n", "x\n   ReqNodeList=n9 ExcNodeList=(null)\n", "two things of its ReqNodeList"),
    ],
)
def test_what_cannot_be_known_or_may_be_a_users_text_is_refused(old: str, new: str, words: str) -> None:
    assert JOB.count(old) >= 1
    with pytest.raises(RefusedError, match=words.replace("[", r"\[")):
        geometry(JOB.replace(old, new, 1))
