"""Slurm: its configuration, shared by all hosts as /etc/slurm, and its daemons."""

from __future__ import annotations

import shutil

from minicluster_lib import controllers, hosts, native
from minicluster_lib.files import write
from minicluster_lib.layout import HEAD, HEAD_ADDRESS, REPOSITORY, USERS, VENV, Cluster, Host, MiniclusterError
from minicluster_lib.settings_file import image_overhead_mib, largest_request_mib
from minicluster_lib.waiting import wait_until

HOOKS_DIRECTORY = "/etc/rmsplugin/hooks"
_HOOKS = {
    "PrologSlurmctld": "prolog_slurmctld",
    "EpilogSlurmctld": "epilog_slurmctld",
    "Prolog": "prolog",
    "Epilog": "epilog",
}
_POWER_HOOKS = {"SuspendProgram": "suspend_program", "ResumeProgram": "resume_program"}
_LUA_FILES = ("job_submit.lua", "rmsplugin.lua", "rmsplugin_options.lua", "rmsplugin_native.lua")

_MUNGE_SOCKET = "/run/munge/munge.socket.2"

# A front has no VM: what Slurm counts on it is what its wrappers' jobs have on the VM hosts.
_FRONT_CPUS = 1024
_FRONT_MEMORY_MIB = 4194304

_SLURM_CONF = """\
ClusterName=minicluster
SlurmctldHost={head}({head_address})
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge

StateSaveLocation=/var/spool/slurm/ctld
SlurmdSpoolDir=/var/spool/slurm/d
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldDebug=info
SlurmdDebug=info

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={head}
AccountingStorageEnforce=associations,limits,qos
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=10
JobCompType=jobcomp/none

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000,bf_interval=2,default_queue_depth=1000
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=100000
PriorityWeightQOS=100000
PriorityDecayHalfLife=1-0
PriorityCalcPeriod=1
{preemption}
# The gate: a licence that a reservation of the engine's takes away from everybody. Beside it one as sites have them.
Licenses=vjobgate:1,matlab:4

JobSubmitPlugins=lua
PrologFlags=Alloc
PrologEpilogTimeout=300
JobRequeue=1
JobFileAppend=0
ReturnToService=2
KillWait=5
UnkillableStepTimeout=300
MinJobAge=300
# Job ids that no other number looks like.
FirstJobId=50001
CompleteWait=0
InactiveLimit=0
SlurmctldTimeout=30
SlurmdTimeout=30
MessageTimeout=20
BatchStartTimeout=30
TreeWidth=50{power_saving}
{hooks}
DefMemPerCPU=128
{nodes}
{partitions}"""

_PREEMPTION = """\
# Rooms give way to the jobs of a partition of a higher tier. With preempt/partition_prio it is PreemptMode=REQUEUE that
# switches context switches on for a vjob partition: SUSPEND would need gang scheduling.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# What has just started is not suspended for so long (nor does it give its room back).
PreemptExemptTime=00:00:10
"""

_PARTITIONS = """\
{fronts}
PartitionName=plain Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=vjob Nodes={front_names} MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes={front_names} MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=REQUEUE{shared}
PartitionName=vmhosts Nodes={names} Hidden=YES AllowGroups=slurm OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP \
PriorityTier=1 PreemptMode=CANCEL GraceTime={grace_s}{suspend_time}
"""

# With a SuspendTime of a year Slurm powers down whatever it is asked to, and nothing of itself.
_POWER_SAVING = "\nSuspendTimeout=5\nResumeTimeout=20\nSuspendRate=0\nResumeRate=0"
_SUSPEND_TIME = " SuspendTime=30000000"

_SHARED = "\nPartitionName=shared Nodes={front_names} MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE"

