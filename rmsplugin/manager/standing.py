"""Standing: what a manager tells of itself, of the others, and of the engines of all groups: for `rmsplugin status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rmsplugin import __version__
from rmsplugin.adapters.coordination.candidates import Standing
from rmsplugin.adapters.coordination.members import Member
from rmsplugin.adapters.coordination.servers import ServerFact
from rmsplugin.engine.context.hearing import CANNOT_HEAR
from rmsplugin.engine.controllers.controllers import degraded_ensemble, differences
from rmsplugin.engine.serve.asked import Reply
from rmsplugin.errors import RmspluginError
from rmsplugin.manager.children import Children
from rmsplugin.manager.leader import Leader
from rmsplugin.manager.placed import Placed
from rmsplugin.manager.site import Site

#: An engine that was started so often in a row is said.
_RESTARTS = 2


class OwnStatus:
    """The manager's part of the answer to `status`."""

    def __init__(
        self,
        about: Mapping[str, str],
        site: Site,
        placed: Placed,
        leader: Leader,
        children: Children,
        servers: Callable[[], Sequence[ServerFact]],
        deaf: Callable[[], Mapping[str, str]] = dict,
        unfit: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Say nothing yet.

        Args:
            about: what this manager says of itself.
            site: this manager among the others.
            placed: which group has what.
            leader: this manager's work as the leader.
            children: the engines that it runs.
            servers: those of the ensemble, as they were seen last.
            deaf: by manager, why it cannot hear.
            unfit: by manager, why it can neither lead nor have groups.
        """
        self._unfit = unfit
        self._about, self._site, self._placed = about, site, placed
        self._leader, self._children, self._servers, self._deaf = leader, children, servers, deaf
        self._started = time.time()

    def tell(self, replies: Mapping[str, Reply], errors: Mapping[str, RmspluginError]) -> Reply:
        """What the manager says itself, given what the engines of groups have answered."""
        site = self._site
        others = [member for name, member in site.members.items() if name != site.leader]
        return {
            "version": __version__,
            "started": self._started,
            "host": self._host(site.leader),
            "epoch": self._placed.given.epoch,
            "cluster": {
                "leads_since": site.leader_since,
                "standbys": [
                    {"host": _host_of(each), "url": each.about.get("url", ""), "version": each.about.get("version", "")}
                    for each in others
                ],
                "degraded": [*self._degraded()],
            },
            "problems": [*self._leader.problems],
            "groups": [self._group(name, replies.get(name), errors.get(name)) for name in {**replies, **errors}],
        }

    def _group(self, name: str, reply: Reply | None, error: RmspluginError | None) -> Reply:
        assignment = self._site.assignments.get(name)
        member = self._site.members.get(assignment.manager) if assignment else None
        kept = assignment.kept if assignment else ""
        cluster = (reply or {}).get("cluster") or {}
        return {
            "name": name,
            "host": "" if member is None else _host_of(member),
            "url": "" if member is None else member.about.get("url", ""),
            "answers": reply is not None,
            "epoch": None if reply is None else reply["epoch"],
            "leads_since": cluster.get("leads_since"),
            "problem": str(error) if error is not None else "",
            "kept_on": self._host(kept) if kept else "",
            "kept_by": assignment.kept_by if assignment else "",
        }

    def _degraded(self) -> Iterator[str]:
        site = self._site
        for problem in (site.problem, self._placed.problem):
            if problem:
                yield problem
        for name, why in sorted(self._deaf().items()):
            yield (
                f"the manager {name} {CANNOT_HEAR}: {why}. Clients ask another one; until it can, and for "
                "engine.orphan_s after that, no wrapper counts as silent"
            )
        for name, why in sorted(self._unfit().items()):
            yield (
                f"the manager {name} is unfit: {why}. If another one is fit, that one leads, and has its groups, until "
                "this is mended; see munge, the network and slurm.bin_dir on that host"
            )
        yield from degraded_ensemble(self._servers())
        if len(site.members) < 2:
            yield "no other manager is there: no group has an engine if this host dies"
        for name, member in site.members.items():
            if name != site.name:
                yield from differences(self._about, Standing("", name, "", member.about, None, ""))
        for group, child in self._children.views().items():
            if child["restarts"] >= _RESTARTS:
                times = f"{child['restarts']} times in a row"
                how, _, said = child["last_end"].partition(": ")
                yield f"the engine of group {group} on this host {how}, {times}" + (f": {said}" if said else "")

    def _host(self, name: str) -> str:
        member = self._site.members.get(name)
        return name.partition(":")[0] if member is None else _host_of(member)


def _host_of(member: Member) -> str:
    return member.about.get("host") or member.name.partition(":")[0]
