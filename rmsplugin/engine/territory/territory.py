"""Territory: what is a group's own: the hosts and vjobs by the leader's word, and the vjobs that its ledger has.

The leader gives a vjob to one group. From then on it is that group's until the group has given it up, whatever the
leader wishes; and a vjob of which anything has begun is the group's until it has ended. So no two engines ever have it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.engine.ledger.address_claims import AddressClaims
from rmsplugin.engine.ledger.given_book import Version
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.parcel_book import ParcelKind
from rmsplugin.engine.territory.parcel_files import ParcelFiles
from rmsplugin.engine.territory.post import Post
from rmsplugin.errors import LedgerError, RmspluginError, UnavailableError
from rmsplugin.groups.given import Given, Place, read
from rmsplugin.groups.relieving import Hot
from rmsplugin.model.vjob import VJobState

#: In the directory that controllers share: that of the site's leader, and the name of the files with its word.
SITE_DIR, GIVEN = "site", "given"
#: In the same directory, those of the groups' claims of addresses, and of what they send each other.
ADDRESSES_DIR, PARCELS_DIR = "addresses", "parcels"

#: Before any word of a leader.
_NOTHING = Given(0)


def territory_of(group: str, shared_dir: Path) -> Territory:
    """What is the group's own, by what there is on the directory that controllers share; it is not read yet."""
    site = shared_dir / SITE_DIR
    claims = AddressClaims(site / ADDRESSES_DIR, group)
    return Territory(group, EpochFiles(site, GIVEN), claims, ParcelFiles(site / PARCELS_DIR, group))


