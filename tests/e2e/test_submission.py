"""What Slurm knows of a vjob from its submission on: its size, the gate, what is refused, and what may be changed.

Holds without an engine as well (`minicluster up --no-engine`); the tests then make the gate's reservation, and open the
gate, with the engine's own commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import pytest
from e2e.cluster import Cluster, Result

from rmsplugin.model.constraints import Constraints

pytestmark = pytest.mark.e2e

SCRIPT = "#!/bin/sh\nsleep 300\n"


@pytest.fixture(autouse=True)
def gate(cluster: Cluster) -> None:
    """The gate is shut: the engine does that in its first cycle."""
    cluster.wait("the gate", lambda: "rmsplugin_gate" in cluster.ok("scontrol", "show", "reservation"), 60)


def submit(cluster: Cluster, *options: str, user: str = "alice", home: str = "alice") -> Result:
    (cluster.home(home) / "submission.sh").write_text(SCRIPT)
    words = ["sbatch", "--parsable", "-p", "vjob", *options, f"/home/{home}/submission.sh"]
    return cluster.run("sh", "-c", f"cd /home/{home} && exec {shlex.join(words)}", user=user)


def accepted(cluster: Cluster, *options: str, user: str = "alice") -> int:
    result = submit(cluster, *options, user=user)
    assert result.code == 0, result.err
    return int(result.out)


def waiting(cluster: Cluster, *options: str) -> int:
    """A job that stays in the queue, because none of its user's jobs may start yet."""
    return accepted(cluster, "--begin=now+1hour", *options)


def update(cluster: Cluster, job: int | str, change: str, user: str = "alice") -> Result:
    return cluster.run("scontrol", "update", f"JobId={job}", change, user=user)


def each(cluster: Cluster, command: str, words: Iterable[str], user: str = "alice") -> dict[str, str]:
    """What a command says of each of many words (`$word` in it), in one call: "exit CODE" and all that it prints."""
    loop = f'cd /home/alice && for word; do echo "@@$word"; {command}; echo "exit $?"; done 2>&1'
    printed = cluster.ok("sh", "-c", loop, "sh", *words, user=user, timeout_s=300)
    return dict(part.split("\n", 1) for part in printed.split("@@")[1:])


def licences(cluster: Cluster, job: int | str) -> str:
    return cluster.ok("squeue", "-h", "-j", str(job), "-o", "%W").strip()


def start(cluster: Cluster, job: int) -> None:
    """Have Slurm start the job: the engine does, and where there is none its command."""
    if cluster.ask("/v1/status") is None:
        cluster.ok("scontrol", "update", f"JobId={job}", "Licenses=", user="slurm")
    cluster.wait_job(job, "CONFIGURING", "RUNNING")


# --- the size ---


@pytest.mark.usefixtures("no_new_templates")
@pytest.mark.parametrize(
    ("options", "memory", "tres", "tasks"),
    [
        (("-n", "3", "-c", "2", "--mem-per-cpu=256M"), "1.50G", "billing=6,cpu=6,mem=1.50G,node=1", ("3", "2")),
        (("-N", "2", "-n", "3", "--mem=200"), "400M", "billing=3,cpu=3,mem=400M,node=1", ("3", "1")),
        (("-N", "2", "--ntasks-per-node=2", "--mem=150"), "300M", "billing=4,cpu=4,mem=300M,node=1", ("4", "1")),
        (("-n", "3", "--mem=400"), "402M", "billing=3,cpu=3,mem=402M,node=1", ("3", "1")),
    ],
    ids=["memory for each cpu", "uneven tasks", "tasks for each node", "shared memory"],
)
def test_slurm_counts_what_was_asked_for(
    cluster: Cluster, options: tuple[str, ...], memory: str, tres: str, tasks: tuple[str, str]
) -> None:
    job = accepted(cluster, *options)
    start(cluster, job)
    fields = cluster.job(job)
    assert (fields["NumNodes"], fields["NumTasks"], fields["CPUs/Task"]) == ("1", *tasks)
    # Accounting may know the job, and not yet that it has begun.
    (row,) = cluster.wait(
        "accounting", lambda: [row for row in cluster.sacct(job, "reqmem,alloctres") if row["AllocTRES"]], 30
    )
    assert mebibytes(row["ReqMem"]) == mebibytes(memory)
    assert tres_counts(row["AllocTRES"]) == tres_counts(tres)


