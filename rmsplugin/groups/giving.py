"""Giving: what the leader of a site gives to the groups next, by Slurm's queue and by what the groups' engines say.

* A vjob that is in no text is given to a group with room for it, in the order of the queue.
* A vjob that waits in a group without room for it, while another one has some, is wished there (``Place.to``). It is
  given there when its engine has released it: when that engine has read the very text in which the wish is.
* A vjob that sleeps without room for a while, while another group has some, is wished there if its engine says that it
  can go. That engine copies its states, and packs a parcel; with the parcel it is given there.
* A vjob that runs goes only where the settings have migration domains, and for another one that has room nowhere
  (``relieving``): its engine suspends it, and hands it over as one that sleeps.
* Where the settings have migration domains, no saved state leaves its domain: other groups may be unable to restore it.
* Else a vjob that runs stays, and so does one that its engine does not release: it has begun before. A vjob that no
  engine has any more, and Slurm neither, is left out.

No vjob is ever given from one group to another in another way: so no two engines ever have it (I5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmsplugin.groups.choosing import Queued, RoomLeft, Shape, choose_and_leave
from rmsplugin.groups.forming import Group
from rmsplugin.groups.given import Given, Place
from rmsplugin.groups.relieving import Hot, Scene, partners, reliefs
from rmsplugin.groups.summary import Summary
from rmsplugin.model.rules import Rules, admit
from rmsplugin.model.vjob import VJobState

#: A vjob of one of these states has begun nothing, or is not known to its engine yet.
_NOT_BEGUN = (None, VJobState.WAITING)
#: A vjob of one of these states may be wished elsewhere.
_MAY_GO = (*_NOT_BEGUN, VJobState.SLEEPING)
#: A vjob of one of these states is on its way to sleep, if it is wished elsewhere though it runs.
_MAY_SLEEP = (VJobState.RUNNING, VJobState.SUSPENDING)
#: How many hosts a sentence names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Live:
    """A vjob that Slurm has, and that has not ended. All elements of a job array go together, and are one here.

    Attributes:
        job_id: its job id, or that of its array.
        shape: what it demands, or each element of the array.
        eligible: whether it waits for nothing but the engine.
    """

    job_id: int
    shape: Shape
    eligible: bool = True


@dataclass(frozen=True, slots=True)
class Packed:
    """A vjob that sleeps, and that an engine has packed into a parcel: no engine runs it now.

    Attributes:
        parcel: its number.
        to: the group on whose nodes its saved states are.
    """

    parcel: str
    to: str


@dataclass(frozen=True, slots=True)
class Heard:
    """What the engine of a group has said last; all of it was so at one instant.

    Attributes:
        seen: the version of the text that it had read last.
        released: the vjobs that it has given up by that text.
        vjobs: the state of each vjob that it has; of an array that of the element that has come furthest.
        summary: of its group.
        can_go: vjobs that sleep, and that it can hand over to another group.
        going: vjobs that it suspends to go, and those whose saved states it is copying to another group, or has copied.
        packed: vjobs that it has packed, until it has the proof that another group has taken them in.
        unclean: vjobs that are not its own, and of which there may be something left on its nodes.
        takes: whether it can take parcels in; an engine of an older release cannot.
        hot: who has no room there, and without whom it would; None: it is not hot.
    """

    seen: tuple[int, int]
    released: frozenset[int]
    vjobs: Mapping[int, VJobState]
    summary: Summary
    can_go: frozenset[int] = frozenset()
    going: frozenset[int] = frozenset()
    packed: Mapping[int, Packed] = field(default_factory=dict)
    unclean: frozenset[int] = frozenset()
    takes: bool = False
    hot: Hot | None = None


@dataclass(frozen=True)
class Wishes:
    """What is to be given.

    Attributes:
        vjobs: by job id, its place.
        hopeful: vjobs that wait, though the summary of the group where they are tells of room for them.
        kept: vjobs that were wished elsewhere, and that their engine does not release: they stay from now on.
        longing: vjobs that sleep without room where they are, while another group has some.
        named: vjobs that run and are in the way of another one, while another group has room for them.
    """

    vjobs: Mapping[int, Place]
    hopeful: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    longing: frozenset[int] = frozenset()
    named: frozenset[int] = frozenset()


def give(
    given: Given,
    queue: Sequence[Live],
    heard: Mapping[str, Heard],
    refused: Mapping[int, Collection[str]] | None = None,
    *,
    known: Collection[int] = (),
    kept: Collection[int] = (),
    ripe: Collection[int] = (),
    domains: Sequence[Collection[str]] = (),
    due: Collection[int] = (),
    spared: Collection[int] = (),
) -> Wishes:
    """Decide what is given next.

    Args:
        given: the newest text, which this leader wrote.
        queue: all vjobs that have not ended, in the order in which they may start, head first.
        heard: by group, what its engine has said; a group that is silent is not there, and nothing is given to it.
        refused: by vjob, groups that had no room for it though their summaries told of some.
        known: vjobs that have ended, and that Slurm still knows: it may queue them again.
        kept: vjobs that are wished nowhere else.
        ripe: vjobs that have been longing for so long that they are wished elsewhere.
        domains: the migration domains, each the names of groups between which vjobs go that have begun. Without any,
            those that sleep go between all groups, and those that run nowhere.
        due: vjobs that run, and have been named for so long that they are wished elsewhere.
        spared: vjobs that run, and have been wished elsewhere so recently that they stay.
    """
    giving = _Giving(given, queue, heard, refused or {}, frozenset(known), kept, ripe)
    giving.domains, giving.due, giving.spared = domains, due, spared
    return giving.give()


class _Giving:
    def __init__(
        self,
        given: Given,
        queue: Sequence[Live],
        heard: Mapping[str, Heard],
        refused: Mapping[int, Collection[str]],
        known: frozenset[int],
        kept: Collection[int],
        ripe: Collection[int],
    ) -> None:
        self._given, self._queue, self._refused = given, queue, refused
        self._known, self._stay, self._ripe = known, set(kept), ripe
        self._heard = {name: heard[name] for name in given.groups if name in heard}
        self._places = dict(given.vjobs)
        self.domains: Sequence[Collection[str]] = ()
        self.due: Collection[int] = ()
        self.spared: Collection[int] = ()

    def give(self) -> Wishes:
        if not self._given.vjobs and len(self._heard) < len(self._given.groups):
            # Engines may have had vjobs before there were groups. As long as nothing was given, all have to be heard,
            # and what some have is not noted either: else one that is heard later would lose its own.
            return Wishes({})
        self._leave_out_the_ended()
        self._claim()
        self._note_the_taken()
        self._hand_on_the_released()
        return self._place()

    def _state(self, job_id: int) -> VJobState | None:
        """The state of a vjob at the engine that owns it; None if that has not met it."""
        return self._heard[self._places[job_id].group].vjobs.get(job_id)

    def _leave_out_the_ended(self) -> None:
        live = self._known | {vjob.job_id for vjob in self._queue}
        had = {job_id for each in self._heard.values() for job_id in (*each.vjobs, *each.packed)}
        for job_id, place in self._given.vjobs.items():
            if place.group in self._heard and job_id not in live | had:
                del self._places[job_id]

    def _claim(self) -> None:
        """Note vjobs that engines have where they are already."""
        for name, each in self._heard.items():
            for job_id in each.vjobs:
                self._places.setdefault(job_id, Place(name))
        for name, each in self._heard.items():
            for job_id in each.packed:
                self._places.setdefault(job_id, Place(name))

    def _note_the_taken(self) -> None:
        """Parcels that were taken in need not be named any more."""
        for job_id, place in self._places.items():
            owner = self._heard.get(place.group)
            if place.parcel is not None and owner is not None and job_id in owner.vjobs:
                self._places[job_id] = replace(place, parcel=None)

    def _hand_on_the_released(self) -> None:
        for job_id, place in self._places.items():
            owner = self._heard.get(place.group)
            if place.to is not None and owner is not None:
                self._places[job_id] = self._handed_on(job_id, place, place.to, owner)

    def _handed_on(self, job_id: int, place: Place, to: str, owner: Heard) -> Place:
        """The place of a vjob that is wished elsewhere."""
        state, stays = owner.vjobs.get(job_id), place.stays()
        if state not in _MAY_GO and not (place.relieves and state in _MAY_SLEEP):
            return stays  # it has begun before the wish was read
        if owner.seen != self._given.version:
            return place
        packed = owner.packed.get(job_id)
        if packed is not None and packed.to == to:
            return Place(to, parcel=packed.parcel)
        if job_id in owner.going:
            return place
        if job_id in owner.released:
            return Place(to)
        if state in _NOT_BEGUN:
            self._stay.add(job_id)
        return stays

    def _place(self) -> Wishes:
        """Give those that are in no group, and wish those elsewhere that have no room where they wait."""
        if not self._heard:
            return self._wishes()
        groups = [Group(name, tuple(self._given.groups[name])) for name in self._heard]
        rules = {vjob.shape.rules for vjob in self._queue}
        told = [_closed(self._heard[group.name].summary, group, rules) for group in groups]
        asked = list(self._asked())
        refused = {each.queued.name: closed for each in asked if (closed := self._closed_to(each))}
        found, room = choose_and_leave((each.queued for each in asked), groups, told, refused=refused)
        hopeful, longing, unplaced = set(), set(), dict[int, str]()
        for each in asked:
            job_id, to = each.vjob.job_id, found[each.queued.name]
            place = self._places.get(job_id)
            if not (to.by_room or each.runs) and self._wants_room(each.vjob):
                unplaced[job_id] = to.group if place is None else place.group
            if place is None:
                self._places[job_id] = Place(to.group)
            elif each.at or not to.by_room:
                continue
            elif each.sleeps:
                if to.group != place.group:
                    longing.add(job_id)
                    if job_id in self._ripe and self._may_come(job_id, to.group):
                        self._places[job_id] = replace(place, to=to.group)
            elif each.vjob.eligible:
                if to.group == place.group:
                    hopeful.add(job_id)
                elif job_id not in self._stay:
                    self._places[job_id] = replace(place, to=to.group)
        return self._wishes(hopeful, longing, self._relieve(unplaced, room))

    def _wishes(
        self, hopeful: Collection[int] = (), longing: Collection[int] = (), named: Collection[int] = ()
    ) -> Wishes:
        kept = frozenset(self._stay & self._places.keys())
        return Wishes(self._places, frozenset(hopeful), kept, frozenset(longing), frozenset(named))

    def _relieve(self, unplaced: Mapping[int, str], room: RoomLeft) -> set[int]:
        """Wish vjobs that run in other groups, so that theirs have room. Returns all that might go, also the others."""
        if not self.domains:
            return set()
        leaving = {place.group for place in self._places.values() if place.relieves}
        coming = {place.to for place in self._places.values() if place.relieves}
        coming |= {place.group for place in self._places.values() if place.parcel is not None}
        scene = Scene(
            {vjob.job_id: vjob.shape for vjob in self._queue},
            unplaced,
            {
                job_id
                for job_id, place in self._places.items()
                if job_id not in self.spared and self._runs(job_id, place)
            },
            {name: each.hot for name, each in self._heard.items() if each.hot is not None},
            self._heard.keys() - leaving,
            self._heard.keys() - coming,
        )
        named = set()
        for relief in reliefs(scene, self.domains, room):
            named.add(relief.job_id)
            if relief.job_id in self.due and self._may_come(relief.job_id, relief.to):
                self._places[relief.job_id] = Place(relief.group, relief.to, relieves=True)
        return named

    def _wants_room(self, vjob: Live) -> bool:
        """Whether a vjob that does not run would go on if it had room; of one that sleeps this is taken for granted."""
        place = self._places.get(vjob.job_id)
        is_heard = place is not None and place.group in self._heard
        return vjob.eligible or (is_heard and self._state(vjob.job_id) not in _NOT_BEGUN)

    def _runs(self, job_id: int, place: Place) -> bool:
        owner = self._heard.get(place.group)
        waits_for_nothing = place.to is None and place.parcel is None
        return waits_for_nothing and owner is not None and owner.vjobs.get(job_id) is VJobState.RUNNING

    def _may_come(self, job_id: int, name: str) -> bool:
        """Whether a vjob that has begun may come to the group: nothing is left there of the last time it was there."""
        group = self._heard[name]
        return group.takes and group.seen == self._given.version and job_id not in group.unclean

    def _closed_to(self, asked: _Asked) -> frozenset[str]:
        """The groups to which a vjob does not go."""
        if asked.at:
            return frozenset(self._heard.keys() - {asked.at})
        closed = frozenset(self._refused.get(asked.vjob.job_id, ()))
        home = asked.queued.home
        if asked.sleeps and self.domains and home is not None:
            closed |= self._heard.keys() - {home} - partners(home, self.domains)
        return closed

    def _asked(self) -> Iterator[_Asked]:
        """The vjobs as they are to be chosen for: those that wait for something else come last."""
        can_go = {job_id for each in self._heard.values() for job_id in each.can_go}
        first = can_go | {job for job, place in self._places.items() if place.relieves or place.parcel is not None}
        for vjob in sorted(self._queue, key=lambda each: not (each.eligible or each.job_id in first)):
            place, name = self._places.get(vjob.job_id), str(vjob.job_id)
            if place is None:
                yield _Asked(vjob, Queued(name, vjob.shape))
            elif place.to in self._heard:
                yield _Asked(vjob, Queued(name, vjob.shape, place.to), place.to or "")
            elif place.group in self._heard and place.to is None:
                state, group = self._state(vjob.job_id), place.group
                if place.parcel is not None or (state is VJobState.SLEEPING and vjob.job_id not in can_go):
                    yield _Asked(vjob, Queued(name, vjob.shape, group), group)
                elif state in _MAY_GO:
                    yield _Asked(vjob, Queued(name, vjob.shape, group), sleeps=state is VJobState.SLEEPING)
                else:
                    demand = {group: vjob.shape.demand}
                    yield _Asked(vjob, Queued(name, vjob.shape, group, demand, has_memory=True), group, runs=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A vjob for which a group is looked for.

    Attributes:
        vjob: as Slurm has it.
        queued: as it is chosen for.
        at: the group where it stays; empty: it may go to another one.
        sleeps: whether it has saved states.
        runs: whether its VMs are there.
    """

    vjob: Live
    queued: Queued
    at: str = ""
    sleeps: bool = False
    runs: bool = False


