"""Site: this manager among the others. It is there, it may lead them, and it has the groups that the leader gives it.

The one that leads gives each group to a manager. Two leads cannot overlap, but a write of the leader before may arrive
late: each write names the version that it replaces.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from rmsplugin.adapters.coordination.assignments import Assignment, Assignments
from rmsplugin.adapters.coordination.members import Member, Members
from rmsplugin.adapters.coordination.tree import ChangedError
from rmsplugin.adapters.lease.base import Lease
from rmsplugin.decision.manager_assignment import assign_groups
from rmsplugin.errors import NotFoundError, RmspluginError, UnavailableError

log = logging.getLogger(__name__)

#: The most tries to write where an operator wants a group, while others write.
_TRIES = 5
#: A manager that is passed over leads if nobody else has for so long, in seconds.
_UNLED_S = 10.0
#: By name, the hosts of each group.
Groups = Mapping[str, tuple[str, ...]]


class Site:
    """What this manager knows of the others and of all groups. One thread takes turns; all threads may read."""

    def __init__(
        self,
        name: str,
        members: Members,
        lease: Lease,
        assignments: Assignments,
        lead: Callable[[], str] = lambda: "",
        time_of_day: Callable[[], float] = time.time,
        *,
        passed_over: Callable[[], Collection[str]] = frozenset,
        doubted: Callable[[], Collection[str]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know nothing yet.

        Args:
            name: of this manager.
            members: all managers.
            lease: of the site's lead.
            assignments: which manager has which group.
            lead: tells the name of the manager that leads; raises UnavailableError.
            time_of_day: the host's clock.
            passed_over: tells the managers that neither lead nor have groups now (``Fitness``).
            doubted: tells those that get no more groups now.
            clock: seconds that pass.
        """
        self.name, self.lease = name, lease
        self._members, self._store = members, assignments
        self._groups: Groups | None = None
        self.members: Mapping[str, Member] = {}
        self.assignments: Mapping[str, Assignment] = {}
        self.problem = ""  # why nothing new is known; empty: all is as it was read last
        self.leader, self.leader_since = "", 0.0  # the manager that leads, and since when it was seen to
        self._lead, self._time_of_day = lead, time_of_day
        self._passed_over, self._doubted, self._clock = passed_over, doubted, clock
        self._led_at = clock()  # when some manager was seen to lead last
        self._is_needed = False  # it leads though it is passed over, for nobody else did
        self._said = ""
        self._lock = threading.Lock()
        self._left = False

    @property
    def own(self) -> frozenset[str]:
        """The groups that are given to this manager."""
        return frozenset(name for name, each in self.assignments.items() if each.manager == self.name)

    def set_groups(self, groups: Groups) -> None:
        """As the leader, have these groups, and no others, given to managers from the next turn on."""
        self._groups = groups

    def keep_at(self, group: str, manager: str, by: str) -> None:
        """Write down that an operator, ``by``, wants the group at this manager; empty: at any.

        The leader carries it out. It holds until that manager is gone.

        Raises:
            NotFoundError: the group is gone.
            UnavailableError: the ensemble does not answer, or others keep writing; it may be written all the same.
        """
        with self._lock:
            for _ in range(_TRIES):
                known = self._store.one(group)
                if known is None:
                    raise NotFoundError(f"there is no group {group} any more")
                try:
                    self._store.write(group, known.kept_at(manager, by))
                    return
                except ChangedError:
                    continue  # the leader has written meanwhile
        raise UnavailableError(f"what group {group} is given to changes all the time; try again in a moment")

    def turn(self) -> None:
        """Be there, campaign, read what there is, and as the leader give groups to managers. Never raises."""
        with self._lock:
            if not self._left:
                self._take_turn()

    def _take_turn(self) -> None:
        try:
            self._members.stay()
            if self._is_to_lead():
                self._campaign()
            self._see_leader()
            # Read in this order: a manager that a group is to go to is there before somebody writes so.
            assignments: Mapping[str, Assignment] = self._store.all()
            members: Mapping[str, Member] = self._members.all()
            if self.lease.held():
                assignments = self._give(members, assignments)
            self.members, self.assignments, self.problem = members, assignments, ""
        except RmspluginError as error:
            # What was known goes on being so: an engine that may act no more sees that by itself.
            self.problem = str(error)

    def leave(self) -> None:
        """Lead no more, and be there no more. Never raises."""
        with self._lock:
            self._left = True
            self.lease.release(at_rest=True)
            try:
                self._members.leave()
            except RmspluginError as error:
                log.warning("this manager is there until its session ends: %s", error)

    def _see_leader(self) -> None:
        leader = self.name if self.lease.held() else self._lead()
        if leader != self.leader:
            self.leader, self.leader_since = leader, self._time_of_day()
        if leader:
            self._led_at = self._clock()

    def _is_to_lead(self) -> bool:
        """Whether this manager is to lead, or to wait for that. One that is passed over lets others lead, if they do.

        If nobody else leads for a while, it leads until it is passed over no more: it never gives the lead up twice.
        """
        is_passed_over = self.name in self._passed_over()
        if not is_passed_over:
            self._is_needed = False
        elif not self._is_needed and self._clock() - self._led_at >= _UNLED_S:
            self._is_needed = True
            log.warning("nobody else leads: this manager does, though it is unfit")
        if self._is_needed or not is_passed_over:
            return True
        if self.lease.held():
            log.warning("this manager is unfit, and another one is not: it gives the lead up")
        self.lease.release(at_rest=True)
        return False

    def _campaign(self) -> None:
        led = self.lease.held()
        try:
            self.lease.renew() if led else self.lease.acquire()
        except UnavailableError as error:
            if led:
                log.warning("this manager does not lead any more: %s", error)
            elif self._said != (said := str(error).partition(",")[0]):
                # Sentences with a count-down differ at each time, and say the same.
                self._said = said
                log.info("%s", error)
            return
        if not led:
            self._groups = None  # known by a lead before
            log.info("this manager leads, with epoch %d of the ensemble", self.lease.epoch)

    def _give(self, members: Mapping[str, Member], before: Mapping[str, Assignment]) -> Mapping[str, Assignment]:
        """Give each group to a manager; groups as they are known, as long as nobody says which there are."""
        groups = self._groups if self._groups is not None else {name: each.hosts for name, each in before.items()}
        owners = {name: each.manager for name, each in before.items()}
        kept = {name: each.kept for name, each in before.items() if each.kept in members}
        sizes = {name: max(1, len(hosts)) for name, hosts in groups.items()}
        able = members.keys() - self._passed_over() or members.keys()
        ledgers = {name: max(each.ledger, _reads(members, each.manager)) for name, each in before.items()}
        barred = {name: {each for each in able if _reads(members, each) < step} for name, step in ledgers.items()}
        managers = assign_groups(sizes, able, owners, kept, closed=self._doubted(), barred=barred)
        found = dict(before)
        for name in sorted(before.keys() - groups.keys()):
            if not self.lease.held():
                return found
            self._store.remove(name)
            del found[name]
        for name, hosts in groups.items():
            known = before.get(name, Assignment((), ""))
            manager = managers.get(name, "")
            step = max(ledgers.get(name, ""), _reads(members, manager))
            wanted = replace(known, hosts=tuple(hosts), manager=manager, ledger=step)
            if name not in kept:
                wanted = wanted.kept_at("", "")  # its manager is gone, and with it the operator's word
            if wanted == known:
                continue
            if not self.lease.held():
                return found
            try:
                found[name] = self._store.write(name, wanted)
            except ChangedError:
                break  # another leader, or an operator, has written: the next turn reads it
            if wanted.manager != known.manager:
                log.info("group %s is given to %s", name, wanted.manager or "nobody: there is no manager")
        return found


def _reads(members: Mapping[str, Member], manager: str) -> str:
    """The newest step of the ledger's schema that a manager knows; empty: it is gone, or does not say."""
    return members[manager].about.get("ledger", "") if manager in members else ""
