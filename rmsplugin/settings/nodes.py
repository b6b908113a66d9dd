"""Settings of the nodes: their libvirt, their files and capacity, how VMs start on them, and the VMs' network."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from rmsplugin import defaults
from rmsplugin.settings.section import Seconds, Section

NodeTemplate = Annotated[str, Field(pattern=r"^qemu\+(tls|ssh)://\{node\}")]


class Hypervisor(Section):
    """libvirt on the nodes."""

    platform: Literal["libvirt", "podman", "native"] = Field(
        "libvirt",
        description="the platform that runs vjobs on the nodes: `libvirt`: in VMs; `podman`: in containers, which are "
        "saved and restored by CRIU and do not migrate; `native`: as plain jobs of Slurm, paused by `scontrol suspend` "
        "where they are; [network] and [image.default] are then left out",
    )
    uri: NodeTemplate = Field("qemu+tls://{node}/system", description="how the engine reaches a node's libvirt")
    connect: Literal["auto", "agent", "uri"] = Field(
        "auto",
        description="`agent`: the engine reaches a node's libvirt through the node's agent, which closes this way to "
        "an engine whose turn is over; `uri`: as `uri` says, and nothing closes it; `auto`: `agent` with "
        "cluster.shared_dir, else `uri`",
    )
    migrate_host: str = Field(
        "{node}",
        pattern=r"^[A-Za-z0-9.-]*\{node\}[A-Za-z0-9.-]*$",
        description="the host that receives the memory of VMs that migrate to {node}; another name puts "
        "migrations on a network of their own. The engine leads migrations: nodes need no way to "
        "each other's libvirt, and must have none",
    )
    domain_type: Literal["auto", "kvm", "qemu"] = Field("auto", description="`auto`: kvm where libvirt offers it")
    machine: str = Field(
        "pc-q35-7.2",
        pattern=r"^pc-(q35|i440fx)-[A-Za-z0-9.-]+$",
        description="machine type of new VMs, with its version: one that QEMU has on all nodes (rmsplugin check tells)",
    )
    migrate_tls: bool = Field(True, description="encrypt and authenticate the memory stream of migrations (QEMU's TLS)")
    migrate_converge: Literal["auto-converge", "post-copy", "abort"] = Field(
        "auto-converge",
        description="for a VM that writes its memory faster than it can be sent: `auto-converge` slows its "
        "CPUs down; `post-copy` moves it at once and fetches its memory afterwards: a node or "
        "network that fails meanwhile loses the VM; `abort` does nothing. After migrate_timeout_s "
        "the VM runs on where it was",
    )
    migrate_emulated: Literal["paused", "live"] = Field(
        "paused",
        description="VMs without KVM while they are migrated: `paused`: they stand still; `live`: they run on, "
        "as all with KVM do, but QEMU before 9.0 now and then loses a write, and the VM with it",
    )
    connect_timeout_s: Seconds = Field(10.0, description="bound of a connection to a node")
    boot_timeout_s: Seconds = Field(120.0, description="from creation to a guest that answers")
    save_timeout_s: Seconds = Field(1800.0, description="bound of one suspend")
    restore_timeout_s: Seconds = Field(1800.0, description="bound of one resume, without the copy")
    migrate_timeout_s: Seconds = Field(1800.0, description="bound of one live migration")
    stop_timeout_s: Seconds = Field(30.0, description="bound of one stop")


class Nodes(Section):
    """Files and capacity of the nodes."""

    agent_user: str = Field("root", description="account of the node agent (rmsplugin-node, an ssh forced command)")
    agent_key: Path = Field(
        Path("/etc/rmsplugin/agent_key"), description="the engine's private key for the node agents"
    )
    node_key: Path = Field(
        Path("/etc/rmsplugin/node_key"), description="a node's private key for the other nodes' agents"
    )
    known_hosts: Path = Field(Path("/etc/rmsplugin/known_hosts"), description="host keys of all nodes")
    store: Path = Field(Path(defaults.STORE), description="saved states on each node; root, mode 0700")
    vm_dir: Path = Field(
        Path("/var/lib/rmsplugin/vm"),
        description="configuration files of VMs on each node; root, mode 0711",
    )
    vm_dir_shared: bool = Field(
        False,
        description="all nodes mount vm_dir. Only then may VMs of qcow2 images change nodes: their disks lie there",
    )
    shared_store: Path | None = Field(
        None, description="a directory that all nodes mount: states are saved there instead, each group's in a part"
    )
    copy_timeout_s: Seconds = Field(3600.0, description="bound of the copy of one state between two nodes")
    fence: tuple[str, ...] = Field(
        (),
        description="a program with its arguments that cuts the power of {node}, and ends with 0 when it is off, e.g. "
        "fence_ipmilan of Debian's fence-agents with --action=off; no shell; empty: none",
    )
    fence_status: tuple[str, ...] = Field(
        (),
        description="the same with --action=status: ends with 2 when {node} is off; asked after `fence`; empty: the "
        "end of `fence` is believed, and nothing else says that the node is off",
    )
    fence_timeout_s: float = Field(120.0, gt=0, le=3600, description="bound of each of the two")
    fence_after_s: float = Field(
        0.0,
        ge=0,
        le=86400 * 7,
        description="time for which a node with VMs has to be silent (its libvirt and its node agent, and "
        "Slurm says DOWN) before the engine itself fences it; 0: never",
    )
    memory_overhead_mib: int = Field(128, ge=0, description="memory of the hypervisor for each VM, besides its own")
    memory_reserved_mib: int = Field(0, ge=0, description="memory of each node that no VM may take")
    cpus_reserved: int = Field(0, ge=0, description="CPUs of each node that no VM may take")

    @field_validator("fence", "fence_status")
    @classmethod
    def _program(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError("must begin with the absolute path of a program")
        if value and not any("{node}" in word for word in value[1:]):
            raise ValueError("must name the node: {node} in one of the arguments")
        return value

    @model_validator(mode="after")
    def _fences(self) -> Nodes:
        if (self.fence_status or self.fence_after_s) and not self.fence:
            raise ValueError("fence_status and fence_after_s need fence")
        return self

    @property
    def shared(self) -> bool:
        """Whether every node sees every saved state."""
        return self.shared_store is not None

    @property
    def states(self) -> str:
        """The directory of saved states, on each node or shared by all."""
        return str(self.shared_store or self.store)


class Start(Section):
    """How VMs start: from a template that lies on their node, instead of booting, where image and node allow it."""

    template: bool = Field(True, description="VMs of images that wait start from templates; false: all VMs boot")
    template_dir: Path = Field(
        Path("/var/lib/rmsplugin/templates"), description="templates on each node, not shared; root, mode 0700"
    )
    template_mib: int = Field(
        2048,
        ge=0,
        description="space that the templates of a node take at most; the least recently used goes first; 0: none",
    )
    template_number: int = Field(16, ge=1, description="the most templates on a node")
    template_answer_s: Seconds = Field(
        20.0,
        description="time within which a VM from a template has to answer; else it is booted, and the template dropped",
    )


class Network(Section):
    """The guests' network."""

    bridge: str = Field(
        "br0", pattern=r"^[A-Za-z0-9._-]{1,15}$", description="bridge on every node that guests plug into"
    )
    pool: str = Field(..., description="FIRST-LAST addresses for VMs")
    prefix_length: int = Field(..., ge=1, le=32, description="of the guests' network")
    gateway: str = Field("", description="the guests' default route; empty: none")
    filter: str = Field(
        "nftables",
        pattern=r"^[A-Za-z0-9._-]{0,60}$",
        description="filter of each VM's interface: `nftables` lets out only what has the VM's own addresses; the "
        "node's agent makes it with one `nft`. `rmsplugin-guest`: the same rules as a network filter (nwfilter) of "
        "libvirt's, which the engine defines on each node, and libvirt makes by some seventy processes a VM; another "
        "name: a filter of libvirt's and the site's, which gets the VM's address as $IP; empty: none, and root in a "
        "guest can take any address",
    )
    filter_dir: Path = Field(
        Path("/run/rmsplugin-filters"),
        description="the rules of `nftables` on each node, for /etc/nftables.conf to include; not shared, and empty "
        "after the node has booted; root, mode 0700",
    )
    mac_prefix: str = Field(
        "52:54:00", pattern=r"^([0-9a-f]{2}:){2}[0-9a-f]{2}$", description="first half of the VMs' MAC addresses"
    )

    @field_validator("pool")
    @classmethod
    def _pool(cls, value: str) -> str:
        first, dash, last = value.partition("-")
        try:
            low, high = ipaddress.IPv4Address(first.strip()), ipaddress.IPv4Address(last.strip())
        except ValueError:
            raise ValueError("must be FIRST-LAST, two IPv4 addresses") from None
        if not dash or low > high:
            raise ValueError("must be FIRST-LAST with FIRST not above LAST")
        return value

    @property
    def pool_bounds(self) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
        """First and last address of the pool."""
        first, _, last = self.pool.partition("-")
        return ipaddress.IPv4Address(first.strip()), ipaddress.IPv4Address(last.strip())
