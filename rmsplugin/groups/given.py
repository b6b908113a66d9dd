"""Given: which hosts each group has, and which vjobs its leader has given to it. One text, as it lies in a file.

The leader alone writes it, with a higher serial number each time; a new leader goes on from it with its own epoch. So
of two texts the one with the higher version is the newer. A vjob that it does not name is nobody's yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from rmsplugin.errors import RefusedError

#: The formats of the text that are read. A text with a parcel has the second one: an engine of a release that knows no
#: parcels would meet the job of such a vjob as a new one.
_PLAIN, _WITH_PARCELS = 1, 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a vjob is.

    Attributes:
        group: it owns the vjob.
        to: the group that the leader wishes it in; None: where it is.
        parcel: with which the vjob came there; the group owns it once it has taken that in. None: it came with none.
        relieves: whether it goes though it runs, so that its group has room for another: it is suspended to go.
    """

    group: str
    to: str | None = None
    parcel: str | None = None
    relieves: bool = False

    def stays(self) -> Place:
        """The same without a wish."""
        return replace(self, to=None, relieves=False)


@dataclass(frozen=True, slots=True)
class Given:
    """All groups, and the vjobs that are given. Made of what is valid only: see ``faults``.

    Attributes:
        epoch: of the leader, in the ensemble's count of leaders of the site.
        serial: of this text among those of its leader, from 0 on.
        groups: the hosts of each group, by its name.
        vjobs: by job id.
    """

    epoch: int
    serial: int = 0
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    vjobs: Mapping[int, Place] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def version(self) -> tuple[int, int]:
        """What orders two of them in time."""
        return self.epoch, self.serial

    def next(
        self, *, groups: Mapping[str, tuple[str, ...]] | None = None, vjobs: Mapping[int, Place] | None = None
    ) -> Given:
        """The leader's next one, with these groups and vjobs; as they are where none are given."""
        return replace(
            self,
            serial=self.serial + 1,
            groups=self.groups if groups is None else groups,
            vjobs=self.vjobs if vjobs is None else vjobs,
        )

    def begun(self, epoch: int) -> Given:
        """The first one of the next leader."""
        if epoch <= self.epoch:
            raise RefusedError(f"a leader of epoch {epoch} does not go on from one of epoch {self.epoch}")
        return replace(self, epoch=epoch, serial=0)

    def of_group(self, name: str) -> frozenset[int]:
        """The job ids of the vjobs that the group owns, also those that are to go to another."""
        return frozenset(job for job, place in self.vjobs.items() if place.group == name)


def faults(given: Given) -> list[str]:
    """A sentence for each fault, none for one that is valid."""
    found = []
    if given.epoch < 1 or given.serial < 0:
        found.append(f"epoch {given.epoch} and serial {given.serial} are no version")
    group_of: dict[str, str] = {}
    for name, hosts in given.groups.items():
        for host in hosts:
            if (other := group_of.setdefault(host, name)) != name:
                found.append(f"host {host} is in group {other} and in group {name}")
        if len(set(hosts)) < len(hosts):
            found.append(f"group {name} has a host twice")
    for job, place in given.vjobs.items():
        found += [
            f"vjob {job} is given to group {group}, which is not there"
            for group in (place.group, place.to)
            if group is not None and group not in given.groups
        ]
        if place.to == place.group:
            found.append(f"vjob {job} is to go to group {place.to}, where it is")
        if place.relieves and place.to is None:
            found.append(f"vjob {job} relieves group {place.group}, and is to go nowhere")
    return found


def text_of(given: Given) -> str:
    """Write it. Raises RefusedError if it is not valid."""
    _refuse(faults(given), "this is not to be given to groups")
    vjobs = {str(job): _written(place) for job, place in sorted(given.vjobs.items())}
    has_parcels = any(place.parcel is not None for place in given.vjobs.values())
    content = {
        "format": _WITH_PARCELS if has_parcels else _PLAIN,
        "epoch": given.epoch,
        "serial": given.serial,
        "groups": {name: list(hosts) for name, hosts in given.groups.items()},
        "vjobs": vjobs,
    }
    return json.dumps(content, indent=1) + "\n"


def _written(place: Place) -> dict[str, Any]:
    # An older release reads past `relieves`: its engine suspends nobody, and its leader takes the wish back.
    parcel = {} if place.parcel is None else {"parcel": place.parcel}
    return {"group": place.group, "to": place.to, **parcel, **({"relieves": True} if place.relieves else {})}


def read(text: str, *, epoch: int, name: str) -> Given:
    """Read it.

    Args:
        text: as ``text_of`` has written it.
        epoch: of the leader whose file has the text.
        name: of the file, for messages.

    Raises:
        RefusedError: it is not valid; the message says where.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise RefusedError(f"{name} is no JSON: {error}. {_WAY_OUT}") from None
    said = found.get("format") if isinstance(found, dict) else None
    if said not in (_PLAIN, _WITH_PARCELS):
        raise RefusedError(
            f"{name} is of format {said!r}; this release reads formats {_PLAIN} and {_WITH_PARCELS}. {_WAY_OUT}"
        )
    try:
        given = Given(_whole(found, "epoch"), _whole(found, "serial"), _groups(found), _vjobs(found))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RefusedError(f"{name}: {_said(error)}. {_WAY_OUT}") from None
    wrong = faults(given)
    if given.epoch != epoch:
        wrong.insert(0, f"it says that it is of epoch {given.epoch}")
    _refuse(wrong, f"{name} cannot be used")
    return given


_WAY_OUT = "The leader writes this file, nobody else: is the release the same on all controllers?"
#: How many faults a sentence names.
_NAMED = 3


def _refuse(wrong: list[str], what: str) -> None:
    if wrong:
        more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise RefusedError(f"{what}: {'; '.join(wrong[:_NAMED])}{more}. {_WAY_OUT}")


def _whole(found: Mapping[str, Any], name: str) -> int:
    if type(found[name]) is not int:
        raise ValueError(f"{name} {found[name]!r} is no number")
    return int(found[name])


def _groups(found: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    groups = {}
    for name, hosts in found["groups"].items():
        if not isinstance(hosts, list) or not all(isinstance(host, str) and host for host in hosts):
            raise ValueError(f"the hosts of group {name} are no list of names")
        groups[str(name)] = tuple(hosts)
    return MappingProxyType(groups)


def _vjobs(found: Mapping[str, Any]) -> Mapping[int, Place]:
    vjobs = {}
    for job, place in found["vjobs"].items():
        if not (job.isascii() and job.isdecimal()):
            raise ValueError(f"{job!r} is no job id")
        group, to, parcel, relieves = place["group"], place["to"], place.get("parcel"), place.get("relieves", False)
        if not isinstance(group, str) or not all(each is None or isinstance(each, str) for each in (to, parcel)):
            raise ValueError(f"vjob {job} is in no group with a name")
        if not isinstance(relieves, bool):
            raise ValueError(f"vjob {job}: relieves is {relieves!r}, neither true nor false")
        vjobs[int(job)] = Place(group, to, parcel, relieves)
    return MappingProxyType(vjobs)


def _said(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
