"""Group handover: an operator gives one group to a certain manager, or takes that back. Nothing is stopped for it.

The wish is written beside the group's assignment. The manager that leads carries it out at its next turn: the engine of
the group ends in order, and the next manager's goes on with its ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from rmsplugin.adapters.coordination.members import Member
from rmsplugin.engine.serve.asked import Asked
from rmsplugin.engine.serve.doors import HostNames
from rmsplugin.engine.serve.rights import Rights, user_name
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, UnreachableError
from rmsplugin.manager.fitness import Fitness
from rmsplugin.manager.handing import Hands
from rmsplugin.manager.site import Site

log = logging.getLogger(__name__)

#: In the place of a host: the leader is to choose again.
ANY = "any"
_NOTHING = "nothing was done"


class GroupHandover:
    """Takes orders about groups; in one event loop."""

    def __init__(
        self,
        site: Site,
        hands: Hands,
        rights: Rights,
        names: HostNames,
        trusted: Collection[str],
        fitness: Fitness,
    ) -> None:
        """Take none yet.

        Args:
            site: all managers and groups.
            hands: ways to other managers.
            rights: who is an operator.
            names: addresses of hosts.
            trusted: hosts whose operators count as such.
            fitness: which managers can do the work of one.
        """
        self._fitness = fitness
        self._site, self._hands, self._rights = site, hands, rights
        self._names, self._trusted = names, tuple(trusted)

    async def hand_over(self, asked: Asked) -> dict[str, Any]:
        """Have a group go to the manager that the request names, or to the one with the fewest hosts of the others.

        No group is given to a manager that is unfit while another one is fit.

        Raises:
            ForbiddenError: the caller is no operator, or on no controller.
            NotFoundError: there is no such group, or no such manager.
            RefusedError: it need not, or cannot, be handed over.
            UnavailableError: the manager, or the ensemble, does not answer.
        """
        await self._require_operator(asked)
        to, group = asked.body.node("to"), asked.body.group("group")
        if not group:
            raise RefusedError(
                "with managers, each group has a lead of its own: name a group, as in `rmsplugin handover GROUP`; or "
                "stop the manager on a host, and others get all its groups"
            )
        self._require_group(group)
        by = user_name(asked.uid)
        if to == ANY:
            await asyncio.to_thread(self._site.keep_at, group, "", by)
            log.info("%s lets group %s be at any manager", by, group)
            return {"to": "", "url": "", "version": "", "group": group}
        chosen = self._choose(group, to)
        await self._require_ready(chosen, group)
        await asyncio.to_thread(self._site.keep_at, group, chosen.name, by)
        log.info("%s has group %s handed over to %s", by, group, chosen.name)
        about = chosen.about
        return {"to": _host(chosen), "url": about.get("url", ""), "version": about.get("version", ""), "group": group}

    async def _require_operator(self, asked: Asked) -> None:
        origin = asked.origin
        if not (origin.here or await asyncio.to_thread(self._names.has, origin, self._trusted)):
            raise ForbiddenError(
                f"this is for the controller, and {origin} is none; see engine.trusted_hosts in the settings"
            )
        await asyncio.to_thread(self._rights.require_operator, asked.uid, "hand a group over")

    def _require_group(self, group: str) -> None:
        known = sorted(self._site.assignments)
        if group not in known:
            there = f"Those that there are: {', '.join(known)}" if known else "No group is known yet"
            raise NotFoundError(f"there is no group {group}: {_NOTHING}. {there}")

    def _choose(self, group: str, to: str) -> Member:
        """The manager on the host ``to``; if that is empty, of the others the one with the fewest hosts."""
        members = self._site.members
        if len(members) < 2:
            raise RefusedError(
                f"no other manager is there: {_NOTHING}. Start one on another controller, and see that `rmsplugin "
                "status` tells of it"
            )
        owner, loads = self._site.assignments[group].manager, self._loads()
        by_load = sorted(members.values(), key=lambda member: (loads[member.name], member.name))
        if not to:
            others = [each for each in by_load if each.name != owner]
            able = [each for each in others if each.name not in self._fitness.doubted()]
            if not able:
                self._require_fit(others[0])
            return (able or others)[0]
        named = [each for each in by_load if _short(_host(each)) == _short(to)]
        if not named:
            there = ", ".join(sorted({_host(each) for each in members.values()}))
            raise NotFoundError(f"no manager is on {to}: {_NOTHING}. Those that there are: {there}")
        # Where it is already, it stays: an operator may want no more than that.
        chosen = next((each for each in named if each.name == owner), named[0])
        self._require_fit(chosen)
        return chosen

    def _require_fit(self, chosen: Member) -> None:
        """Raise RefusedError for a manager that says that it is unfit, while another one says that it is fit."""
        why = self._fitness.unfit().get(chosen.name)
        if why and chosen.name in self._fitness.doubted():
            raise RefusedError(
                f"the manager on {_host(chosen)} is unfit: {why}; {_NOTHING}. Mend that first, or name another host"
            )

    def _loads(self) -> dict[str, int]:
        loads = dict.fromkeys(self._site.members, 0)
        for assignment in self._site.assignments.values():
            if assignment.manager in loads:
                loads[assignment.manager] += max(1, len(assignment.hosts))
        return loads

    async def _require_ready(self, chosen: Member, group: str) -> None:
        assignment = self._site.assignments[group]
        owner = self._site.members.get(assignment.manager)
        step = max(assignment.ledger, owner.about.get("ledger", "") if owner is not None else "")
        if chosen.about.get("ledger", "") < step:
            raise RefusedError(
                f"the manager on {_host(chosen)} is of release {chosen.about.get('version', 'unknown')}, which cannot "
                f"read the ledger of a group: {_NOTHING}. Install this release there first"
            )
        try:
            await self._hands.require_manager(chosen)
        except UnreachableError as error:
            raise RefusedError(f"the manager on {_host(chosen)} is there, but not ready: {error}; {_NOTHING}") from None


def _host(member: Member) -> str:
    return member.about.get("host") or member.name.partition(":")[0]


def _short(host: str) -> str:
    return host.partition(".")[0]
