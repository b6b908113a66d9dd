"""Forming: the groups of a site, from its settings, its hosts partitions and its switches.

A host is in exactly one group. A hosts partition is a group by default; partitions that share hosts are one, and a
large one is split along its switches, for the hosts of one switch reach each other best. ``[group.NAME]`` says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: The most hosts of a group that nobody named.
MOST_HOSTS = 1000

#: The number of hosts that a sentence names; for more, their number is enough.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Group:
    """A group: its name, and the names of its hosts in the order of the site."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Formed:
    """All groups of a site, and a sentence for each fault of the settings."""

    groups: tuple[Group, ...] = ()
    faults: tuple[str, ...] = ()


def form(
    partitions: Mapping[str, Sequence[str]],
    named: Mapping[str, Sequence[str]] | None = None,
    switches: Sequence[Collection[str]] = (),
    most: int = MOST_HOSTS,
) -> Formed:
    """Form the groups of a site.

    Args:
        partitions: the hosts of each hosts partition.
        named: the hosts of each ``[group.NAME]``.
        switches: the hosts of each leaf switch, neighbours beside each other; none: the order of hosts counts.
        most: the most hosts of a group that nobody named.

    Returns:
        Groups that have each host of the partitions exactly once, whatever the faults: a host that is named twice
        stays in the group that names it first, hosts that no group names are groups as if there were no settings.
    """
    return _Forming(partitions, named or {}, switches, most).form()


@dataclass
class _Forming:
    partitions: Mapping[str, Sequence[str]]
    named: Mapping[str, Sequence[str]]
    switches: Sequence[Collection[str]]
    most: int
    group_of: dict[str, str] = field(default_factory=dict)  # by host
    faults: list[str] = field(default_factory=list)

    def form(self) -> Formed:
        known = dict.fromkeys(host for hosts in self.partitions.values() for host in hosts)
        for name, hosts in self.named.items():
            self._take(name, hosts, known)
        members: dict[str, list[str]] = {}
        for host in known:
            if host in self.group_of:
                members.setdefault(self.group_of[host], []).append(host)
        groups = [Group(name, tuple(members[name])) for name in self.named if name in members]
        return Formed((*groups, *self._others()), tuple(self.faults))

    def _take(self, name: str, hosts: Iterable[str], known: Collection[str]) -> None:
        """Give a named group its hosts; unknown ones, and those of another group, are faults."""
        unknown = []
        for host in hosts:
            other = self.group_of.setdefault(host, name) if host in known else name
            if host not in known:
                unknown.append(host)
            elif other != name:
                self.faults.append(f"[group.{name}] names {host}, which is in [group.{other}]: it stays there")
        if unknown:
            self.faults.append(f"[group.{name}] names {_some(unknown)}: no hosts partition has such a node")

    def _others(self) -> Iterator[Group]:
        """The groups of the hosts that no group names: a group for each set of partitions that share some of them."""
        for names in _tied({name: self._left(name) for name in self.partitions}):
            hosts = tuple(dict.fromkeys(host for name in names for host in self._left(name)))
            name = "+".join(names)
            if len(hosts) < len({host for each in names for host in self.partitions[each]}):
                self.faults.append(
                    f"{_some(hosts)} of hosts partition {' and '.join(names)} are in no [group.NAME]: "
                    "add them to one; until then they are a group of their own"
                )
            if any(each == name or each.startswith(f"{name}-") for each in self.named):
                name += "+rest"
            yield from self._split(name, hosts)

    def _left(self, partition: str) -> list[str]:
        return [host for host in self.partitions[partition] if host not in self.group_of]

    def _split(self, name: str, hosts: Sequence[str]) -> Iterator[Group]:
        """One group; or several of about the same size, if there are more hosts than a group may have."""
        number = math.ceil(len(hosts) / self.most)
        if number <= 1:
            yield from (Group(name, tuple(hosts)) for _ in range(number))
            return
        place = {host: at for at, host in enumerate(hosts)}
        chunks = _chunks(list(self._blocks(hosts)), self.most, math.ceil(len(hosts) / number))
        for index, chunk in enumerate(chunks, start=1):
            yield Group(f"{name}-{index}", tuple(sorted(chunk, key=place.__getitem__)))

    def _blocks(self, hosts: Sequence[str]) -> Iterator[list[str]]:
        """The hosts by their switches, each host once; then those of no switch, one by one."""
        left = dict.fromkeys(hosts)
        for switch in self.switches:
            block = [host for host in left if host in switch]
            for host in block:
                del left[host]
            if block:
                yield block
        yield from ([host] for host in left)


def _chunks(blocks: list[list[str]], most: int, wanted: int) -> list[list[str]]:
    """Blocks put together to chunks of about ``wanted``, of ``most`` at most; only larger blocks are cut."""
    chunks: list[list[str]] = []
    for whole in blocks:
        pieces = [whole[at : at + wanted] for at in range(0, len(whole), wanted)] if len(whole) > most else [whole]
        for piece in pieces:
            if chunks and len(chunks[-1]) < wanted and len(chunks[-1]) + len(piece) <= most:
                chunks[-1] += piece
            else:
                chunks.append(list(piece))
    while len(chunks) > 1 and len(chunks[-2]) + len(chunks[-1]) <= most:
        last = chunks.pop()
        chunks[-1] += last
    return chunks


def _tied(members: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """The names whose members overlap, together, in their order; names without members are left out."""
    found: list[tuple[list[str], set[str]]] = []
    for name, hosts in members.items():
        if not hosts:
            continue
        names, joined = [], set(hosts)
        for each in [each for each in found if not each[1].isdisjoint(joined)]:
            names += each[0]
            joined |= each[1]
            found.remove(each)
        found.append(([*names, name], joined))
    yield from (names for names, _ in found)


def _some(hosts: Sequence[str]) -> str:
    """The first hosts by name, and the number of the others."""
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    return ", ".join(hosts[:_NAMED]) + more
