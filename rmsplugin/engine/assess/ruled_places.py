"""Ruled places: the nodes where single VMs may come now, by the rules about VMs beside each other.

A context switch is planned by these rules. Here are the moves that no plan has: VMs leave a node, or an operator asks.
Rooms are requested where VMs may come, too. For the steps of a plan see ``arrivals``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmsplugin.engine.assess.site_rules import Member, beside, there_are_rules, traits_of
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import vm_hosts
from rmsplugin.errors import RefusedError
from rmsplugin.model.elements import VM
from rmsplugin.model.joint import Concerning, Joint
from rmsplugin.model.resources import Resources
from rmsplugin.model.standing import Standing
from rmsplugin.model.wording import counted
from rmsplugin.packing.ffd import decreasing, first_fit_decreasing
from rmsplugin.packing.sets_of_nodes import choices_within
from rmsplugin.settings import Settings


class RuledPlaces:
    """All VMs of the ledger at their places, and the rules of the settings; what comes is added as it is placed."""

    def __init__(self, settings: Settings, ledger: Ledger, seen: Observation, coming: Iterable[Member] = ()) -> None:
        """``coming``: vjobs that have no VMs in the ledger yet."""
        self._concerning = Concerning(())
        self._standing = Standing({})
        coming = [*coming]
        if not (there_are_rules(settings, ledger, seen) or any(member.traits.wishing for member in coming)):
            return
        vms = ledger.live_vms_by_job()
        vjobs = ledger.vjobs_among(vms)
        members = [
            Member(vjob.display_id, traits_of(seen, vjob), tuple(vm.name for vm in vms[job_id]))
            for job_id, vjob in vjobs.items()
        ]
        nodes = frozenset(vm_hosts(settings, seen.rms))
        rules = beside(settings.rule, [*members, *coming], nodes, seen.topology)
        self._concerning = Concerning(rule for rule, _ in rules if isinstance(rule, Joint))
        there = [vm for of_one in vms.values() for vm in of_one if vm.host]
        held = [(vm.name, node) for vm in there for node in {vm.host, vm.destination} - {""}]
        self._standing = Standing({vm.name: vm.host for vm in there}, held)

    def fit(
        self, vms: Iterable[VM], free: Mapping[str, Resources], prefer: Mapping[str, str] | None = None
    ) -> dict[str, str] | None:
        """Place VMs by First Fit Decreasing where no rule bars them; None if there is no room, whatever rules say.

        Raises:
            RefusedError: there is room, but rules bar a VM from it.
        """
        wanted = list(vms)
        found = self._placed(wanted, free, prefer)
        if isinstance(found, str):
            confined = self._confined(wanted, free, prefer)
            if confined is None:
                raise RefusedError(found)
            return confined
        return found

    def _confined(
        self, vms: Sequence[VM], free: Mapping[str, Resources], prefer: Mapping[str, str] | None
    ) -> dict[str, str] | None:
        """All VMs at places on some sets of nodes, which rules would not have them leave; None if none are found."""
        cpus = {node: room.cpus for node, room in free.items()}
        for nodes in choices_within(self._concerning, (vm.name for vm in vms), self._standing, cpus):
            found = self._placed(vms, {node: room for node, room in free.items() if node in nodes}, prefer)
            if isinstance(found, dict):
                return found
        return None

    def _placed(
        self, vms: Iterable[VM], free: Mapping[str, Resources], prefer: Mapping[str, str] | None
    ) -> dict[str, str] | str | None:
        """All VMs at their places; none of them if one finds none: None, or the sentence of what bars it."""
        left, placed = dict(free), dict[str, str]()
        for vm in sorted(vms, key=decreasing):
            rules = self._concerning.of(vm.name)
            admitted = {
                node: room
                for node, room in left.items()
                if room.holds(vm.demand) and all(rule.lets(vm.name, node, self._standing) for rule in rules)
            }
            found = first_fit_decreasing([vm], admitted, prefer)
            if found is None:
                for name, node in placed.items():
                    self._standing.remove(name, node)
                is_room = any(room.holds(vm.demand) for room in left.values())
                return self._barred(vm, left, rules) if is_room else None
            node = placed[vm.name] = found[vm.name]
            left[node] -= vm.demand
            self._standing.put(vm.name, node)
        return placed

    def _barred(self, vm: VM, left: Mapping[str, Resources], rules: Iterable[Joint]) -> str:
        rooms = [node for node, room in left.items() if room.holds(vm.demand)]
        counts = {rule.title: sum(not rule.lets(vm.name, node, self._standing) for node in rooms) for rule in rules}
        barred = [f"{title} bars it from {number}" for title, number in counts.items() if number]
        return f"{counted(len(rooms), 'node')} with room for {vm.name}, but {' and '.join(barred)}"