_SLURMDBD_CONF = """\
AuthType=auth/munge
DbdHost={head}
DbdAddr={head_address}
SlurmUser=slurm
DebugLevel=info
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""

_ACCEPTING_JOB_SUBMIT = """\
-- Stands in until the repository has a lua/job_submit.lua: accepts every job as it is.
function slurm_job_submit(job_desc, part_list, submit_uid)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
"""


def install_configuration(cluster: Cluster, munge_key: bytes) -> None:
    """Write /etc/slurm, the munge key, and copies of the repository's Lua files and hooks."""
    (cluster.shared / "slurm").mkdir(parents=True)
    install_configuration_files(cluster)
    for host in cluster.hosts:
        host.path("etc/munge").chmod(0o700)
        shutil.chown(host.path("etc/munge"), "munge", "munge")
        write(host.path("etc/munge/munge.key"), munge_key, mode=0o400, owner="munge")


def install_configuration_files(cluster: Cluster) -> None:
    """Write Slurm's configuration, and copies of the repository's Lua files and hooks."""
    directory = cluster.shared / "slurm"
    hooks = copy_plugin_files(cluster)
    nodes = "\n".join(
        f"NodeName={node.name} NodeAddr={node.address} CPUs={cluster.cpus} RealMemory={cluster.memory_mib}"
        for node in cluster.node_hosts
    )
    content = _SLURM_CONF.format(
        head=HEAD,
        head_address=HEAD_ADDRESS,
        nodes=nodes,
        preemption=native.PREEMPTION if cluster.native else _PREEMPTION,
        partitions=native.partitions(cluster) if cluster.native else _partitions(cluster),
        power_saving=_POWER_SAVING if cluster.power_saving else "",
        hooks="\n".join(f"{k}={v}" for k, v in hooks.items()),
    )
    write(directory / "slurm.conf", controllers.slurm_conf(cluster, content).encode())
    write(directory / "cgroup.conf", b"ConstrainCores=no\nConstrainRAMSpace=no\n")
    write(
        directory / "slurmdbd.conf",
        _SLURMDBD_CONF.format(head=HEAD, head_address=HEAD_ADDRESS).encode(),
        mode=0o600,
        owner="slurm",
    )


def _partitions(cluster: Cluster) -> str:
    """The fronts, and the partitions, as slurm.conf has them with VMs."""
    fronts = "\n".join(
        f"NodeName={name} NodeAddr={host.address} NodeHostname={host.name} "
        f"CPUs={_FRONT_CPUS} RealMemory={_FRONT_MEMORY_MIB}"
        for name, host in cluster.front_hosts.items()
    )
    front_names = ",".join(cluster.front_hosts)
    return _PARTITIONS.format(
        names=",".join(node.name for node in cluster.node_hosts),
        fronts=fronts,
        front_names=front_names,
        shared=_SHARED.format(front_names=front_names) if cluster.observed_memory else "",
        grace_s=cluster.grace_s,
        suspend_time=_SUSPEND_TIME if cluster.power_saving else "",
    )


def copy_plugin_files(cluster: Cluster) -> dict[str, str]:
    """Copy the repository's Lua files and hooks into the cluster; return the hooks' lines of slurm.conf."""
    directory = cluster.shared / "slurm"
    for name in _LUA_FILES:
        source = REPOSITORY / "lua" / name
        if source.is_file():
            write(directory / name, source.read_bytes())
    if not (directory / "job_submit.lua").exists():
        write(directory / "job_submit.lua", _ACCEPTING_JOB_SUBMIT.encode())
    _write_site_values(cluster)
    configured = {}
    for key, name in (_HOOKS | (_POWER_HOOKS if cluster.power_saving else {})).items():
        source = REPOSITORY / "hooks" / name
        if source.is_file():
            for host in cluster.hosts:
                write(host.path(f"{HOOKS_DIRECTORY}/{name}"), source.read_bytes(), mode=0o755)
            configured[key] = f"{HOOKS_DIRECTORY}/{name}"
    return configured


def _write_site_values(cluster: Cluster) -> None:
    """What a site tells the Lua module and the hooks: where the plugin is, and what the VM hosts can host."""
    programs = VENV / "bin"
    site = native.site_lua(cluster) if cluster.native else _site_lua(cluster)
    for host in cluster.hosts:
        write(host.path("etc/rmsplugin/site.lua"), site.encode())
        write(host.path("etc/rmsplugin/hooks.env"), f"RMSPLUGIN_BIN={programs}\n".encode())