def mebibytes(text: str) -> float:
    return float(text.rstrip("MG")) * (1024 if text.endswith("G") else 1)


def tres_counts(text: str) -> dict[str, float]:
    return {key: mebibytes(value) for key, value in (pair.split("=") for pair in text.split(","))}


@pytest.fixture
def strict_qos(cluster: Cluster) -> Iterator[None]:
    """Limits of the users' QOS, which Slurm looks at when a job is submitted."""
    cluster.ok("sacctmgr", "-i", "modify", "qos", "normal", "set", "flags=DenyOnLimit", "MaxTRESPerUser=cpu=4,mem=1000")
    try:
        yield
    finally:
        limits = ("MaxTRESPerUser=cpu=-1,mem=-1",)
        cluster.ok("sacctmgr", "-i", "modify", "qos", "normal", "set", "flags-=DenyOnLimit", *limits)
        wait_for_limits(cluster, "MaxTRESPU=cpu=N(0),mem=N(0)")


def wait_for_limits(cluster: Cluster, text: str) -> None:
    def known() -> bool:
        return text in cluster.ok("scontrol", "show", "assoc_mgr", "flags=qos", "qos=normal").replace(" ", "")

    cluster.wait(f"{text!r} in slurmctld", known, 30)


@pytest.mark.usefixtures("strict_qos")
def test_limits_count_what_was_asked_for(cluster: Cluster) -> None:
    wait_for_limits(cluster, "cpu=4(")
    for options in (("-n", "5", "--mem-per-cpu=100M"), ("-n", "3", "--mem-per-cpu=400M")):
        result = submit(cluster, *options)
        assert result.code != 0
        assert "QOSMax" in result.err, result.err
    waiting(cluster, "-n", "4", "--mem-per-cpu=250M")


# --- the gate ---


def test_a_vjob_waits_behind_the_gate_and_not_in_a_hold(cluster: Cluster) -> None:
    job = waiting(cluster, "-L", "matlab:2")
    assert licences(cluster, job) == "matlab:2,vjobgate"
    assert int(cluster.job(job)["Priority"]) > 1
    nicer = waiting(cluster, "--nice=100")
    held = waiting(cluster, "--hold")
    tied = waiting(cluster, "--dependency", f"afterok:{job}")
    assert int(cluster.job(nicer)["Priority"]) == int(cluster.job(job)["Priority"]) - 100
    assert cluster.job(held)["Reason"] == "JobHeldUser"
    assert cluster.job(job)["Reason"] == "BeginTime"
    assert f"afterok:{job}" in cluster.job(tied)["Dependency"]


def test_hold_and_release_are_slurms_own(cluster: Cluster) -> None:
    job = waiting(cluster)
    cluster.ok("scontrol", "hold", str(job), user="alice")
    assert cluster.job(job)["Reason"] == "JobHeldUser"
    cluster.ok("scontrol", "release", str(job), user="alice")
    assert int(cluster.job(job)["Priority"]) > 1
    cluster.ok("scontrol", "hold", str(job))
    assert cluster.run("scontrol", "release", str(job), user="alice").code != 0
    assert cluster.job(job)["Reason"] == "JobHeldAdmin"
    cluster.ok("scontrol", "release", str(job))
    cluster.ok("scontrol", "update", f"JobId={job}", "Priority=777")
    assert cluster.job(job)["Priority"] == "777"
    assert licences(cluster, job) == "vjobgate"


def test_a_user_changes_licences_but_not_the_gate(cluster: Cluster) -> None:
    job = waiting(cluster, "-L", "matlab:2")
    assert update(cluster, job, "Licenses=matlab:1").code == 0
    assert licences(cluster, job) == "matlab:1,vjobgate"
    assert update(cluster, job, "Licenses=").code == 0
    assert licences(cluster, job) == "vjobgate"
    for change in (
        "Licenses=vjobgate",
        "Licenses=vjobgate:2",
        "Licenses=matlab,vjobgate:1",
        "Licenses=matlab|vjobgate",
    ):
        assert "denied" in update(cluster, job, change).err
    assert update(cluster, job, "Licenses=matlab:1", user="bob").code != 0
    assert licences(cluster, job) == "vjobgate"


def test_an_element_of_an_array_keeps_the_gate(cluster: Cluster) -> None:
    job = waiting(cluster, "--array=1-3")
    assert update(cluster, f"{job}_2", "Licenses=matlab:1").code == 0
    lines = cluster.ok("squeue", "-h", "-r", "-j", str(job), "-o", "%K %W").splitlines()
    assert sorted(line.split() for line in lines) == [["1", "vjobgate"], ["2", "matlab:1,vjobgate"], ["3", "vjobgate"]]


