"""Arrivals: each VM that comes to a node by a plan is looked at once more, by the rules about VMs beside each other.

All VMs and the rules' selections are kept while the look at the cluster is the same, and follow the ledger. For a large
site a context switch has hundreds of arrivals, and to go through all VMs for each would take longer than to begin it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rmsplugin.engine.assess.site_rules import Member, Selected, rules_for, there_are_rules, traits_of, wished
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import vm_hosts
from rmsplugin.engine.observe.topology import NO_TOPOLOGY
from rmsplugin.errors import RefusedError
from rmsplugin.model.standing import Standing
from rmsplugin.settings import Settings


class _Known:
    """A vjob as the ledger had it, and its VMs."""

    __slots__ = ("member", "vjob", "vms")

    def __init__(self, vjob: VJobRow, vms: Sequence[VMRow], member: Member) -> None:
        self.vjob, self.vms, self.member = vjob, vms, member


class Arrivals:
    """All VMs of the ledger at their places, and the rules of the settings. For one thread at a time."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        """Know of no VM yet."""
        self._settings = settings
        self._ledger = ledger
        self._forget(None)

    def _forget(self, seen: Observation | None) -> None:
        """Begin anew with another look: a vjob's traits are those of its job, as it was seen."""
        self._look = None if seen is None else seen.derived
        self._nodes = frozenset[str]() if seen is None else frozenset(vm_hosts(self._settings, seen.rms))
        self._topology = NO_TOPOLOGY if seen is None else seen.topology
        self._known: dict[int, _Known] = {}
        self._wishing: set[int] = set()  # the jobs whose users wish
        self._homes: dict[str, str] = {}
        self._standing = Standing(self._homes)
        self._selected = {name: Selected(rule) for name, rule in self._settings.rule.items()}

    def require(self, seen: Observation, vjob: int | Member, hosts: Mapping[str, str]) -> None:
        """Raise RefusedError if a rule that holds at every step bars one of these VMs from the node where it comes.

        So it does if the vjob has ended since it was read.

        Args:
            seen: the last look at the cluster.
            vjob: the job id of the VMs' vjob; or the vjob itself, if it has no VMs in the ledger yet.
            hosts: the node to which each VM comes.
        """
        wishes = isinstance(vjob, Member) and vjob.traits.wishing
        if not (wishes or there_are_rules(self._settings, self._ledger, seen)):
            return
        if self._look is not seen.derived:
            self._forget(seen)
        self._follow(seen)
        if isinstance(vjob, int):
            if vjob not in self._known:
                raise RefusedError("it has ended, and its VMs come nowhere any more")
            self._require(self._known[vjob].member, hosts, ())
            return
        self._select(vjob)
        try:
            self._require(vjob, hosts, [vjob])
        finally:
            self._unselect(vjob)

    def _require(self, member: Member, hosts: Mapping[str, str], coming: Sequence[Member]) -> None:
        rules = list(rules_for(member, self._settings.rule, self._selected, self._nodes))
        if self._wishing or member.traits.wishing:
            members = [*(known.member for known in self._known.values()), *coming]
            rules += wished(members, self._nodes, self._topology)
        rules, put = [rule for rule in rules if not rule.discrete], list[tuple[str, str]]()
        try:
            for vm, node in hosts.items():
                for rule in rules:
                    if rule.concerns(vm) and not rule.lets(vm, node, self._standing):
                        raise RefusedError(f"{vm} may not come to {node} now: {rule.title}")
                if node not in self._standing.nodes_of(vm):
                    self._standing.put(vm, node)
                    put.append((vm, node))
        finally:
            for vm, node in put:
                self._standing.remove(vm, node)

    # -- following the ledger --------------------------------------------------------------------------------------

    def _follow(self, seen: Observation) -> None:
        vms_of = self._ledger.live_vms_by_job()
        vjob_of = self._ledger.vjobs_among(vms_of)
        for job_id in self._known.keys() - vjob_of.keys():
            self._remove(job_id)
        for job_id, vjob in vjob_of.items():
            known, vms = self._known.get(job_id), vms_of[job_id]
            if known is None or known.vms is not vms or known.vjob is not vjob:
                if known is not None:
                    self._remove(job_id)
                self._add(seen, vjob, vms)

    def _add(self, seen: Observation, vjob: VJobRow, vms: Sequence[VMRow]) -> None:
        member = Member(vjob.display_id, traits_of(seen, vjob), tuple(vm.name for vm in vms))
        self._known[vjob.job_id] = _Known(vjob, vms, member)
        self._select(member)
        if member.traits.wishing:
            self._wishing.add(vjob.job_id)
        for vm, node in _held(vms):
            self._standing.put(vm, node)
        self._homes.update({vm.name: vm.host for vm in vms if vm.host})

    def _remove(self, job_id: int) -> None:
        known = self._known.pop(job_id)
        self._unselect(known.member)
        self._wishing.discard(job_id)
        for vm, node in _held(known.vms):
            self._standing.remove(vm, node)
            self._homes.pop(vm, None)

    def _select(self, member: Member) -> None:
        for selected in self._selected.values():
            selected.add(member)

    def _unselect(self, member: Member) -> None:
        for selected in self._selected.values():
            selected.remove(member)


def _held(vms: Sequence[VMRow]) -> Iterator[tuple[str, str]]:
    """Each VM with each node where it has memory, or will have it."""
    return ((vm.name, node) for vm in vms if vm.host for node in {vm.host, vm.destination} - {""})