def _closed(summary: Summary, group: Group, rules: Iterable[Rules]) -> Summary:
    """The summary, closed to rules that admit no host of the group: its engine knows those of its own vjobs only."""
    nowhere = frozenset(each for each in rules if not any(admit(each, host) for host in group.hosts))
    return replace(
        summary, classes=tuple(replace(each, closed_to=each.closed_to | nowhere) for each in summary.classes)
    )


@dataclass
class Patience:
    """For how long vjobs wait in groups whose summaries tell of room for them. Such a group has refused them then.

    Attributes:
        patience_s: so long may an engine take to start a vjob.
        forget_s: so long a refusal counts, and so long a vjob that was wished elsewhere as it ran is not again.
    """

    patience_s: float
    forget_s: float
    _since: dict[tuple[int, str], float] = field(default_factory=dict)
    _refused: dict[tuple[int, str], float] = field(default_factory=dict)
    _longing: dict[int, float] = field(default_factory=dict)
    _named: dict[int, float] = field(default_factory=dict)
    _relieved: dict[int, float] = field(default_factory=dict)

    def due(self, now: float) -> frozenset[int]:
        """The vjobs that run, and have been in the way for so long that they are wished elsewhere."""
        return frozenset(job_id for job_id, since in self._named.items() if now - since >= self.patience_s)

    def spared(self, now: float) -> frozenset[int]:
        """The vjobs that were wished elsewhere as they ran, and are not again for some time."""
        self._relieved = {job_id: at for job_id, at in self._relieved.items() if now - at < self.forget_s}
        return frozenset(self._relieved)

    def ripe(self, now: float) -> frozenset[int]:
        """The vjobs that have slept for so long without room, while another group had some, that they go there."""
        return frozenset(job_id for job_id, since in self._longing.items() if now - since >= self.patience_s)

    def refused(self, now: float) -> dict[int, set[str]]:
        """By vjob, the groups that have refused it."""
        self._refused = {key: at for key, at in self._refused.items() if now - at < self.forget_s}
        found: dict[int, set[str]] = {}
        for job_id, group in self._refused:
            found.setdefault(job_id, set()).add(group)
        return found

    def note(self, wishes: Wishes, now: float) -> None:
        """Note what was decided at this time."""
        keys = {(job_id, wishes.vjobs[job_id].group) for job_id in wishes.hopeful}
        self._since = {key: self._since.get(key, now) for key in keys}
        self._refused |= {key: now for key, at in self._since.items() if now - at >= self.patience_s}
        self._longing = {job_id: self._longing.get(job_id, now) for job_id in wishes.longing}
        self._named = {job_id: self._named.get(job_id, now) for job_id in wishes.named}
        self._relieved |= {job_id: now for job_id, place in wishes.vjobs.items() if place.relieves}


