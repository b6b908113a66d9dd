"""The sections of the settings: every key with its default, its bounds and its description."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.vm_memory import vm_mib

Seconds = Annotated[float, Field(gt=0, le=86400 * 7)]
NodeTemplate = Annotated[str, Field(pattern=r"^qemu\+(tls|ssh)://\{node\}")]


class Section(BaseModel):
    """A section of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Engine(Section):
    """The engine itself."""

    state_dir: Path = Field(Path("/var/lib/rmsplugin"), description="ledger and keys; owned by engine.user, mode 0700")
    socket: Path = Field(Path("/run/rmsplugin/engine.sock"), description="service socket on the controller")
    listen: str = Field("", description="ADDRESS:PORT for wrappers on batch hosts, authenticated by munge; empty: none")
    url: str = Field("", description="how batch hosts reach `listen`: http://ADDRESS:PORT")
    user: str = Field("slurm", description="account the engine runs as; must be Slurm's SlurmUser")
    operators: tuple[str, ...] = Field(
        (), description="users who may act on any vjob and have reports of all, besides root and engine.user"
    )
    cycle_s: Seconds = Field(30.0, description="seconds between two cycles; events start one at once")
    watch_s: Seconds = Field(
        0.5,
        description="seconds between two looks at Slurm's queue, more where a look takes long; "
        "a job that arrives or ends starts a cycle at once. A batch job that was submitted is looked for within 0.03 "
        "s, where the engine can see Slurm's StateSaveLocation",
    )
    workers: int = Field(
        16, ge=1, le=256, description="operations of a group (starts; ends; all others) at the same time"
    )
    keep_days: int = Field(90, ge=1, description="days for which the ledger keeps ended vjobs and events")
    stop_wait_s: float = Field(
        30.0,
        ge=0,
        le=3600,
        description="an engine that is told to end waits so long for what is under way; the rest is taken up again",
    )
    orphan_s: Seconds = Field(
        30.0, description="a running vjob whose wrapper gave no sign of life for so long has its Slurm job requeued"
    )


class Slurm(Section):
    """The resource management system."""

    partitions: tuple[str, ...] = Field(..., min_length=1, description="the vjob partitions, as in job_submit.lua")
    adapter: Literal["auto", "cli", "pyslurm"] = Field(
        "auto",
        description="`cli`: Slurm's commands; `auto`: pyslurm when it imports and its release matches, else cli",
    )
    bin_dir: str = Field("", description="directory of squeue, scontrol, ...; empty: PATH")
    command_timeout_s: Seconds = Field(30.0, description="bound of one Slurm command")
    prolog_wait_s: Seconds = Field(
        120.0, description="how long PrologSlurmctld waits for the VMs (the job's limit does not run)"
    )
    start_timeout_s: Seconds = Field(
        60.0, description="a job that Slurm has not started so long after its gate was opened goes back to waiting"
    )
    gate: str = Field(
        "vjobgate",
        pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
        description="the licence (slurm.conf: Licenses=vjobgate:1) that keeps vjobs pending until they may start",
    )
    gate_reservation: str = Field(
        "rmsplugin_gate",
        pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
        description="the reservation, made and renewed by the engine, that takes that licence away from everybody",
    )


class Partition(Section):
    """A vjob partition: a section for each of slurm.partitions."""

    hosts: str = Field(..., min_length=1, description="the Slurm partition whose nodes are its VM hosts")
    checkpoint_interval_s: float = Field(
        0.0,
        ge=0,
        le=86400 * 7,
        description="a vjob whose VMs are lost repeats at most so much of its run; 0: it begins again from its start",
    )
    memory: Literal["requested", "observed"] = Field(
        "requested",
        description="what of its node's memory a VM takes: `requested`: all that was asked for; `observed`: what it is "
        "seen to need, so that more VMs run; what was asked for is the most it can have. Needs context switches",
    )


class Hosts(Section):
    """How the nodes of a hosts partition are borrowed from Slurm; without a section, the defaults count."""

    rooms: Literal["hold", "elastic"] = Field(
        "hold",
        description="`hold`: a room on every node, always; `elastic`: as many as the waiting and running vjobs need",
    )
    room_idle_s: float = Field(
        300.0, ge=0, le=86400 * 7, description="an elastic room without VMs is given back after so long"
    )
    room_time_limit: str = Field(
        "1-00:00:00",
        description="time limit of a room as Slurm takes it: minutes, HH:MM:SS or DAYS-HH:MM:SS; extended in time",
    )
    rooms_min: int = Field(0, ge=0, description="elastic: keep at least so many rooms")
    rooms_max: int | None = Field(None, ge=0, description="elastic: have at most so many rooms; none: no bound")
    store_survives: bool = Field(
        True,
        description="whether saved states stay on a node that was given back; false: they are copied away first",
    )

    @field_validator("room_time_limit")
    @classmethod
    def _time_limit(cls, value: str) -> str:
        if slurm_time_s(value) < _SHORTEST_ROOM_S:
            raise ValueError(f"a room needs at least {_SHORTEST_ROOM_S // 60} minutes")
        return value

    @property
    def room_time_limit_s(self) -> int:
        """The time limit of a room in seconds."""
        return slurm_time_s(self.room_time_limit)