class Territory:
    """What is one group's own. Several threads may call.

    Attributes:
        group: its name.
        hosts: its hosts.
        own: the numbers under which the leader has given it vjobs, without those that it has given up or packed, and
            those whose parcels it has not taken in.
        done: the version of the word by which all was given up that is to go and can.
        problem: why the leader's word is not followed as it is now, in a sentence; empty: it is.
        delay: why vjobs that go to other groups, or come from there, are kept waiting; empty: none is.
        can_go: vjobs that sleep, and that can be handed over to another group.
        parting: vjobs that run, and that are being suspended to go to another group.
        hot: who was left without room by the last decision, and without whom it would have some; None: nobody was.
        elsewhere: nodes of other groups that are up, and whose stores outlive rooms.
        strangers: hosts that have refused this turn at its begin: they obey an epoch that the ensemble never gave.
        own_reading: why this engine has read Slurm itself in its last look; empty: it was handed what others read.
    """

    def __init__(self, group: str, files: EpochFiles, claims: AddressClaims, parcels: ParcelFiles) -> None:
        """Own nothing yet.

        Args:
            group: its name.
            files: with the leader's word.
            claims: of addresses.
            parcels: of groups.
        """
        self.group = group
        self.claims, self.parcels = claims, parcels
        self.delay = self.own_reading = ""
        self.can_go: frozenset[int] = frozenset()
        self.parting: frozenset[int] = frozenset()
        self.hot: Hot | None = None
        self.elsewhere: frozenset[str] = frozenset()
        self.strangers: frozenset[str] = frozenset()
        self._post: Post | None = None
        self.hosts: frozenset[str] = frozenset()
        self.own: frozenset[int] = frozenset()
        self.done: Version = (0, 0)
        self.problem = "the leader's word was not read yet"
        self._files = files
        self._lock = threading.Lock()
        self._given = _NOTHING
        self._ledger: Ledger | None = None
        self._mark: object = None

    # -- the leader's word ---------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Read the leader's word, and follow it. If that cannot be, the word before is followed still."""
        with self._lock:
            # What cannot be read is read again by the next cycle, and as soon as the leader has written again.
            self._mark = self._files.mark()
            try:
                given = self._read()
            except RmspluginError as error:
                self.problem = str(error)
                return
            if given.version < (seen := self._seen()):
                self.problem = _older(given.version, seen)
            else:
                self._follow(given)

    def collect(self) -> None:
        """Take in what other groups have packed for this one, and send what it has packed. Never raises."""
        with self._lock:
            if self._ledger is None or self._post is None:
                return
            post, errors = self._post, []
            acts: list[Callable[[], None]] = [post.prove]
            acts += [partial(post.take_in, number, parcel) for number, parcel in sorted(self._awaited().items())]
            for act in (*acts, post.prove, post.send):
                try:
                    act()
                except RmspluginError as error:
                    errors.append(str(error))
            self.delay = f"vjobs that change groups wait: {errors[0]}" if errors else ""
            self.own = self._owned()

    def remember_in(self, ledger: Ledger) -> None:
        """From now on the group has this ledger: its vjobs are its own, and no word older than it knows is followed.

        Raises:
            UnavailableError: the addresses of its VMs cannot be claimed.
            LedgerError: another group has one of them.
        """
        self.claims.read()
        self._post = Post(self.group, self.parcels, self.claims, ledger)
        self._post.prove()  # the addresses of what was taken in are this group's
        if theirs := self.claims.claim_all(vm.address for vm in ledger.vms()):
            raise LedgerError(f"VMs of group {self.group} have the addresses {', '.join(theirs)}, of other groups")
        ledger.claims = self.claims
        with self._lock:
            self._ledger = ledger
            if self._given.version < (seen := self._seen()):
                # What it owned by the newer word is not known.
                self.problem = self.problem or _older(self._given.version, seen)
                self._given, self.hosts, self.own = _NOTHING, frozenset(), frozenset()
            else:
                self._follow(self._given)

    def news(self) -> bool:
        """Whether the leader has written since it was heard last."""
        return self._files.mark() != self._mark

    @property
    def version(self) -> Version:
        """The version of the word that is followed."""
        return self._given.version

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The hosts of all groups."""
        return self._given.groups

    @property
    def is_told(self) -> bool:
        """Whether a word of a leader is followed."""
        return self._given is not _NOTHING

    def _read(self) -> Given:
        newest = self._files.newest()
        if newest is None:
            raise UnavailableError(f"no leader has given hosts to group {self.group} yet")
        return read(newest.text, epoch=newest.epoch, name=newest.name)

    def _seen(self) -> Version:
        followed = self._given.version
        return followed if self._ledger is None else max(followed, self._ledger.given.seen())

    def _follow(self, given: Given) -> None:
        if self._ledger is not None and given.version > self._ledger.given.seen():
            mine = given.of_group(self.group)
            with self._ledger.transaction():
                self._ledger.given.follow(given.version, [each for each in mine if given.vjobs[each].to is not None])
                self._take_back(given, self._ledger)
        self._given, self.hosts = given, frozenset(given.groups.get(self.group, ()))
        self.own = self._owned()
        if self.is_told:
            self.problem = "" if self.group in given.groups else f"the leader has given group {self.group} no hosts"

    def _take_back(self, given: Given, ledger: Ledger) -> None:
        """Have the vjobs again that were packed for another group, and are not to go there any more."""
        for parcel in ledger.parcels.packed():
            place = given.vjobs.get(parcel.number)
            stays = place is not None and place.group == self.group and place.to != parcel.to
            if parcel.kind is ParcelKind.VJOB and stays and self._post is not None:
                self._post.take_back(parcel)

    def _owned(self) -> frozenset[int]:
        mine, ledger = self._given.of_group(self.group), self._ledger
        if ledger is None:
            return mine
        return mine - ledger.given.released() - ledger.parcels.vjobs().keys() - self._awaited().keys()

    def _awaited(self) -> dict[int, str]:
        """By number, the parcels of vjobs that come with some, which were not taken in."""
        assert self._ledger is not None
        taken, mine = self._ledger.parcels.is_taken, self._given.of_group(self.group)
        there = {number: parcel for number in mine if (parcel := self._given.vjobs[number].parcel) is not None}
        return {number: parcel for number, parcel in there.items() if not taken(parcel)}

    # -- what is its own -----------------------------------------------------------------------------------------

    def require_host(self, node: str) -> None:
        """Raise UnavailableError for a node of another group: it is asked nothing, as if it were silent."""
        if node not in self.hosts:
            raise UnavailableError(f"{node} is not a host of group {self.group}: this engine does not ask it")

    def vjobs(self) -> Collection[int]:
        """The job ids of the vjobs that its ledger has, and that have not ended."""
        return frozenset() if self._ledger is None else frozenset(vjob.job_id for vjob in self._ledger.vjobs())

    def knows(self, job_id: int) -> bool:
        """Whether the ledger has a vjob with this job id, or the leader has given it under this number."""
        return job_id in self.own or (self._ledger is not None and bool(self._ledger.vjobs_among([job_id])))

    def still_own(self, jobs: list[RmsJob]) -> list[RmsJob]:
        """Those of these jobs that it may begin something with now, after some may have been given up.

        One that sleeps here, and that the leader has given to another group, is not: this may be an old ledger, and
        the vjob may have gone on there.
        """
        known = self._ledger.vjobs_among(job.job_id for job in jobs) if self._ledger is not None else {}

        def is_own(job: RmsJob) -> bool:
            number, vjob = number_of(job.display_id, job.job_id), known.get(job.job_id)
            if vjob is not None and vjob.state is not VJobState.SLEEPING:
                return True
            return number in self.own or (vjob is not None and self.place(number) is None)

        return [job for job in jobs if is_own(job)]

    def place(self, number: int) -> Place | None:
        """Where it is by the leader's word; None: the leader has not given it."""
        return self._given.vjobs.get(number)

    def may_get(self, number: int) -> bool:
        """Whether it is, or is to be, this group's by the leader's word, or is known here on its way."""
        place = self.place(number)
        is_named = place is not None and self.group in (place.group, place.to)
        return is_named or self.knows(number) or (self._ledger is not None and number in self._ledger.parcels.vjobs())

    def open_host(self, group: str, first: int) -> str:
        """The host of another group that gets a copy of a saved state, looked for from this one on; empty: none can."""
        hosts = self._given.groups.get(group, ())
        return next((host for host in _turned(hosts, first) if host in self.elsewhere), "")

    def coming(self) -> list[int]:
        """What is another group's, and is to come here, by number."""
        return sorted(number for number, place in self._given.vjobs.items() if place.to == self.group)

    def hosts_from(self, first: int) -> Sequence[str]:
        """The hosts of this group, in the order in which others look for one to copy a saved state to."""
        return _turned(self._given.groups.get(self.group, ()), first)

    def leaving(self) -> list[int]:
        """What is its own, and is to go to another group, by number."""
        return sorted(number for number in self.own if self._given.vjobs[number].to is not None)

    def note_own_reading(self, why: str) -> None:
        """Note why this engine had to read Slurm itself; empty: it had not."""
        self.own_reading = why

    def gave_up(self, number: int) -> None:
        """Own it no more: the ledger has recorded it."""
        with self._lock:
            self.own -= {number}


def _turned(hosts: Sequence[str], first: int) -> Sequence[str]:
    start = first % max(1, len(hosts))
    return (*hosts[start:], *hosts[:start])


def number_of(display_id: str, job_id: int) -> int:
    """The number under which the leader gives a job: that of its array, or its own."""
    number = display_id.partition("_")[0]
    return int(number) if number.isdecimal() else job_id


def _older(version: Version, seen: Version) -> str:
    return (
        f"the leader's word is number {version[1]} of epoch {version[0]}, and number {seen[1]} of epoch {seen[0]} was "
        "followed before: was the shared directory set back?"
    )
