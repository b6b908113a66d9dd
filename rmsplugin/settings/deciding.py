"""Settings of decisions and plans: which vjobs run, with how much memory, and the duration of context switches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.policy_names import POLICIES, named
from rmsplugin.settings.section import Seconds, Section

_DurationS = Annotated[float, Field(ge=0, le=86400)]
_SecondsPerMib = Annotated[float, Field(ge=0, le=60)]


class Decision(Section):
    """How the engine decides which vjobs run."""

    policy: Annotated[str, AfterValidator(named)] = Field(
        "slowdown",
        description=f"the rule: {', '.join(POLICIES)}; or one of your own, by the name of its entry point or as "
        "`MODULE:FUNCTION`. Option --policy of `rmsplugin plan` tries each offline",
    )
    patience_s: Annotated[float, Field(ge=0, le=86400 * 7)] = Field(
        3600.0, description="mixed: time after which a ready vjob preempts others by its place in the queue alone"
    )
    horizon_s: Seconds = Field(
        3600.0, description="mixed: the longest time over which the gain of a context switch counts"
    )
    slurm_priority: Literal["ties", "weight", "order"] = Field(
        "weight",
        description="slowdown: what Slurm's priority does within a tier. `ties`: it decides between equals "
        "only; `weight`: its part beyond the age of the job multiplies the expansion; `order`: it "
        "is the order in which vjobs make way",
    )
    max_delay: Annotated[float, Field(ge=0, le=1000)] = Field(
        0.4,
        description="slowdown: a vjob is overdue when it has waited for longer than this part of its time "
        "limit, and for max_delay_s; it goes first then, and makes way for nobody",
    )
    max_delay_s: Annotated[float, Field(ge=0, le=86400 * 366)] = Field(
        86400.0, description="slowdown: the least wait of an overdue vjob; see max_delay"
    )
    user_share: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="slowdown: what a user's vjobs have beyond this part of the cluster (one vjob excepted) "
        "makes way for those of other users that have waited for user_share_s; 1: no bound",
    )
    user_share_s: Annotated[float, Field(ge=0, le=86400 * 366)] = Field(
        3600.0,
        description="slowdown: the wait after which a vjob may take what another user has beyond user_share. "
        "No vjob starts beyond that share where another user's vjob can",
    )
    pause_limit_s: Annotated[float, Field(ge=0, le=86400 * 366)] = Field(
        0.0,
        description="the longest time for which a vjob that makes way keeps its memory on its nodes, if no "
        "others need that memory; it goes on there at once. 0: it is saved. Where the memory of a "
        "partition is observed, no vjob is paused",
    )
    demand_window_s: Seconds = Field(60.0, description="time for which a VM has to use less before its demand falls")


_Share = Annotated[float, Field(gt=0, le=1)]


class Memory(Section):
    """Memory by observation, for the partitions with memory = "observed"."""

    threshold: _Share = Field(
        0.9, description="share of a node's memory up to which VMs are planned there; the rest is for growth meanwhile"
    )
    unknown: _Share = Field(
        0.5,
        description="share of its request that a new VM is taken to need, until a job of its user and name tells more",
    )
    percentile: _Share = Field(
        0.9,
        description="a new VM is taken to need the memory that was enough for this share of its user's jobs "
        "with the same name and request",
    )
    faults_per_s: float = Field(
        100.0,
        ge=1,
        description="a guest that reads that many pages a second from storage (major faults and swap-ins) "
        "needs all the memory that its balloon leaves it",
    )
    pressure: float = Field(
        20.0,
        ge=1,
        le=100,
        description="percent of the last 10 s in which something on a node waited for memory (PSI, some "
        "avg10). From this value on the node is short, whatever its VMs need",
    )
    watch_s: Seconds = Field(
        5.0,
        description="seconds between two looks for VMs that wait for memory; each look shares out anew the "
        "memory left on a node",
    )
    relief_mib: int = Field(
        64, ge=16, le=1 << 20, description="memory of each node kept back, so that a VM that waits for some can leave"
    )
    reserved_nodes: _Share = Field(
        0.25,
        description="the most nodes reserved at a time for VMs that outgrow theirs, as a share of all nodes; "
        "one node always may be",
    )
    reserving_s: Seconds = Field(
        600.0, description="time after which a reserved node without room is given up: the cluster is truly full"
    )
    reserve_until: Literal["room", "empty"] = Field(
        "room",
        description="a reserved node takes the VM that it is reserved for when there is `room` for it, or when it is "
        "`empty` of others",
    )


class Planning(Section):
    """How the engine searches for the plan of a context switch."""

    measured_durations: bool = Field(
        False,
        description="use what the last 30 days have measured in place of [durations], for each action that was "
        "measured ten times; `rmsplugin config show durations` tells which, and since when",
    )
    limit_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        10.0,
        description="the longest time of a proposal: one that takes longer is given up, and one without a "
        "search takes its place",
    )
    memory_limit_mib: int = Field(
        2048,
        ge=512,
        le=1 << 20,
        description="the most memory of a proposing process: one that takes more is ended, and a proposal "
        "without a search takes its place",
    )
    processes: Annotated[int, Field(ge=0, le=64)] = Field(
        0,
        description="the most proposing processes: several groups of VM hosts are proposed for at the same time; "
        "0: as many as the controller has CPUs. With one group there is one process",
    )
    objective: Literal["cost", "nodes", "energy"] = Field(
        "cost",
        description="`cost`: the cheapest plan; `nodes`: the fewest nodes, then the cheapest plan on as many; "
        "`energy`: the cheapest plan, and while nothing else is to be done a node that is little used is emptied by "
        "migrations, where that saves energy, so that it can be switched off (needs power.switch)",
    )
    cpu_in_plan: bool = Field(
        False,
        description="a VM comes to a node only when it has its CPUs there, as in the papers; such plans cost more, and "
        "suspend VMs where CPUs are short everywhere. Otherwise CPUs count in the end only, and VMs may share them "
        "while a plan is carried out",
    )


class Durations(Section):
    """How long each action on a VM takes by itself: a constant, and for some an amount for each MiB of the VM's memory.

    Decisions use them to weigh the costs of a context switch, and plans to estimate their duration.
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
        DEFAULTS["pipeline_s"],
        description="between the beginnings of two suspends of one vjob; so far apart its resumed VMs go on, too",
    )
    pause_s: _DurationS = Field(DEFAULTS["pause_s"], description="to pause a VM, whose memory stays where it is")
    unpause_s: _DurationS = Field(DEFAULTS["unpause_s"], description="to let a paused VM go on")


class Tokens(Section):
    """How many VMs context switches act on at the same time; the defaults suit nodes with one SSD and 10 GbE."""

    boots: int = Field(8, ge=1, le=1000, description="VMs that boot on a node")
    saves: int = Field(4, ge=1, le=1000, description="VMs of a node that are suspended")
    restores: int = Field(4, ge=1, le=1000, description="VMs that are resumed on a node")
    migrations: int = Field(2, ge=1, le=1000, description="VMs that migrate to a node, and as many from it")
    transfers: int = Field(
        64, ge=1, le=10000, description="VMs of the whole cluster that are suspended, resumed or migrate"
    )
