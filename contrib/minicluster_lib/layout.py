"""Layout: what a minicluster consists of, and where in its directory each thing lies."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

HEAD = "head"
NETWORK = "10.77.0.0/16"
PREFIX_LENGTH = 16
HEAD_ADDRESS = "10.77.0.1"
SECOND = "front2"
"""The host of the second controller, where there is one."""
LIBVIRT_TLS_PORT = 16514
QEMU_ACCOUNT = "libvirt-qemu"
ENGINE_NAME = "rmsplugin-engine"
"""Of QEMU, user and group, as Debian has it."""
MEMBER_VARIABLE = "RMSPLUGIN_MINICLUSTER_MEMBER"
"""Set, with the cluster's directory as value, in the environment of every process of a minicluster."""

USERS = {"alice": 2001, "bob": 2002}
PRIMARY_GROUPS = {"alice": "physics", "bob": "bob"}
"""A group has its user's number; that its name may be another one, as at most sites, is seen with alice's."""

PROJECTS = {"proj": (3001, ("alice",)), "lab": (3002, ("alice", "bob"))}
"""Supplementary groups: the number and the members of each. Each has a directory /home/NAME of mode 2770."""

REPOSITORY = Path(__file__).resolve().parent.parent.parent
VENV = REPOSITORY / ".venv"

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class MiniclusterError(Exception):
    """Something the user can act on; its text is shown without a traceback."""


class RefusedError(MiniclusterError):
    """The request can't be honoured on this machine or with these arguments (exit status 2)."""


def default_directory() -> Path:
    """Return the directory of the minicluster when none is named."""
    return Path(os.environ.get("RMSPLUGIN_MINICLUSTER_DIR") or "/var/tmp/rmsplugin-minicluster")


@dataclass(frozen=True)
class Host:
    """One host: a name, an address, and its part of the cluster's directory."""

    name: str
    address: str
    cluster_directory: Path

    @property
    def bmc_address(self) -> str:
        """Where a node's BMC is, in the network of BMCs; the head and the fronts ask from there."""
        return self.address.replace("10.77.", "10.78.", 1)

    @property
    def is_head(self) -> bool:
        """Whether this is the head (controller, accounting, NFS, engine, the first front)."""
        return self.name == HEAD

    @property
    def directory(self) -> Path:
        """Where the host's private files lie on the machine."""
        return self.cluster_directory / "hosts" / self.name

    def path(self, inside: str) -> Path:
        """Return where the host's own /etc, /var, /root or /tmp path lies on the machine."""
        return self.directory / inside.lstrip("/")

    @property
    def log_directory(self) -> Path:
        """Where the host's logs lie on the machine (its /var/log)."""
        return self.cluster_directory / "log" / self.name


@dataclass
class Cluster:
    """The parameters of a minicluster, kept in DIR/state/cluster.json."""

    directory: Path
    nodes: int = 3
    fronts: int = 1
    controllers: int = 1
    shared_nfs: bool = False
    managers: bool = False
    rooms: str = "hold"
    room_idle_s: float = 5.0
    demand_window_s: float = 60.0
    grace_s: int = 60
    cpus: int = 2
    memory_mib: int = 2048
    cycle_s: float = 2.0
    watch_s: float = 1.0
    engine: bool = True
    observed_memory: bool = False
    power_saving: bool = False
    network_filter: str = ""
    native: bool = False
    podman: bool = False
    domain_type: str = "qemu"
    image_directory: str = ""
    ready: bool = False
    init_pids: dict[str, int] = field(default_factory=dict)

    @property
    def head(self) -> Host:
        """The head."""
        return Host(HEAD, HEAD_ADDRESS, self.directory)

    @property
    def second(self) -> Host | None:
        """The host of the second controller."""
        return self.front_hosts[SECOND] if self.controllers == 2 else None

    @property
    def file_server(self) -> Host | None:
        """The host that serves what two controllers share by NFS: a node that has no part in the ensemble."""
        return self.node_hosts[-1] if self.shared_nfs else None

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The groups of VM hosts that managers share: the first node, and the others. None without managers."""
        first, *others = (host.name for host in self.node_hosts)
        return {"left": (first,), "right": tuple(others)} if self.managers else {}

    @property
    def engine_daemon(self) -> str:
        """The daemon that decides on a controller: an engine, or the manager that runs the engines of groups."""
        return "manager" if self.managers else "engine"

    @property
    def node_hosts(self) -> list[Host]:
        """The nodes, n1 first."""
        return [Host(f"n{i}", f"10.77.0.{10 + i}", self.directory) for i in range(1, self.nodes + 1)]

    @property
    def front_hosts(self) -> dict[str, Host]:
        """The hosts that run wrappers, by their names in Slurm: front1 is the head, the others are only that.

        There are none without VMs.
        """
        others = {
            f"front{i}": Host(f"front{i}", f"10.77.0.{200 + i}", self.directory) for i in range(2, self.fronts + 1)
        }
        return {"front1": self.head, **others} if self.fronts else {}

    @property
    def hosts(self) -> list[Host]:
        """The head, the other fronts, and the nodes."""
        return [self.head, *list(self.front_hosts.values())[1:], *self.node_hosts]

    def host(self, name: str) -> Host:
        """Return the host of that name, its own or Slurm's."""
        named = {host.name: host for host in self.hosts} | self.front_hosts
        if name in named:
            return named[name]
        raise RefusedError(f"no host {name!r} in this minicluster; it has {', '.join(h.name for h in self.hosts)}")

    @property
    def has_libvirt(self) -> bool:
        """Whether its vjobs are VMs of libvirt's."""
        return not (self.native or self.podman)

    @property
    def vjob_partitions(self) -> list[str]:
        """The partitions whose jobs are vjobs."""
        if self.native:
            return ["batch", "urgent"]
        return ["vjob", "urgent", *(["shared"] if self.observed_memory else [])]

    @property
    def shared(self) -> Path:
        """Files that all hosts see: slurm/ (their /etc/slurm) and home/ (their /home)."""
        return self.directory / "shared"

    @property
    def secrets(self) -> Path:
        """Key material, before it is put where the hosts look for it."""
        return self.directory / "secrets"

    def save(self) -> None:
        """Write DIR/state/cluster.json, atomically."""
        path = state_file(self.directory)
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {**asdict(self), "directory": str(self.directory)}
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(values, indent=1) + "\n")
        temporary.replace(path)

    @staticmethod
    def load(directory: Path) -> Cluster | None:
        """Read DIR/state/cluster.json; None when there is none, or none that can be read."""
        try:
            values = json.loads(state_file(directory).read_text())
            values["directory"] = directory
            return Cluster(**values)
        except (OSError, ValueError, TypeError):
            return None


def state_file(directory: Path) -> Path:
    """Return the path of the cluster's parameters."""
    return directory / "state" / "cluster.json"