# --- what may be changed ---


def test_a_user_changes_what_does_not_change_the_vms(cluster: Cluster) -> None:
    job = waiting(cluster, "-t", "30")
    changes = ["Name=other", "Comment=mine", "TimeLimit=7", "Nice=50", "Requeue=0", "StartTime=2035-01-02T03:04:05"]
    said = each(cluster, f'scontrol update JobId={job} "$word"', changes)
    assert said == dict.fromkeys(changes, "exit 0\n")
    fields = cluster.job(job)
    assert {key: fields[key] for key in ("JobName", "Comment", "TimeLimit", "Nice", "Requeue", "StartTime")} == {
        "JobName": "other", "Comment": "mine", "TimeLimit": "00:07:00", "Nice": "50", "Requeue": "0",
        "StartTime": "2035-01-02T03:04:05",
    }  # fmt: skip
    assert licences(cluster, job) == "vjobgate"


def test_a_user_does_not_change_the_vms(cluster: Cluster) -> None:
    job = waiting(cluster)
    changes = [
        "NumCPUs=3", "NumNodes=2", "NumTasks=2", "CPUsPerTask=2", "MinCPUsNode=2", "MinMemoryNode=10", "MinMemoryCPU=9",
        "TasksPerNode=2", "Features=a", "ReqNodeList=n1", "ExcNodeList=n1", "Partition=plain", "OverSubscribe=no",
        "Contiguous=yes", "MinTmpDiskNode=5", "Switches=1", "ReservationName=x", "ReqCores=2", "Gres=gpu:1",
    ]  # fmt: skip
    before = size(cluster, job)
    said = each(cluster, f'scontrol update JobId={job} "$word"', changes)
    assert [change for change in changes if "denied" not in said[change] or "exit 0" in said[change]] == []
    assert size(cluster, job) == before


def size(cluster: Cluster, job: int) -> dict[str, str]:
    """All that Slurm shows of a job but what its scheduler writes while it looks at it."""
    changing = ("LastSchedEval", "Reason", "Scheduler", "Priority")
    return {key: value for key, value in cluster.job(job).items() if key not in changing}


# --- what is refused ---

REFUSED = [
    ("--exclusive", "does not give a VM all CPUs of its node"),
    ("--tmp=100", "--tmp asks for room on a node's disk"),
    ("-B 2:2:1", "leave out --extra-node-info"),
    ("--sockets-per-node=2", "leave out --extra-node-info"),
    ("--cores-per-socket=2", "leave out --extra-node-info"),
    ("--threads-per-core=1", "leave out --extra-node-info"),
    ("--hint=nomultithread", "--hint"),
    ("--ntasks-per-core=1", "leave out --ntasks-per-core"),
    ("--ntasks-per-socket=1", "leave out --ntasks-per-core"),
    ("-O -n 4", "--overcommit is not for VMs"),
    ("--mem=0", "--mem=0 asks for all memory"),
    ("--mem-per-cpu=0", "--mem=0 asks for all memory"),
    ("--mem=15", "too small for the image default (the least is 16)"),
    ("--mem=900G", "no node can host a VM"),
    ("-c 64", "no node can host a VM"),
    ("-n 99 --mem=9900", "CPUs that there are"),
    ("--contiguous", "--contiguous is about neighbouring nodes"),
    ("--switches=1@10", "--switches=N@TIME gives up the switches"),
    ("--reservation=foo", "leave out --reservation"),
    ("--gpu-bind=none", "VMs have no GPUs"),
    ("--gpu-freq=low", "VMs have no GPUs"),
    ("--network=sn_all", "--network is about a node's network adapters"),
    ("--bb=x", "burst buffers are not seen in VMs"),
    ("--container=/x", "--container runs a job in a container"),
    ("--batch=foo", "--batch chooses among a job's nodes"),
    ("--prefer=foo", "--prefer is a wish"),
    ("--cpu-freq=low", "leave out --cpu-freq"),
    ("-L vjobgate", "the licence vjobgate is the plugin's own"),
    ("-L matlab:1,vjobgate:1", "the licence vjobgate is the plugin's own"),
    ("-L matlab|other", "alternatives cannot be combined"),
    ("-C a*2", "VMs do not count nodes with a feature"),
    ("-C [a|b]", "brackets are not for VMs"),
    ("-C a,b", "write a&b"),
    ("-C a&", "this cannot be read"),
    ("-x n[1-", "this is no list of nodes"),
    ("-p vjob,plain", "one partition only"),
]


