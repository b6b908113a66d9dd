"""Settings: one TOML file, every key documented here, unknown keys refused with their line.

The file holds no secret (keys lie in files of their own), so that wrapper, hooks and commands of all users can read it.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from rmsplugin import defaults
from rmsplugin.errors import SettingsError
from rmsplugin.settings.cluster import Cluster
from rmsplugin.settings.deciding import Decision, Durations, Memory, Planning, Tokens
from rmsplugin.settings.engine import Engine
from rmsplugin.settings.groups import Group, refuse_two_groups
from rmsplugin.settings.guests import Guest, Image
from rmsplugin.settings.metrics import Metrics
from rmsplugin.settings.native import for_native, is_native, why_not_native
from rmsplugin.settings.nodes import Hypervisor, Network, Nodes, Start
from rmsplugin.settings.page import Page
from rmsplugin.settings.podman import refuse_of_other_platform, why_not_containers
from rmsplugin.settings.power import Power
from rmsplugin.settings.rules import PlacementRule, why_not_by_groups
from rmsplugin.settings.schedule import Schedule
from rmsplugin.settings.section import Section
from rmsplugin.settings.slurm import Hosts, Partition, Slurm

DEFAULT_PATH = defaults.CONFIG
#: The directory with what the engine of each group has alone, beside what an engine of all groups has.
GROUPS_DIR = "groups"
#: Names that stand for something else where the groups have their places.
_NO_GROUPS = ("all", ".", "..")
#: Kinds of sections: tags that pydantic puts into the location of a fault.
_KINDS = ("kernel", "qcow2", "container", "command", "redfish")
_GROUP_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")


class Settings(Section):
    """The whole file."""

    engine: Engine = Engine()  # type: ignore[call-arg]
    cluster: Cluster = Cluster()  # type: ignore[call-arg]
    slurm: Slurm
    partition: dict[str, Partition] = Field(default_factory=dict)
    hosts: dict[str, Hosts] = Field(default_factory=dict)
    group: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,64}$")], Group] = Field(default_factory=dict)
    rule: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")], PlacementRule] = Field(default_factory=dict)
    hypervisor: Hypervisor = Hypervisor()  # type: ignore[call-arg]
    nodes: Nodes = Nodes()  # type: ignore[call-arg]
    start: Start = Start()  # type: ignore[call-arg]
    network: Network
    decision: Decision = Decision()  # type: ignore[call-arg]
    memory: Memory = Memory()  # type: ignore[call-arg]
    planning: Planning = Planning()  # type: ignore[call-arg]
    durations: Durations = Durations()  # type: ignore[call-arg]
    tokens: Tokens = Tokens()  # type: ignore[call-arg]
    schedule: Schedule = Schedule()  # type: ignore[call-arg]
    power: Power = Power()  # type: ignore[call-arg]
    metrics: Metrics = Metrics()  # type: ignore[call-arg]
    page: Page = Page()  # type: ignore[call-arg]
    guest: Guest = Guest()  # type: ignore[call-arg]
    image: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")], Image]
    _territory: str = PrivateAttr("")
    _managers_listen: str = PrivateAttr("")
    _managers_socket: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _needs_no_guests_without_vms(cls, data: Any) -> Any:
        return for_native(data) if is_native(data) else data

    @model_validator(mode="before")
    @classmethod
    def _says_nothing_of_another_platform(cls, data: Any) -> Any:
        refuse_of_other_platform(data)
        return data

    @model_validator(mode="after")
    def _has_default_image(self) -> Settings:
        if "default" not in self.image and not self.native:
            raise ValueError("needs an image named `default`: add a section [image.default]")
        return self

    @model_validator(mode="after")
    def _has_hosts_of_partitions(self) -> Settings:
        for name in self.slurm.partitions:
            if name not in self.partition:
                raise ValueError(
                    f"vjob partition {name} has no VM hosts: add a section [partition.{name}] with hosts = "
                    '"NAME OF A SLURM PARTITION"'
                )
        for name in self.partition.keys() - set(self.slurm.partitions):
            raise ValueError(f"[partition.{name}] is none of slurm.partitions: add it there, or remove the section")
        for name in self.hosts.keys() - {each.hosts for each in self.partition.values()}:
            raise ValueError(f"[hosts.{name}] is the `hosts` of no [partition.NAME]: name it there, or remove it")
        return self

    @model_validator(mode="after")
    def _has_each_host_in_one_group(self) -> Settings:
        refuse_two_groups(self.group)
        return self

    @model_validator(mode="after")
    def _has_groups_of_its_domains(self) -> Settings:
        for name in (name for domain in self.cluster.migration_domains for name in domain):
            if name not in self.group and name not in self.hosts_partitions:
                raise ValueError(
                    f"cluster.migration_domains names group {name}, which is neither a [group.NAME] nor the hosts of a "
                    "[partition.NAME]: correct the name, or add a section"
                )
        return self

    @model_validator(mode="after")
    def _has_rules_of_its_partitions(self) -> Settings:
        for name, rule in self.rule.items():
            for partition in rule.partitions:
                if partition not in self.slurm.partitions:
                    raise ValueError(
                        f"[rule.{name}] selects partition {partition}, which is none of slurm.partitions: name one of "
                        "them"
                    )
        return self

    @model_validator(mode="after")
    def _switches_what_it_empties(self) -> Settings:
        if self.planning.objective == "energy" and not self.power.switch:
            raise ValueError(
                'planning.objective = "energy" needs power.switch = true: it empties nodes to switch them off'
            )
        return self

    @model_validator(mode="after")
    def _asks_native_jobs_for_what_they_have(self) -> Settings:
        if self.native and (why := why_not_native(self.partition, self.power, self.cluster)):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _asks_containers_for_what_they_have(self) -> Settings:
        if why := why_not_containers(self.hypervisor, self.image, self.guest, self.network, self.partition):
            raise ValueError(why)
        return self

    @property
    def native(self) -> bool:
        """Whether vjobs are plain jobs of Slurm: there are no VMs, guests, node agents, rooms and fronts."""
        return self.hypervisor.platform == "native"

    @property
    def memory_overhead_mib(self) -> int:
        """The memory, in MiB, that a platform takes of a node for each VM, besides the VM's own."""
        return 0 if self.native else self.nodes.memory_overhead_mib

    @property
    def cpu_in_plan(self) -> bool:
        """Whether a VM comes to a node only when it has its CPUs there: Slurm starts no job beside allocated CPUs."""
        return self.native or self.planning.cpu_in_plan

    @property
    def territory(self) -> str:
        """The group whose engine has these settings; empty: an engine of all groups."""
        return self._territory

    @property
    def listens_at(self) -> str:
        """The address at which requests from other hosts arrive: this engine's, or its manager's; empty: at none."""
        return self._managers_listen or self.engine.listen

    @property
    def managers_socket(self) -> str:
        """The path of the socket of the manager that has started a group's engine; empty: an engine of all groups."""
        return self._managers_socket

    @property
    def site_path(self) -> str:
        """The node of the ensemble with all of the site; that of its groups' engines is below."""
        own = f"/{GROUPS_DIR}/{self._territory}"
        return self.cluster.path.removesuffix(own) if self._territory else self.cluster.path

    def of_group(self, name: str) -> Settings:
        """The settings of the engine of one group: it has a place of its own for all that an engine has alone.

        Raises:
            SettingsError: there can be no such engine.
        """
        if not _GROUP_NAME.fullmatch(name) or name in _NO_GROUPS:
            raise SettingsError(f"{name!r} cannot be the name of a group with an engine: name groups in [group.NAME]")
        if self.cluster.coordination == "local" or self.cluster.shared_dir is None:
            raise SettingsError(
                'the engine of a group needs cluster.coordination = "zookeeper" and cluster.shared_dir; without them, '
                "one engine has all groups: start it without --group"
            )
        self.require_kept_by_groups()
        engine = {
            "state_dir": self.engine.state_dir / GROUPS_DIR / name,
            "socket": self.engine.socket.parent / GROUPS_DIR / f"{name}.sock",
            "listen": "",
        }
        changes: dict[str, Any] = {
            "engine": self.engine.model_copy(update=engine),
            "metrics": self.metrics.model_copy(update={"listen": self.metrics.groups.get(name, ""), "groups": {}}),
            "cluster": self.cluster.model_copy(update={"path": f"{self.cluster.path}/{GROUPS_DIR}/{name}"}),
        }
        if self.nodes.shared_store is not None:
            own_store = self.nodes.shared_store / GROUPS_DIR / name
            changes["nodes"] = self.nodes.model_copy(update={"shared_store": own_store})
        settings = self.model_copy(update=changes)
        settings._territory, settings._managers_listen = name, self.engine.listen
        settings._managers_socket = str(self.engine.socket)
        return settings

    def require_kept_by_groups(self) -> None:
        """Refuse settings that engines of groups, each by itself, cannot keep.

        Raises:
            SettingsError: there are some.
        """
        if self.nodes.vm_dir_shared:
            raise SettingsError(
                "the engine of a group needs VMs' directories of the nodes' own: nodes of two groups would refuse each "
                "other's engines with nodes.vm_dir_shared"
            )
        if self.power.cap_w is not None:
            raise SettingsError(
                "power.cap_w is a bound for the whole site, which engines of groups cannot share: take it out, or have "
                "one engine for all groups"
            )
        for name, rule in self.rule.items():
            if why := why_not_by_groups(rule, self.group.values()):
                raise SettingsError(f"[rule.{name}]: {why}")

    def hosts_of(self, name: str) -> Hosts:
        """The rules for borrowing the nodes of a hosts partition; the defaults if the file has no section for it."""
        return self.hosts.get(name) or Hosts()  # type: ignore[call-arg]

    @property
    def through_agents(self) -> bool:
        """Whether the platform is reached through the nodes' agents, which refuse an engine whose turn is over."""
        connect = self.hypervisor.connect
        return connect == "agent" or (connect == "auto" and self.cluster.shared_dir is not None)

    @property
    def hosts_partitions(self) -> tuple[str, ...]:
        """The hosts partitions, each once, in the order of the vjob partitions."""
        return tuple(dict.fromkeys(self.partition[name].hosts for name in self.slurm.partitions))