class Hypervisor(Section):
    """libvirt on the nodes."""

    uri: NodeTemplate = Field("qemu+tls://{node}/system", description="how the engine reaches a node's libvirt")
    migrate_uri: NodeTemplate = Field(
        "qemu+tls://{node}/system", description="how one node's libvirt reaches another's for a migration"
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
        description="for a VM that writes its memory faster than it can be sent: `auto-converge` slows its CPUs down; "
        "`post-copy` moves it at once and fetches its memory afterwards: a node or network that fails then loses it; "
        "`abort` does nothing. Past migrate_timeout_s it runs on where it was",
    )
    migrate_emulated: Literal["paused", "live"] = Field(
        "paused",
        description="VMs without KVM: `paused`: they stand still while they are migrated; `live`: they run on, as all "
        "with KVM do: QEMU before 9.0 now and then loses a write then, and the VM with it",
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
    store: Path = Field(Path("/var/lib/rmsplugin/store"), description="saved states on each node; root, mode 0700")
    vm_dir: Path = Field(
        Path("/var/lib/rmsplugin/vm"),
        description="configuration files of VMs on each node; root, mode 0711",
    )
    vm_dir_shared: bool = Field(
        False,
        description="all nodes mount vm_dir: only then VMs of qcow2 images, whose disks lie there, may change nodes",
    )
    shared_store: Path | None = Field(
        None, description="a directory that all nodes mount: states are saved there instead"
    )
    copy_timeout_s: Seconds = Field(3600.0, description="bound of the copy of one state between two nodes")
    fence: tuple[str, ...] = Field(
        (),
        description="a program with its arguments that cuts the power of {node}, and ends with 0 when it is off, e.g. "
        "fence_ipmilan of Debian's fence-agents with --action=off; no shell; empty: none",
    )
    fence_status: tuple[str, ...] = Field(
        (),
        description="the same with --action=status: ends with 2 when {node} is off; asked after `fence`; empty: none",
    )
    fence_timeout_s: float = Field(120.0, gt=0, le=3600, description="bound of each of the two")
    fence_after_s: float = Field(
        0.0,
        ge=0,
        le=86400 * 7,
        description="the engine itself fences a node with VMs whose libvirt and node agent are silent, and that Slurm "
        "says is DOWN, for so long; 0: never",
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


class Start(Section):
    """How VMs start: from a template that lies on their node, instead of booting, where image and node allow it."""

    template: bool = Field(True, description="VMs of images that wait start from templates; false: all VMs boot")
    template_dir: Path = Field(
        Path("/var/lib/rmsplugin/templates"), description="templates on each node, not shared; root, mode 0700"
    )
    template_mib: int = Field(
        2048, ge=0, description="templates of a node take so much at most; the least recently used goes first; 0: none"
    )
    template_number: int = Field(16, ge=1, description="so many templates a node has at most")
    template_answer_s: Seconds = Field(
        20.0, description="a VM from a template that does not answer within this is booted, and the template dropped"
    )


class Network(Section):
    """The guests' network."""

    bridge: str = Field(
        "br0", pattern=r"^[A-Za-z0-9._-]{1,15}$", description="bridge on every node that guests plug into"
    )
    pool: str = Field(..., description="FIRST-LAST addresses for VMs")
    prefix_length: int = Field(..., ge=1, le=32, description="of the guests' network")
    gateway: str = Field("", description="the guests' default route; empty: none")
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


_SLURM_TIME = re.compile(
    r"(?:(?P<days>\d{1,4})-(?P<h>\d{1,2})(?::(?P<m>\d{1,2})(?::(?P<s>\d{1,2}))?)?"
    r"|(?P<minutes>\d{1,6})|(?P<min>\d{1,6}):(?P<sec>\d{1,2})|(?P<hours>\d{1,4}):(?P<mins>\d{1,2}):(?P<secs>\d{1,2}))"
)
_SHORTEST_ROOM_S = 600


def slurm_time_s(text: str) -> int:
    """Read a time limit as Slurm's commands take it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Raises:
        ValueError: it is none.
    """
    match = _SLURM_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time limit of Slurm's: say minutes, HH:MM:SS or DAYS-HH:MM:SS")
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    hours = part["days"] * 24 + part["h"] + part["hours"]
    minutes = part["m"] + part["minutes"] + part["min"] + part["mins"]
    return hours * 3600 + minutes * 60 + part["s"] + part["sec"] + part["secs"]


_DurationS = Annotated[float, Field(ge=0, le=86400)]
_SecondsPerMib = Annotated[float, Field(ge=0, le=60)]


class Decision(Section):
    """How the engine decides which vjobs run."""

    policy: Literal[
        "rjsp", "rjsp-exact", "fcfs", "easy", "easy-preempt", "mixed", "load-sharing", "v-reconfiguration"
    ] = Field("mixed", description="the rule; option --policy of `rmsplugin plan` tries each offline")
    patience_s: Annotated[float, Field(ge=0, le=86400 * 7)] = Field(
        3600.0, description="mixed: ready for so long, a vjob preempts others by its place in the queue alone"
    )
    horizon_s: Seconds = Field(
        3600.0, description="mixed: no context switch is taken to be worth it for longer than this"
    )
    demand_window_s: Seconds = Field(
        60.0, description="the demand of a VM falls when nothing more was seen for so long"
    )


_Share = Annotated[float, Field(gt=0, le=1)]


class Memory(Section):
    """Memory by observation, for the partitions with memory = "observed"."""

    threshold: _Share = Field(
        0.9, description="share of a node's memory up to which VMs are planned there; the rest is for growth meanwhile"
    )
    unknown: _Share = Field(
        0.5, description="a new VM needs this share of its request, as long as no job of its user and name tells more"
    )
    percentile: _Share = Field(
        0.9, description="a new VM needs what this share of its user's jobs with its name and request got along with"
    )
    faults_per_s: float = Field(
        100.0,
        ge=1,
        description="a guest that reads so many pages a second from storage, major faults and swap-ins, needs all the "
        "memory that its balloon leaves it",
    )
    pressure: float = Field(
        20.0,
        ge=1,
        le=100,
        description="percent of the last 10 s in which something on a node waited for memory (PSI, some avg10) from "
        "which on it is short, whatever its VMs need",
    )
    watch_s: Seconds = Field(
        5.0, description="seconds between two looks at who waits for memory; what is left of a node is shared out anew"
    )
    relief_mib: int = Field(
        64, ge=16, le=1 << 20, description="memory of each node kept back, so that a VM that waits for some can leave"
    )
    reserved_nodes: _Share = Field(
        0.25, description="share of the nodes reserved at a time at most for VMs that outgrow theirs; one always may be"
    )
    reserving_s: Seconds = Field(
        600.0, description="a reserved node without room after so long is given up: the cluster is truly full"
    )
    reserve_until: Literal["room", "empty"] = Field(
        "room",
        description="a reserved node takes the VM that it is reserved for when there is `room` for it, or when it is "
        "`empty` of others",
    )


class Planning(Section):
    """How the engine searches for the plan of a context switch."""

    limit_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        10.0, description="a proposal that takes longer is given up, and one without a search takes its place"
    )
    memory_limit_mib: int = Field(
        2048, ge=512, le=1 << 20, description="the proposing process that takes more is ended, with the same result"
    )
    objective: Literal["cost", "nodes"] = Field(
        "cost", description="`cost`: the cheapest plan; `nodes`: the fewest nodes, then the cheapest plan on so many"
    )


class Durations(Section):
    """How long each action on a VM takes by itself: a constant, and for some an amount for each MiB of the VM's memory.

    For decisions, which weigh what a context switch costs, and for the estimate of how long a plan takes.
    """

    run_s: _DurationS = Field(DEFAULTS["run_s"], description="to boot a VM")
    stop_s: _DurationS = Field(DEFAULTS["stop_s"], description="to stop a VM")
    migrate_s: _DurationS = Field(
        DEFAULTS["migrate_s"], description="a live migration, besides the transfer of its memory"
    )
    migrate_s_per_mib: _SecondsPerMib = Field(
        DEFAULTS["migrate_s_per_mib"], description="to transfer memory in a live migration"
    )
    suspend_s: _DurationS = Field(DEFAULTS["suspend_s"], description="a suspend, besides the saving of its memory")
    suspend_s_per_mib: _SecondsPerMib = Field(DEFAULTS["suspend_s_per_mib"], description="to save memory")
    resume_s: _DurationS = Field(
        DEFAULTS["resume_s"], description="a resume on the node with the saved state, besides reading it"
    )
    resume_s_per_mib: _SecondsPerMib = Field(
        DEFAULTS["resume_s_per_mib"], description="to read saved memory on that node"
    )
    remote_resume_s: _DurationS = Field(
        DEFAULTS["remote_resume_s"], description="a resume on another node, besides copying and reading"
    )
    remote_resume_s_per_mib: _SecondsPerMib = Field(
        DEFAULTS["remote_resume_s_per_mib"], description="to copy saved memory from another node and read it"
    )
    pipeline_s: _DurationS = Field(
        DEFAULTS["pipeline_s"], description="between the beginnings of two suspends, or resumes, of one vjob"
    )


class Tokens(Section):
    """How many VMs context switches act on at the same time; the defaults suit nodes with one SSD and 10 GbE."""

    boots: int = Field(8, ge=1, le=1000, description="VMs that boot on a node")
    saves: int = Field(4, ge=1, le=1000, description="VMs of a node that are suspended")
    restores: int = Field(4, ge=1, le=1000, description="VMs that are resumed on a node")
    migrations: int = Field(2, ge=1, le=1000, description="VMs that migrate to a node, and as many from it")
    transfers: int = Field(
        64, ge=1, le=10000, description="VMs of the whole cluster that are suspended, resumed or migrate"
    )


_MountWord = Annotated[str, Field(pattern=r"^[^\s#]+$")]


class Mount(Section):
    """A file system that every guest mounts."""

    source: _MountWord = Field(..., description="what mount(8) takes, e.g. 10.0.0.1:/home")
    target: _MountWord = Field(..., description="where, an absolute path")
    type: Annotated[str, Field(pattern=r"^[a-z0-9]+$")] = Field("nfs", description="type of the file system")
    options: _MountWord = Field(
        "vers=3,nolock", description="mount options; NFSv3 has no lease that a suspend could outlive"
    )


_SIZE = r"^(|[1-9][0-9]{0,12}[kmg]?|[1-9][0-9]?%|100%)$"


class Guest(Section):
    """What all guests share."""

    mounts: tuple[Mount, ...] = Field(
        (), description="file systems that every guest mounts (homes, submit directories)"
    )
    commands: bool = Field(
        True,
        description="sbatch, squeue, scancel, scontrol, sacct, ... work inside the VMs: the site's own clients on the "
        "front carry out, as the job's user, what is asked for inside",
    )
    timezone: str = Field(
        "",
        pattern=r"^[A-Za-z0-9+_-]*(/[A-Za-z0-9+_-]+)*$",
        description="name of the guests' time zone, as in Europe/Prague; empty: that of the engine's host",
    )
    locale: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.@-]*$",
        description="LANG of who logs in to a guest, as in en_US.UTF-8; empty: that of the engine's host "
        "(/etc/default/locale, /etc/locale.conf). Scripts get what was exported to them",
    )
    resolv_conf: str = Field(
        "host",
        pattern=r"^(host|image|/.*)$",
        description="the guests' /etc/resolv.conf: `host`: that of the engine's host, without name servers that "
        "only it can reach (127.0.0.53); `image`: the image's own; else the path of a file on the engine's host",
    )
    hosts: str = Field(
        "host",
        pattern=r"^(host|image|/.*)$",
        description="likewise, what follows the VMs' own names in the guests' /etc/hosts",
    )
    tmp_size: str = Field(
        "",
        pattern=_SIZE,
        description="the most that a guest's /tmp holds where it lies in memory: percent of the VM's memory, or bytes "
        "(50%, 512m, 2g); empty: as the image has it, 50% in the small one",
    )
    shm_size: str = Field("", pattern=_SIZE, description="likewise of /dev/shm")