def test_what_a_vm_cannot_keep_is_refused_with_a_sentence(cluster: Cluster) -> None:
    said = each(cluster, "sbatch -p vjob $word --wrap true", [options for options, _ in REFUSED])
    wrong = {
        options: said[options]
        for options, text in REFUSED
        if text not in said[options] or "exit 1" not in said[options]
    }
    assert wrong == {}
    assert cluster.ok("squeue", "-h", "--user", "alice") == ""


def test_root_submits_for_users_only(cluster: Cluster) -> None:
    result = submit(cluster, user="root")
    assert result.code != 0
    assert "jobs of root do not run in VMs" in result.err
    result = submit(cluster, "--uid=alice", "--begin=now+1hour", user="root")
    assert result.code == 0, result.err
    assert cluster.ok("squeue", "-h", "-p", "vjob", "-o", "%u %W").split() == ["alice", "vjobgate"]


def test_what_changes_nothing_is_accepted(cluster: Cluster) -> None:
    harmless = [
        "--gres=none",
        "-s",
        "--tmp=0",
        "--use-min-nodes",
        "-m cyclic",
        "-k",
        "--mem-bind=local",
        "--signal=USR1",
    ]
    said = each(cluster, "sbatch --parsable -p vjob --begin=now+1hour $word --wrap true", harmless)
    assert [options for options in harmless if "exit 0" not in said[options]] == []
    assert set(cluster.ok("squeue", "-h", "-p", "vjob", "-o", "%W").split()) == {"vjobgate"}


# --- constraints ---


def test_constraints_are_kept_for_the_engine(cluster: Cluster) -> None:
    job = waiting(cluster, "-C", "a|(b&c)", "-w", "n1,n2", "-x", "n3")
    fields = cluster.job(job)
    assert [fields[key] for key in ("ReqNodeList", "ExcNodeList", "Features")] == ["(null)"] * 3
    script = cluster.ok("scontrol", "write", "batch_script", str(job), "-")
    first, rest = script.split("\n", 1)
    assert first.endswith("vms=1,cpus=1,memory=1024,ntasks=1,cpus_per_task=1,image=default,"
                          "features=a|(b&c),nodes=n[1-2],exclude=n3,x_ntasks=default")  # fmt: skip
    assert rest.rstrip("\n\0") == SCRIPT.rstrip("\n")


def test_wishes_about_vms_are_kept_for_the_engine_and_are_none_of_the_wrappers(cluster: Cluster) -> None:
    job = waiting(cluster, "--switches=2", "--exclusive", "-n", "2")
    script = cluster.ok("scontrol", "write", "batch_script", str(job), "-")
    assert ",exclusive=yes,switches=2\n" in script
    fields = cluster.job(job)
    assert "Switches" not in fields and fields["OverSubscribe"] != "NO", fields
    job = waiting(cluster, "--exclusive=mcs")
    assert ",exclusive=mcs" in cluster.ok("scontrol", "write", "batch_script", str(job), "-")
    assert cluster.job(job)["OverSubscribe"] not in ("NO", "MCS")


def test_features_mean_what_they_mean_to_slurm(cluster: Cluster) -> None:
    """Sbatch --test-only on each node of an ordinary partition, beside our own reading."""
    nodes = {"n1": "a,b", "n2": "b,c", "n3": "c"}
    try:
        for name, features in nodes.items():
            cluster.ok("scontrol", "update", f"NodeName={name}", f"Features={features}")
        expressions = ("a", "b&c", "a|c", "a|b&c", "c|a&b", "a&b|c", "a|(b&c)", "(a|b)&c", "a&(b|c)", "b&c|a&b")
        for name in nodes:
            others = ",".join(other for other in nodes if other != name)
            command = f'sbatch --test-only -p plain -x {others} -C "$word" --wrap true'
            taken = {text: "exit 0" in said for text, said in each(cluster, command, expressions).items()}
            features = nodes[name].split(",")
            assert taken == {
                text: name in Constraints.parse(features=text).allowed({name: features}) for text in expressions
            }
    finally:
        for name in nodes:
            cluster.ok("scontrol", "update", f"NodeName={name}", "AvailableFeatures=", "ActiveFeatures=")
