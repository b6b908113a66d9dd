"""Settings of placement rules: which VMs are apart, together, or on which nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from rmsplugin.model.hostlist import expand
from rmsplugin.settings.groups import Group
from rmsplugin.settings.section import Section

#: By kind: the keys that it needs, and those that it may have besides ``discrete`` and those that select vjobs.
_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "spread": ((), ("per",)),
    "gather": ((), ("per",)),
    "fence": (("nodes",), ()),
    "ban": (("nodes",), ()),
    "lonely": ((), ("per",)),
    "split": (("per",), ()),
    "root": ((), ()),
    "capacity": (("most",), ("nodes", "per")),
    "reserve": (("nodes",), ("cpus", "memory_mib")),
    "online": (("most",), ("nodes",)),
}
_SELECTORS = ("accounts", "partitions", "users", "names", "licenses")
#: Kinds that are about nodes, whoever is there.
_OF_NODES = ("reserve", "online")
#: Kinds that hold at every step.
_CONTINUOUS = ("fence", "ban", "root", "reserve")
_LICENSE = re.compile(r"[^,;|:*=@\s]+")


class Traits(NamedTuple):
    """All of a vjob's job that rules select by; and its user's own wishes, see ``Geometry``."""

    name: str
    user: str
    account: str
    partition: str
    licenses: frozenset[str]
    wishes: frozenset[str] = frozenset()
    switches: int = 0
    label: str = ""  # of multi-category security in Slurm; vjobs without one are of one label, too

    @property
    def wishing(self) -> bool:
        """Whether its user wishes anything."""
        return bool(self.wishes or self.switches)


@lru_cache(maxsize=1024)
def license_names(text: str) -> frozenset[str]:
    """The names of the licences that a job asks for, as in ``matlab:2,ansys@server``."""
    parts = (_LICENSE.match(part.strip()) for part in re.split(r"[,;|]", text))
    return frozenset(part[0] for part in parts if part)


def _host_list(text: str) -> str:
    expand(text)
    return text


_Words = tuple[Annotated[str, Field(min_length=1)], ...]


class PlacementRule(Section):
    """A placement rule: its kind, the vjobs that it selects, and its nodes and numbers.

    A vjob is selected if each list that is given has it: all vjobs, if none is given.
    """

    kind: Literal["spread", "gather", "fence", "ban", "lonely", "split", "root", "capacity", "reserve", "online"] = (
        Field(
            description="`spread`: no two of the VMs are on one node; `gather`: all are on one node; `fence`: only on "
            "`nodes`; `ban`: never on `nodes`; `lonely`: no others are on their nodes; `split`: no node has VMs of two "
            "users, accounts, partitions or vjobs, by `per`; `root`: they are not migrated while they run; `capacity`: "
            "`most` of them are on `nodes` together; `reserve`: `cpus` and `memory_mib` of each of `nodes` are kept "
            "free of VMs; `online`: at most `most` of `nodes` host VMs, whichever are switched on"
        )
    )
    accounts: _Words = Field((), description="accounts in Slurm whose vjobs it selects")
    partitions: _Words = Field((), description="vjob partitions whose vjobs it selects")
    users: _Words = Field((), description="users whose vjobs it selects")
    names: _Words = Field((), description="names of the jobs that it selects; `*` and `?` stand for any letters")
    licenses: _Words = Field((), description="licences in Slurm: it selects the vjobs that ask for one of them")
    per: Literal["all", "vjob", "user", "account", "partition"] = Field(
        "all",
        description="`vjob`, `user`, `account` or `partition`: it holds for the VMs of each by itself; `all`: for all "
        "that it selects together. For `split`: whose VMs are kept from each other",
    )
    nodes: Annotated[str, AfterValidator(_host_list)] = Field(
        "",
        description="its nodes, as a host list of Slurm's, `n[1-8]`; empty for `capacity` and `online`: all VM hosts",
    )
    most: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        None, description="the number of VMs (`capacity`), or of nodes (`online`)"
    )
    cpus: Annotated[int, Field(ge=0, le=1 << 20)] = Field(0, description="CPUs kept free on each node (`reserve`)")
    memory_mib: Annotated[int, Field(ge=0, le=1 << 30)] = Field(
        0, description="memory kept free on each node (`reserve`)"
    )
    discrete: bool = Field(
        False,
        description="it holds at the end of a context switch only; false: at each of its steps, also while a VM "
        "migrates and has memory on two nodes",
    )

    @model_validator(mode="after")
    def _has_the_keys_of_its_kind(self) -> PlacementRule:
        for sentence in self._faults():
            raise ValueError(sentence)
        return self

    def _faults(self) -> Iterator[str]:
        kind, given = self.kind, self.model_fields_set
        needs, may = _KEYS[kind]
        may = (
            *needs,
            *may,
            *(() if kind in _OF_NODES else _SELECTORS),
            *(() if kind in _CONTINUOUS else ("discrete",)),
        )
        for key in needs:
            if key not in given:
                yield f"{kind} needs {key}: add it"
        for key in type(self).model_fields:
            if key in given and key not in ("kind", *may):
                yield f"{kind} has no key {key}: remove it; it may have {', '.join(may)}"
        if "nodes" in needs and not self.hosts:
            yield f"{kind} needs at least one node in nodes"
        if kind == "split" and self.per == "all":
            yield 'split needs per = "user", "account", "partition" or "vjob": whose VMs are kept from each other'
        if kind == "reserve" and not (self.cpus or self.memory_mib):
            yield "reserve needs cpus, memory_mib or both"

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The names of its nodes."""
        return frozenset(expand(self.nodes))

    def selects(self, traits: Traits) -> bool:
        """Whether it is about the VMs of a vjob."""
        return (
            (not self.accounts or traits.account in self.accounts)
            and (not self.partitions or traits.partition in self.partitions)
            and (not self.users or traits.user in self.users)
            and (not self.names or any(fnmatchcase(traits.name, each) for each in self.names))
            and (not self.licenses or not traits.licenses.isdisjoint(self.licenses))
        )


def why_not_by_groups(rule: PlacementRule, groups: Iterable[Group]) -> str:
    """Why engines of groups, each of which knows its own VMs only, cannot keep a rule; empty: they can."""
    if rule.kind not in ("gather", "capacity", "online") or rule.per == "vjob":
        return ""  # it is about single nodes, or about vjobs, each of which is in one group
    if rule.kind == "gather":
        return (
            'gather is about VMs of several vjobs, which may be in several groups: say per = "vjob", or have one '
            "engine for all groups"
        )
    counts = f"{rule.kind} counts VMs of several groups together, which engines of groups cannot"
    if not rule.hosts:
        return f"{counts}: name nodes of one group in nodes, or have one engine for all groups"
    homes = [group for group in groups if not rule.hosts.isdisjoint(group.names)]
    if len(homes) == 1 and rule.hosts.issubset(homes[0].names):
        return ""
    return f"{counts}: name nodes of one group only, with a rule for each group, or have one engine for all groups"
