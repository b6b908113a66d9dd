"""Reading scontrol's records, on output captured from Slurm 22.05.8; where it says so, as other releases spell it."""

from __future__ import annotations

import math

import pytest

from rmsplugin.adapters.rms import slurm_records
from rmsplugin.adapters.rms.base import MailWish, Overseers, Readings

NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.41 AvailableFeatures=big,ib "
    "ActiveFeatures=big,ib Gres=(null) NodeAddr=10.9.9.1 NodeHostName=n1 Port=7001 Version=22.05.8 "
    "OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=2000 AllocMem=0 FreeMem=23149 Sockets=2 Boards=1 "
    "State={} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=plain,vjob  "
    "ExtSensorsTemp=n/s{}\n"
)


def test_what_jobs_have_of_a_node() -> None:
    text = NODE.format("MIXED", "").replace("CPUAlloc=0", "CPUAlloc=1").replace("AllocMem=0", "AllocMem=800")
    (node,) = slurm_records.nodes(text).values()
    assert (node.cpus_taken, node.memory_taken_mib) == (1, 800)


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
    comment = " Comment=NodeName=n9 State=DOWN CPUTot=99 Reason=y"
    found = slurm_records.nodes(NODE.format(state, f" Reason=State=DOWN [root@1795253000]{comment}"))
    assert list(found) == ["n1"]
    node = found["n1"]
    assert (node.cpus, node.memory_mib, node.up, node.draining, node.state) == (2, 2000, up, draining, state)
    assert node.features == ("big", "ib")
    assert (node.address, node.port) == ("10.9.9.1", 7001)


def test_of_several_ports_the_first_one_is_taken() -> None:
    assert [slurm_records.port(text) for text in ("6818", "6818-6820", "", "(null)")] == [6818, 6818, 0, 0]


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("", Readings(0.41, 23149, None, None)),
        (" CurrentWatts=310 AveWatts=290", Readings(0.41, 23149, 310, None)),
        (" CurrentWatts=0 AveWatts=0", Readings(0.41, 23149, None, None)),
        (" CurrentWatts=n/s AveWatts=n/s", Readings(0.41, 23149, None, None)),
    ],
)
def test_what_slurmd_measured_on_a_node(printed: str, told: Readings) -> None:
    text = NODE.format("IDLE", "")
    assert slurm_records.nodes(text.replace(" ExtSensorsTemp", f"{printed} ExtSensorsTemp"))["n1"].readings == told
    silent = text.replace("0.41", "N/A").replace("23149", "N/A").replace("Temp=n/s", "Temp=41")
    assert slurm_records.nodes(silent)["n1"].readings == Readings(temperature_c=41)


def test_a_node_whose_load_has_changed_is_the_same_node() -> None:
    text = NODE.format("IDLE", "")
    assert slurm_records.nodes(text) == slurm_records.nodes(text.replace("0.41", "7.5"))


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("", ""),
        (" Reason=disk [slurm@1795308330]", "disk"),
        (" Reason=disk [x] a=b State=IDLE [slurm@1795308330] Comment=a Reason=x b Extra=State=DOWN y", None),
        (" Reason=ask me [a@b] later [root@2026-11-21T09:00:00]", "ask me [a@b] later"),
        (" Reason=Not responding", "Not responding"),
    ],
)
def test_reason(printed: str, reason: str | None) -> None:
    found = slurm_records.nodes(NODE.format("IDLE+DRAIN", printed))["n1"]
    assert found.reason == ("disk [x] a=b State=IDLE" if reason is None else reason)


def test_no_features() -> None:
    text = NODE.format("IDLE", "").replace("ActiveFeatures=big,ib", "ActiveFeatures=(null)")
    assert slurm_records.nodes(text)["n1"].features == ()