def groups_after(
    given: Given, formed: Mapping[str, tuple[str, ...]], heard: Mapping[str, Heard]
) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """The groups of the next text, and a sentence for each group that does not have the hosts it is to have.

    A group that has vjobs loses no host and does not end: its engine may be starting one there. Such a host goes to
    its new group when the old one has nothing any more. A group that is silent may have vjobs.

    Args:
        given: the newest text.
        formed: the hosts of each group as the settings and Slurm are now.
        heard: by group, what its engine has said.
    """
    empty = {name for name in given.groups if name in heard and not _has_something(heard[name])}
    empty -= {name for place in given.vjobs.values() for name in (place.group, place.to) if name is not None}
    kept = {host: name for name, hosts in given.groups.items() if name not in empty for host in hosts}
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys((*formed, *given.groups)):
        stays = given.groups.get(name, ()) if name not in empty else ()
        comes = [host for host in formed.get(name, ()) if kept.get(host, name) == name]
        if name in formed or stays:
            found[name] = tuple(dict.fromkeys((*stays, *comes)))
    return found, tuple(_kept_too_long(found, formed))


def _has_something(group: Heard) -> bool:
    return bool(group.vjobs or group.packed or group.unclean)


def _kept_too_long(found: Mapping[str, Sequence[str]], formed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, hosts in found.items():
        if stay := [host for host in hosts if host not in formed.get(name, ())]:
            more = f" and {len(stay) - _NAMED} more" if len(stay) > _NAMED else ""
            yield f"group {name} keeps {', '.join(stay[:_NAMED])}{more} until it has no vjob any more"
