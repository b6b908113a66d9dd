"""What an administrator writes: Slurm's configuration, ours, and that of the homes."""

from __future__ import annotations

import re

from build_packages_lib.tools import REPOSITORY

from real_site.layout import CONTROLLER, FRONT, POOL, PREFIX_LENGTH, VM_HOSTS

_NODES = ",".join(host.name for host in VM_HOSTS)
#: Lines of the example that a site adds when it installs the plugin; the others it has already, as it were.
_OURS = r"(JobSubmitPlugins|Licenses|PrologSlurmctld|EpilogSlurmctld|Prolog|Epilog)="
#: Slower than on any real machine by a factor of some thirty: what a site would leave at its default is longer.
_SLOW = {"PrologEpilogTimeout": "900", "PrologFlags": "Alloc"}

_BASE = f"""\
ClusterName=site
SlurmctldHost={CONTROLLER.name}({CONTROLLER.address})
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={CONTROLLER.name}
AccountingStorageEnforce=associations,limits
ReturnToService=2
SlurmdParameters=config_overrides
MessageTimeout=60
SlurmdTimeout=600
BatchStartTimeout=120
UnkillableStepTimeout=600
"""
SLURMDBD_CONF = f"""\
AuthType=auth/munge
DbdHost={CONTROLLER.name}
SlurmUser=slurm
PidFile=/run/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""
CGROUP_CONF = "ConstrainCores=yes\nConstrainRAMSpace=yes\n"
DATABASE = """\
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""
EXPORTS = f"/home 10.77.0.0/{PREFIX_LENGTH}(rw,sync,no_subtree_check,root_squash)\n"
SETTINGS = f"""\
[engine]
listen = "{CONTROLLER.address}:6830"
url = "http://{CONTROLLER.address}:6830"

[slurm]
partitions = ["vjob"]
command_timeout_s = 120
prolog_wait_s = 600
start_timeout_s = 600

[partition.vjob]
hosts = "vmhosts"

[hosts.vmhosts]
rooms = "hold"

[hypervisor]
uri = "qemu+tls://{{node}}/system?pkipath=/etc/rmsplugin/pki"
connect_timeout_s = 60
boot_timeout_s = 600

[start]
template = false

[network]
pool = "{POOL}"
prefix_length = {PREFIX_LENGTH}

[[guest.mounts]]
source = "{CONTROLLER.address}:/home"
target = "/home"

[image.default]
kind = "kernel"
kernel = "/var/lib/rmsplugin-images/vmlinux"
initrd = "/var/lib/rmsplugin-images/initrd.img"
cmdline = "quiet cryptomgr.notests initcall_blacklist=tracer_init_tracefs"
overhead_mib = 96
"""


def slurm_conf(*, with_plugin: bool) -> str:
    """The site's slurm.conf: as it was before, and with the lines of contrib/slurm.conf.example."""
    example = (REPOSITORY / "contrib/slurm.conf.example").read_text()
    lines = [line for line in example.splitlines() if line and not line.startswith("#")]
    kept = [_of_this_site(line) for line in lines if with_plugin or not re.match(_OURS, line)]
    return _BASE + "".join(f"{line}\n" for line in kept)


def _of_this_site(line: str) -> str:
    key = line.partition("=")[0]
    if key in _SLOW:
        return f"{key}={_SLOW[key]}"
    if line.startswith("NodeName=n["):
        return "\n".join(
            f"NodeName={host.name} NodeAddr={host.address} CPUs={host.cpus} RealMemory={host.memory_mib - 256}"
            for host in VM_HOSTS
        )
    line = line.replace("NodeName=front[1-2]", f"NodeName={FRONT.name} NodeAddr={FRONT.address}")
    return line.replace("front[1-2]", FRONT.name).replace("n[001-032]", _NODES)