def test_partitions() -> None:
    captured = (
        "PartitionName=vmhosts AllowGroups=slurm,ops AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
        "DefaultTime=00:10:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=60 Hidden=YES MaxNodes=UNLIMITED "
        "MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-2] PriorityJobFactor=1 "
        "PriorityTier=10 RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE OverTimeLimit=NONE PreemptMode=CANCEL State=UP "
        "TotalCPUs=4 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED\n"
        "PartitionName=empty AllowGroups=ALL GraceTime=0 Hidden=NO MaxTime=UNLIMITED Nodes=(null) PriorityTier=1 "
        "OverSubscribe=NO PreemptMode=OFF State=DRAIN\n"
    )
    found = slurm_records.partitions(captured)
    hosts, empty = found["vmhosts"], found["empty"]
    assert (hosts.up, hosts.nodes, hosts.preempt_mode) == (True, ("n1", "n2"), "CANCEL")
    assert (hosts.priority_tier, hosts.grace_time_s, hosts.max_time_s) == (10, 60, 86400)
    assert (hosts.exclusive, hosts.hidden, hosts.allow_groups) == (True, True, ("slurm", "ops"))
    assert (empty.up, empty.nodes, empty.max_time_s) == (False, (), math.inf)
    assert (empty.exclusive, empty.hidden, empty.allow_groups) == (False, False, ())


def test_reservations() -> None:
    captured = (
        "ReservationName=rmsplugin_gate StartTime=1795307649 EndTime=1826843649 Duration=365-00:00:00 Nodes=(null) "
        "NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=ANY_NODES TRES=(null) Users=slurm Groups=(null)"
        " Accounts=(null) Licenses=vjobgate:1 State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
        "ReservationName=m2 StartTime=1795326331 EndTime=1795329931 Duration=01:00:00 Nodes=n[1,3] NodeCnt=2 CoreCnt=4 "
        "Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=2 Users=root,bob "
        "Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a\n"
    )
    found = slurm_records.reservations(captured)
    gate, maintenance = found["rmsplugin_gate"], found["m2"]
    assert (gate.nodes, gate.licenses, gate.users, gate.flags) == ((), {"vjobgate": 1}, ("slurm",), ("ANY_NODES",))
    assert (gate.start_time, gate.end_time) == (1795307649, 1826843649)
    assert (maintenance.nodes, maintenance.licenses, maintenance.users) == (("n1", "n3"), {}, ("root", "bob"))
    assert maintenance.flags == ("MAINT", "IGNORE_JOBS", "SPEC_NODES")
    assert slurm_records.reservations("No reservations in the system\n") == {}


def test_leaf_switches() -> None:
    """As topology.conf(5) has them; a switch above others has all their nodes."""
    printed = (
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-3] \n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[4-5],m7 \n"
        "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[0-5],m7 Switches=s[0-1] \n"
    )
    assert slurm_records.leaf_switches(printed) == (("n0", "n1", "n2", "n3"), ("n4", "n5", "m7"))
    assert slurm_records.leaf_switches("BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n") == (("n1", "n2"),)
    assert slurm_records.leaf_switches("No topology information available\n") == ()


def test_configuration() -> None:
    captured = (
        "Configuration data as of 2026-11-21T09:23:26\n"
        "PreemptMode             = OFF\nPreemptType             = preempt/none\n"
        "SchedulerParameters     = bf_interval=5,sched_interval=5\n\nSlurmctld(primary) at head is UP\n"
    )
    found = slurm_records.configuration(captured)
    assert found["PreemptMode"] == "OFF"
    assert slurm_records.preempt_type(found) == "preempt/none"
    assert found["SchedulerParameters"] == "bf_interval=5,sched_interval=5"


def test_no_preemption_as_newer_releases_say_it() -> None:
    found = slurm_records.configuration("PreemptMode             = OFF\nPreemptType             = (null)\n")
    assert slurm_records.preempt_type(found) == "preempt/none"
    assert slurm_records.preempt_type({"PreemptType": "preempt/qos"}) == "preempt/qos"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("00:00:00", None),  # as it is without one in slurm.conf (22.05 and 24.11)
        ("00:05:00", 300.0),
        ("1-00:00:30", 86430.0),
        ("NONE", 0.0),  # -1 in slurm.conf
    ],
)
def test_preempt_exempt_time(said: str, seconds: float | None) -> None:
    found = slurm_records.configuration(f"PreemptType             = preempt/none\nPreemptExemptTime       = {said}\n")
    assert slurm_records.preempt_exempt_s(found) == seconds