#: The settings of the largest site have some 100,000 characters; a device has no end.
_MOST_CHARACTERS = 1 << 22


def settings_path(argument: str | None = None) -> Path:
    """The file to read: the argument, else $RMSPLUGIN_CONFIG, else the default."""
    return Path(argument or os.environ.get("RMSPLUGIN_CONFIG") or DEFAULT_PATH)


def load(path: Path) -> Settings:
    """Read and check the file.

    Raises:
        SettingsError: one line for each fault, with file and line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; name another file with --config or $RMSPLUGIN_CONFIG") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8 text") from None
    if len(text) > _MOST_CHARACTERS:
        raise SettingsError(f"{path}: longer than any settings; name another file with --config or $RMSPLUGIN_CONFIG")
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # of a number of thousands of digits no place is told
        raise SettingsError(f"{path}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: lists and sections are nested too deeply") from None
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        lines = [_explain(path, text, dict(fault)) for fault in error.errors()]
        raise SettingsError("\n".join(lines)) from None


def _explain(path: Path, text: str, fault: dict[str, Any]) -> str:
    # The tag that pydantic puts into the location of a discriminated union is not a key of the file.
    loc = [part for part in fault["loc"] if part not in _KINDS or part == fault["loc"][-1]]
    # A fault between two sections belongs to no key: its message begins with the section.
    section = re.match(r"Value error, \[(\w+)\.([^\]]+)\]", str(fault["msg"])) if not loc else None
    line = find_line(text, list(section.groups()) if section else loc)
    key = ".".join(str(part) for part in loc) or "settings"
    known = {"extra_forbidden": "unknown key", "missing": "is required"}
    message = known.get(fault["type"], str(fault["msg"]).removeprefix("Value error, "))
    return f"{path}:{line}: {key}: {message}"


def find_line(text: str, loc: list[Any]) -> int:
    """Line (from 1) of the deepest part of ``loc`` that the file has; 1 if the file has none of it.

    tomllib gives no positions, so this walks the headers and keys of the text itself.
    """
    wanted = [str(part) for part in loc]
    best_line, best_depth = 1, 0
    table: list[str] = []
    counts: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if header := re.match(r"^(\[\[?)\s*([^\[\]]+?)\s*\]\]?", line):
            table = [part.strip().strip("\"'") for part in header[2].split(".")]
            if header[1] == "[[":
                name = ".".join(table)
                counts[name] = counts.get(name, -1) + 1
                table = [*table, str(counts[name])]
            here = table
        elif pair := re.match(r"^([A-Za-z0-9_.\"'-]+?)\s*=", line):
            here = [*table, *(part.strip("\"'") for part in pair[1].split("."))]
        else:
            continue
        if here == wanted[: len(here)] and len(here) > best_depth:
            best_line, best_depth = number, len(here)
    return best_line