def _site_lua(cluster: Cluster) -> str:
    # A VM as large as its node would never start.
    overhead_mib = image_overhead_mib(cluster)
    room = largest_request_mib(cluster.memory_mib, overhead_mib)
    least = 16 if overhead_mib else 96  # what is asked for is the job's own, or what the image needs is in it
    partitions = ", ".join(f'"{name}"' for name in cluster.vjob_partitions)
    platform = 'platform = "podman",\n  ' if cluster.podman else ""
    return f"""return {{
  {platform}partitions = {{ {partitions} }},
  wrapper = "{VENV / "bin"}/rmsplugin-job",
  image_memory_mib = {{ default = {least} }},
  max_vm_cpus = {cluster.cpus},
  max_vm_memory_mib = {room},
  max_total_cpus = {cluster.cpus * cluster.nodes},
  max_total_memory_mib = {room * cluster.nodes},
}}
"""


def start_munge(cluster: Cluster, host: Host) -> None:
    """Start a host's munged."""
    hosts.run(cluster, host, ["install", "-d", "-m", "755", "-o", "munge", "-g", "munge", "/run/munge"])
    hosts.run(cluster, host, ["install", "-d", "-m", "755", "-o", "slurm", "-g", "slurm", "/run/slurm"])
    hosts.start_daemon(
        host,
        "munged",
        ["/usr/sbin/munged", "--foreground", "--num-threads=4", "--log-file=/run/munge/munged.log"],
        user="munge",
    )


def start_accounting(cluster: Cluster) -> None:
    """Start slurmdbd, and make the accounts as soon as it answers."""
    head = cluster.head
    hosts.start_daemon(head, "slurmdbd", ["/usr/sbin/slurmdbd", "-D"], user="slurm")
    wait_until(lambda: _sacctmgr(cluster, "show cluster"), 60, "slurmdbd to answer")
    users = ",".join(USERS)
    script = "\n".join(
        [
            "add cluster minicluster",
            "add account users cluster=minicluster description=users organization=minicluster",
            f"add user {users} account=users cluster=minicluster",
            # Rooms are SlurmUser's jobs: what they have must count for no account of users.
            "add account rooms cluster=minicluster description=rooms organization=minicluster",
            "add user slurm account=rooms cluster=minicluster adminlevel=Admin",
            "quit",
        ]
    )
    hosts.run(cluster, head, ["sacctmgr", "-i"], stdin=script)
    if "alice" not in hosts.run(cluster, head, ["sacctmgr", "-nP", "show", "assoc", "format=user"]).stdout:
        raise MiniclusterError("the accounts could not be made in slurmdbd; see minicluster logs head")


def _sacctmgr(cluster: Cluster, command: str) -> bool:
    return hosts.run(cluster, cluster.head, ["sacctmgr", "-n", *command.split()], check=False).returncode == 0


def start_controller(cluster: Cluster) -> None:
    """Start slurmctld."""
    hosts.start_daemon(cluster.head, "slurmctld", ["/usr/sbin/slurmctld", "-D"], user="slurm")


def start_slurmd(host: Host, name: str, *, boots: bool = False) -> None:
    """Start a host's slurmd, by the name that the host has in Slurm. It says that its host has just booted, or not."""
    argv = ["/usr/sbin/slurmd", "-D", "-N", name]
    hosts.start_daemon(host, "slurmd", argv, awaits=_MUNGE_SOCKET, boot_flags=["-b"] if boots else [])


def wait_for_nodes(cluster: Cluster, timeout_s: float = 60) -> None:
    """Wait until every node, fronts included, is idle."""

    def all_idle() -> bool:
        names = ",".join(("plain", *cluster.vjob_partitions))
        words = ["sinfo", "-h", "-N", "-p", names, "-o", "%N %T"]
        result = hosts.run(cluster, cluster.head, words, check=False)
        states = dict(line.split() for line in result.stdout.splitlines() if len(line.split()) == 2)
        wanted = cluster.nodes + cluster.fronts
        return len(states) == wanted and all(state == "idle" for state in states.values())

    wait_until(all_idle, timeout_s, "the nodes to be idle in Slurm")