def test_a_configuration_without_a_preempt_exempt_time_has_none() -> None:
    assert slurm_records.preempt_exempt_s({}) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(null)", {}),
        ("vjobgate:1", {"vjobgate": 1}),
        ("vjobgate,matlab:40,old*3,new=2", {"vjobgate": 1, "matlab": 40, "old": 3, "new": 2}),
    ],
)
def test_licences(text: str, found: dict[str, int]) -> None:
    assert slurm_records.licenses(text) == found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00:00", 0), ("00:10:05", 605), ("1-02:00:00", 93600), ("10:05", 605), ("0:30", 30), ("N/A", 0), ("", 0)],
)
def test_duration(text: str, seconds: int) -> None:
    assert slurm_records.duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("UNLIMITED", math.inf), ("NOT_SET", math.inf), ("INVALID", math.inf), ("10:00", 600)],
        ("2-00:00:00", 172800),
        # What Slurm writes now and then of a job without a limit; pyslurm tells it in minutes.
        *[("365-00:00:00", math.inf), ("525600:00", math.inf), ("364-23:59:00", 365 * 86400 - 60)],
    ],
)
def test_limit(text: str, seconds: float) -> None:
    assert slurm_records.limit_s(text) == seconds


@pytest.mark.parametrize(
    ("exits", "holds", "codes"),
    [("(null)", "(null)", set()), ("77", "(null)", {77}), ("1-3,100", "5", {1, 2, 3, 5, 100}), ("x,7", "", {7})],
)
def test_codes_for_which_slurm_queues_a_job_again(exits: str, holds: str, codes: set[int]) -> None:
    found = slurm_records.configuration(f"RequeueExit             = {exits}\nRequeueExitHold         = {holds}\n")
    assert slurm_records.requeue_exits(found) == codes


@pytest.mark.parametrize(
    ("told", "kept"),
    [("none", set()), ("(null)", set()), ("jobs", {"jobs"}), ("accounts,jobs,usage", {"accounts", "jobs", "usage"})],
)
def test_what_slurm_keeps_private(told: str, kept: set[str]) -> None:
    found = slurm_records.configuration(f"PrivateData             = {told}\n")
    assert slurm_records.private_data(found) == kept
    assert slurm_records.private_data({}) == set()


JOB = """JobId=12 JobName=a MailUser=eve MailType=ALL
   UserId=alice(2001) GroupId=users(100) MCS_label=N/A
   Comment=MailUser=eve MailType=ALL
{said}   Power=
"""


def test_the_mail_that_a_job_asks_for() -> None:
    said = "   MailUser=alice@example.org MailType=BEGIN,END\n"
    kinds = frozenset({"BEGIN", "END"})
    assert slurm_records.mail_wish(JOB.format(said=said)) == MailWish(2001, "alice@example.org", kinds)
    assert slurm_records.mail_wish(JOB.format(said="")) is None
    assert slurm_records.mail_wish("") is None


def test_who_may_know_of_jobs_of_others() -> None:
    users = "alice|None\nroot|Administrator\nolga|Operator\n"
    found = slurm_records.overseers(users, "physics|carol,dave\nroot|\nusers|carol\n")
    assert found == Overseers(
        operators=frozenset({"root", "olga"}),
        coordinators={"physics": frozenset({"carol", "dave"}), "users": frozenset({"carol"})},
    )
    assert slurm_records.overseers("", "") == Overseers()


def test_answers_to_questions_from_a_pipe_have_no_prompts() -> None:
    said = "scontrol: show node\nNodeName=n1\nscontrol: scontrol: show config\nComment=scontrol: x\nscontrol: "
    assert slurm_records.answers(said) == "show node\nNodeName=n1\nshow config\nComment=scontrol: x\n"