class _AnyImage(Section):
    """What images of all kinds have."""

    overhead_mib: int = Field(
        0,
        ge=0,
        le=1 << 20,
        description="what the guest's kernel and tools take of a VM's memory: VMs are larger than requested by so much "
        "and by what a kernel takes of a larger machine, so that a job has what it asked for; 0: VMs are as large as "
        "requested, and jobs have less",
    )
    waits: bool = Field(
        False,
        description="its guests wait for their configuration where its first line is `wait`, as those of "
        "contrib/guest-image do, and disk images with cloud-init, systemd and QEMU's fw_cfg driver: VMs of it may "
        "start from templates ([start])",
    )

    def vm_mib(self, request_mib: int) -> int:
        """The memory of a VM that is booted from it for this request, in MiB."""
        return vm_mib(request_mib, self.overhead_mib)


class KernelImage(_AnyImage):
    """A guest booted directly from a kernel and an initrd."""

    kind: Literal["kernel"]
    kernel: Path = Field(..., description="path of the kernel on every node")
    initrd: Path = Field(..., description="path of the initrd on every node")
    cmdline: str = Field("", description="added to the kernel's command line")


class Qcow2Image(_AnyImage):
    """A guest booted from an overlay on a qcow2 base, configured by cloud-init."""

    kind: Literal["qcow2"]
    base: Path = Field(..., description="path of the base image on every node")


Image = Annotated[KernelImage | Qcow2Image, Field(discriminator="kind")]
