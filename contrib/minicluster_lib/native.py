"""Native: a minicluster whose vjobs are plain jobs of Slurm. It has no VMs: no libvirt, no images, no fronts, no NFS.

The last node is of the partition `plain`, which is none of the engine's; the others are of `batch` and `urgent`.
"""

from __future__ import annotations

from minicluster_lib.layout import HEAD_ADDRESS, Cluster

PARTITIONS = ("batch", "urgent")

#: In the place of what a cluster with VMs has of preemption: Slurm itself pauses nobody.
PREEMPTION = """\
PreemptType=preempt/none
PreemptMode=OFF
# The engine pauses no job that has run for less.
PreemptExemptTime=00:00:10
"""

_PARTITIONS = """\
PartitionName=plain Nodes={plain} Default=YES MaxTime=INFINITE State=UP
PartitionName=batch Nodes={native} MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode={mode}
PartitionName=urgent Nodes={native} MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode={mode}
"""

_SETTINGS = """\
[engine]
state_dir = "/var/lib/rmsplugin"
socket = "/run/rmsplugin/engine.sock"
listen = "{head}:6830"
url = "http://{head}:6830"
user = "slurm"
cycle_s = {cycle_s:g}
watch_s = {watch_s:g}

[hypervisor]
platform = "native"

[slurm]
partitions = ["batch", "urgent"]

[partition.urgent]
hosts = "batch"
"""


def partitions(cluster: Cluster) -> str:
    """The partitions' lines of slurm.conf."""
    *native, plain = (node.name for node in cluster.node_hosts)
    return _PARTITIONS.format(plain=plain, native=",".join(native), mode="REQUEUE")


def settings(cluster: Cluster) -> str:
    """The settings of the engine and of the hooks."""
    return _SETTINGS.format(head=HEAD_ADDRESS, cycle_s=cluster.cycle_s, watch_s=cluster.watch_s)


def site_lua(cluster: Cluster) -> str:
    """What the site tells the Lua module."""
    names = ", ".join(f'"{name}"' for name in PARTITIONS)
    nodes = cluster.nodes - 1
    return f"""return {{
  platform = "native",
  partitions = {{ {names} }},
  default_memory_per_cpu_mib = 128,
  max_vm_cpus = {cluster.cpus},
  max_vm_memory_mib = {cluster.memory_mib},
  max_total_cpus = {cluster.cpus * nodes},
  max_total_memory_mib = {cluster.memory_mib * nodes},
}}
"""
