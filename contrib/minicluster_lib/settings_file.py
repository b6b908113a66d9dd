"""Settings file: the rmsplugin.toml of a minicluster, the same on all hosts but a second controller. No secrets."""

from __future__ import annotations

import json

from minicluster_lib import bmcs, controllers, native, podman
from minicluster_lib.files import write
from minicluster_lib.layout import HEAD_ADDRESS, PREFIX_LENGTH, Cluster
from minicluster_lib.network import BRIDGE, POOL
from minicluster_lib.nfs import MOUNT_OPTIONS

PATH = "/etc/rmsplugin/rmsplugin.toml"
IMAGE_DIRECTORY = "/var/lib/rmsplugin-images"
MEMORY_OVERHEAD_MIB = 128
"""A guest of 96 MiB was seen to take 222 MiB of its node under TCG."""
IMAGE_OVERHEAD_MIB = 96
"""What the kernel and the tools of contrib/guest-image take of a VM (docs/decisions/0043)."""
CMDLINE = "quiet cryptomgr.notests initcall_blacklist=tracer_init_tracefs"
"""An emulated guest takes a fifth of its boot to say what it does and to try its ciphers. Errors are still said.

It takes as long to describe each event of its kernel, and of each module, to root's tracing tools (tracefs)."""

_TEMPLATE = """\
[engine]
state_dir = "/var/lib/rmsplugin"
socket = "/run/rmsplugin/engine.sock"
listen = "{head}:6830"
url = "http://{head}:6830"
user = "slurm"
cycle_s = {cycle_s:g}
watch_s = {watch_s:g}

[slurm]
partitions = {partitions}

[partition.vjob]
hosts = "vmhosts"

[partition.urgent]
hosts = "vmhosts"

{observed}[hosts.vmhosts]
rooms = "{rooms}"
room_idle_s = {room_idle_s:g}

[decision]
demand_window_s = {demand_window_s:g}

{hypervisor}
[nodes]
agent_user = "root"
agent_key = "/etc/rmsplugin/agent_key"
node_key = "/etc/rmsplugin/node_key"
known_hosts = "/etc/rmsplugin/known_hosts"
store = "/var/lib/rmsplugin/store"
vm_dir = "/var/lib/rmsplugin/vm"
memory_overhead_mib = {overhead}

{start}[network]
bridge = "{bridge}"
pool = "{pool}"
prefix_length = {prefix_length}
gateway = "{head}"
{network_filter}
[[guest.mounts]]
source = "{head}:/home"
target = "/home"
type = "nfs"
options = "{mount_options}"

"""

_LIBVIRT = """\
[hypervisor]
uri = "qemu+tls://{{node}}/system?pkipath=/etc/rmsplugin/pki"
domain_type = "{domain_type}"
"""

_START = """\
[start]
template_answer_s = 120

"""

_IMAGE = """\
[image.default]
kind = "kernel"
kernel = "{images}/vmlinux"
initrd = "{images}/initrd.img"
cmdline = "{cmdline}"
waits = true
{image_overhead}"""

# VMs need 1,433 MiB of a node of 2 GiB at most: what tests make them need is far from what decides.
_OBSERVED = """\
[partition.shared]
hosts = "vmhosts"
memory = "observed"

[memory]
threshold = 0.7

"""


def image_overhead_mib(cluster: Cluster) -> int:
    """Of the small image. What tests of observed memory count with is VMs as large as requested."""
    return 0 if cluster.observed_memory or cluster.podman else IMAGE_OVERHEAD_MIB


def largest_request_mib(memory_mib: int, overhead_mib: int) -> int:
    """The most that a job may ask for in a VM on nodes of this size, so that its VM fits.

    As rmsplugin.model.vm_memory says of what is not small; this runs without rmsplugin.
    """
    room_mib = memory_mib - MEMORY_OVERHEAD_MIB
    return (room_mib - overhead_mib - 104) * 64 // 65 if overhead_mib else room_mib


def install(cluster: Cluster) -> None:
    """Write the settings to every host."""
    content = native.settings(cluster) if cluster.native else _content(cluster)
    for host in cluster.hosts:
        write(host.path(PATH), controllers.settings(cluster, content, host.name).encode())


def _content(cluster: Cluster) -> str:
    content = _TEMPLATE.format(
        head=HEAD_ADDRESS,
        cycle_s=cluster.cycle_s,
        watch_s=cluster.watch_s,
        partitions=json.dumps(cluster.vjob_partitions),
        observed=_OBSERVED if cluster.observed_memory else "",
        rooms=cluster.rooms,
        room_idle_s=cluster.room_idle_s,
        demand_window_s=cluster.demand_window_s,
        overhead=MEMORY_OVERHEAD_MIB,
        hypervisor=podman.HYPERVISOR if cluster.podman else _LIBVIRT.format(domain_type=cluster.domain_type),
        start="" if cluster.podman else _START,
        bridge=BRIDGE,
        pool=POOL,
        prefix_length=PREFIX_LENGTH,
        network_filter=f'filter = "{cluster.network_filter}"\n' if cluster.network_filter else "",
        mount_options=MOUNT_OPTIONS,
    )
    return content + _image(cluster) + bmcs.settings(cluster)


def _image(cluster: Cluster) -> str:
    if cluster.podman:
        return podman.IMAGE.format(reference=podman.reference(cluster))
    overhead = image_overhead_mib(cluster)
    return _IMAGE.format(
        images=IMAGE_DIRECTORY,
        cmdline=CMDLINE,
        image_overhead=f"overhead_mib = {overhead}\n" if overhead else "",
    )
