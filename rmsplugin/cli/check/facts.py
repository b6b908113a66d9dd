"""Facts: what Slurm says of itself, and what lies beside its configuration, as the rules take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.rms.slurm_records import preempt_type
from rmsplugin.settings import Settings
from rmsplugin.settings.rules import Traits
from rmsplugin.settings.slurm_time import slurm_time_s

SITE_FILE = "/etc/rmsplugin/site.lua"

#: One object as ``scontrol show`` prints it: KEY=VALUE.
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Association:
    """SlurmUser's association in the accounting database; a limit of None is none."""

    max_jobs: int | None = None
    max_submit: int | None = None


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What Slurm said, and what lies beside its configuration on this host."""

    unreachable: str = ""  # why Slurm did not answer
    host: str = ""  # name of this host
    now: float = 0.0  # seconds since the epoch
    config: Row = field(default_factory=dict)  # scontrol show config
    partitions: Mapping[str, Row] = field(default_factory=dict)  # scontrol show partition
    nodes: Mapping[str, Row] = field(default_factory=dict)  # scontrol show node
    reservations: Mapping[str, Row] = field(default_factory=dict)  # scontrol show reservation
    licenses: Mapping[str, int] = field(default_factory=dict)  # name -> how many there are
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # members of groups that partitions name
    associations: tuple[Association, ...] | str = ()  # SlurmUser's; a text says why they could not be read
    #: Jobs in the queue, by id, if there are rules that select some; a text says why they could not be read.
    queue: tuple[tuple[str, Traits], ...] | str = ()
    saved_bytes_per_s: float = 0.0  # of the last suspends, as the ledger has them; 0 if there were none
    texts: Mapping[str, str | None] = field(default_factory=dict)  # path -> content; None: not readable here

    def text(self, path: str) -> str | None:
        """Content of a file of this host."""
        return self.texts.get(path)

    def nodes_of(self, partition: str) -> tuple[str, ...]:
        """Names of a partition's nodes, in Slurm's order."""
        return tuple(name for name, row in self.nodes.items() if partition in partitions_of(row))

    def vm_hosts(self, settings: Settings) -> tuple[str, ...]:
        """Names of the nodes of all hosts partitions, in Slurm's order."""
        return tuple(
            name for name, row in self.nodes.items() if not partitions_of(row).isdisjoint(settings.hosts_partitions)
        )

    def cpus(self, nodes: tuple[str, ...]) -> int:
        """CPUs of these nodes."""
        return sum(number(self.nodes[name].get("CPUTot", "")) for name in nodes)

    def memory_mib(self, nodes: tuple[str, ...]) -> int:
        """Memory of these nodes."""
        return sum(number(self.nodes[name].get("RealMemory", "")) for name in nodes)

    @property
    def preempt_type(self) -> str:
        """PreemptType of slurm.conf."""
        return preempt_type(self.config)


def partitions_of(node: Row) -> set[str]:
    """The partitions that a node is in."""
    return set(words(node.get("Partitions", "")))


def words(value: str) -> list[str]:
    """The parts of a list as Slurm prints it; none of `(null)`."""
    return [part for part in value.split(",") if part not in ("", "(null)")]


def number(value: str) -> int:
    """The number that a value begins with; 0 if it begins with none."""
    digits = value[: len(value) - len(value.lstrip("0123456789"))]
    return int(digits or 0)


def modes(row: Row) -> set[str]:
    """The words of a partition's PreemptMode."""
    return set(words(row.get("PreemptMode", "OFF").upper()))


def tier(row: Row) -> int:
    """A partition's PriorityTier."""
    return number(row.get("PriorityTier", "1"))


def time_limit_s(value: str) -> float | None:
    """A time limit of a partition's in seconds; None if there is none, or none that can be read."""
    try:
        return float(slurm_time_s(value))
    except ValueError:
        return None


def some(names: list[str] | tuple[str, ...]) -> str:
    """Names for a sentence: at most four, then how many more."""
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown
