"""Territory: what is a group's own: the hosts and vjobs by the leader's word, and the vjobs that its ledger has.

The leader gives a vjob to one group. From then on it is that group's until the group has given it up, whatever the
leader wishes; and a vjob of which anything has begun is the group's until it has ended. So no two engines ever have it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.engine.ledger.address_claims import AddressClaims
from rmsplugin.engine.ledger.given_book import Version
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import LedgerError, RmspluginError, UnavailableError
from rmsplugin.groups.given import Given, Place, read

#: In the directory that controllers share: that of the site's leader, and the name of the files with its word.
SITE_DIR, GIVEN = "site", "given"
#: In the same directory, that of the groups' claims of addresses.
ADDRESSES_DIR = "addresses"

#: Before any word of a leader.
_NOTHING = Given(0)


def territory_of(group: str, shared_dir: Path) -> Territory:
    """What is the group's own, by what there is on the directory that controllers share; it is not read yet."""
    site = shared_dir / SITE_DIR
    return Territory(group, EpochFiles(site, GIVEN), AddressClaims(site / ADDRESSES_DIR, group))


class Territory:
    """What is one group's own. Several threads may call.

    Attributes:
        group: its name.
        hosts: its hosts.
        own: the numbers under which the leader has given it vjobs, without those that it has given up.
        done: the version of the word by which all was given up that is to go and can.
        problem: why the leader's word is not followed as it is now, in a sentence; empty: it is.
    """

    def __init__(self, group: str, files: EpochFiles, claims: AddressClaims) -> None:
        """Own nothing yet; ``files``: with the leader's word; ``claims``: of addresses."""
        self.group = group
        self.claims = claims
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

    def remember_in(self, ledger: Ledger) -> None:
        """From now on the group has this ledger: its vjobs are its own, and no word older than it knows is followed.

        Raises:
            UnavailableError: the addresses of its VMs cannot be claimed.
            LedgerError: another group has one of them.
        """
        self.claims.read()
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
        mine = given.of_group(self.group)
        if self._ledger is not None and given.version > self._ledger.given.seen():
            self._ledger.given.follow(given.version, [each for each in mine if given.vjobs[each].to is not None])
        self._given, self.hosts = given, frozenset(given.groups.get(self.group, ()))
        self.own = mine - (self._ledger.given.released() if self._ledger is not None else frozenset())
        if self.is_told:
            self.problem = "" if self.group in given.groups else f"the leader has given group {self.group} no hosts"

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

    def place(self, number: int) -> Place | None:
        """Where it is by the leader's word; None: the leader has not given it."""
        return self._given.vjobs.get(number)

    def leaving(self) -> list[int]:
        """What is its own, and is to go to another group, by number."""
        return sorted(number for number in self.own if self._given.vjobs[number].to is not None)

    def gave_up(self, number: int) -> None:
        """Own it no more: the ledger has recorded it."""
        with self._lock:
            self.own -= {number}


def number_of(display_id: str, job_id: int) -> int:
    """The number under which the leader gives a job: that of its array, or its own."""
    number = display_id.partition("_")[0]
    return int(number) if number.isdecimal() else job_id


def _older(version: Version, seen: Version) -> str:
    return (
        f"the leader's word is number {version[1]} of epoch {version[0]}, and number {seen[1]} of epoch {seen[0]} was "
        "followed before: was the shared directory set back?"
    )
