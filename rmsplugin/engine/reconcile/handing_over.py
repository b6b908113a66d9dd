"""Handing over: vjobs that sleep go to another group when the leader wishes it; one that runs is suspended first.

Their saved states are copied to nodes of that group first, or, on a store that all nodes mount, get a name in that
group's part of it; then all that the ledger has of a vjob is packed, in one
transaction (``engine.territory.post`` sends it). Copies that nobody needs are removed by the group that has the nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.machines import is_pinned
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.parcel_book import Copy, ParcelKind
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.observe.ending import is_ending
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.territory.territory import Territory
from rmsplugin.errors import RefusedError, RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings import Settings

#: The most stores that a cycle sets up.
_STORES = 8
#: So many seconds a vjob that was resumed, here or in another group, is not suspended to go.
_STAYS_S = 600.0


class HandingOver:
    """Hands over vjobs, once a cycle."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        nodes: Nodes,
        stores: Stores,
        territory: Territory,
        executor: Executor,
        placing: Placing,
        *,
        can_suspend: bool,
    ) -> None:
        """``can_suspend``: whether the platform saves VMs."""
        self._settings, self._ledger, self._clock = settings, ledger, clock
        self._nodes, self._stores = nodes, stores
        self._territory, self._executor, self._placing = territory, executor, placing
        self._can_suspend = can_suspend

    # -- what can go ---------------------------------------------------------------------------------------------

    def can_go(self, vjobs: Sequence[VJobRow]) -> frozenset[int]:
        """Those that sleep until there is room, and that this engine can hand over."""
        return frozenset(vjob.job_id for vjob in vjobs if self._may_go(vjob))

    def _may_go(self, vjob: VJobRow) -> bool:
        return (
            vjob.state is VJobState.SLEEPING
            and vjob.resumes
            and self._can_be_sent(vjob)
            and all(vm.phase is VMPhase.SAVED for vm in self._ledger.vms(vjob.job_id))
        )

    def may_leave(self, vjob: VJobRow) -> bool:
        """Whether a vjob runs, and can be suspended to be handed over. One that was resumed stays for a while."""
        ledger, now = self._ledger, self._clock.now()
        return (
            self._can_suspend
            and vjob.state is VJobState.RUNNING
            and vjob.preferred is not VJobState.RUNNING
            and not is_ending(vjob, now)
            and not ledger.failures.vjob_rests(vjob.job_id, OperationKind.SUSPEND, now)
            and not (now - vjob.state_since < _STAYS_S and ledger.has_slept(vjob.job_id))
            and self._can_be_sent(vjob)
        )

    def _can_be_sent(self, vjob: VJobRow) -> bool:
        ledger = self._ledger
        return (
            not vjob.taking_back
            and vjob.display_id.isdecimal()
            and vjob.job_id not in ledger.parcels.ordered()
            and all(taken.number != vjob.job_id for taken in ledger.parcels.untold())
            and not is_pinned(self._settings, vjob)
            and not ledger.set_aside.of_vjob(vjob.job_id)
            and not ledger.failures.vjob_rests(vjob.job_id, OperationKind.RELOCATE, self._clock.now())
        )

    # -- on the way ----------------------------------------------------------------------------------------------

    def put_to_sleep(self, vjob: VJobRow, to: str, is_busy: bool, looked: float) -> bool:
        """Suspend a vjob that is wished in another group though it runs, if it is in the way still.

        Args:
            vjob: it runs, or is being suspended.
            to: the group.
            is_busy: whether an operation on it is under way.
            looked: the time of the last look at the cluster.

        Returns:
            Whether it is being suspended.
        """
        if vjob.state is VJobState.SUSPENDING:
            return True
        hot = self._territory.hot
        if hot is None or vjob.job_id not in hot.vjobs or is_busy or vjob.state_since >= looked:
            return False
        if not self.may_leave(vjob) or not all(self._hosts_at(vjob, self._ledger.vms(vjob.job_id), to)):
            return False
        if any(step.vjob == vjob.display_id for step in self._ledger.plans.open_steps()):
            return False
        reason = f"it goes to group {to}, which has room: vjob {hot.waits} waits for its room in this one"
        try:
            self._placing.suspend(vjob, reason, resumes=True)
        except RefusedError:
            return False  # something else has just begun with it
        return True

    def hand_over(self, vjob: VJobRow, to: str, is_busy: bool) -> bool:
        """Copy the states of a vjob that is wished in another group, then pack it. Returns whether it was packed."""
        if is_busy or not self._may_go(vjob):
            return False
        vms, copies = self._ledger.vms(vjob.job_id), self._copies_of(vjob.job_id)
        if not copies:
            self._begin(vjob, vms, to)
            return False
        return self._pack(vjob, to)

    def _copies_of(self, number: int) -> dict[str, Copy]:
        return {each.vm: each for each in self._ledger.parcels.copies() if each.number == number}

    def _begin(self, vjob: VJobRow, vms: Sequence[VMRow], to: str) -> None:
        hosts = self._hosts_at(vjob, vms, to)
        if not all(hosts):
            return
        copies = [
            Copy(vm.name, host, vjob.job_id, to, vm.image_bytes, vm.image_blake2b, arrived=False)
            for vm, host in zip(vms, hosts, strict=True)
        ]
        reason = f"it goes to group {to}, which has room"
        try:
            with self._ledger.transaction():
                self._ledger.parcels.will_copy(copies)
                operation = self._executor.intend(vjob.job_id, OperationKind.RELOCATE, reason, to_group=to)
        except RefusedError:
            return  # something else has just begun with it
        self._executor.submit(operation)

    def _hosts_at(self, vjob: VJobRow, vms: Sequence[VMRow], to: str) -> list[str]:
        """For each VM the host of another group that gets a copy of its state; empty: none can."""
        # A node to which it could not be copied is not the next one that is tried.
        first = vjob.job_id + self._ledger.relocations(vjob.job_id)
        return [self._territory.open_host(to, first + vm.idx) for vm in vms]

    def _pack(self, vjob: VJobRow, to: str) -> bool:
        """Give the vjob up, if all its states are there as they are here."""
        ledger, number = self._ledger, vjob.job_id
        with ledger.transaction():
            row, vms, copies = ledger.vjob(number), ledger.vms(number), self._copies_of(number)
            if row.state is not VJobState.SLEEPING or not _are_whole(vms, copies, to):
                return False
            if any(operation.job_id == number for operation in ledger.running_operations()):
                return False
            if any(step.vjob == vjob.display_id for step in ledger.plans.open_steps()):
                return False
            ledger.event("handed-over", f"it goes to group {to}, which has room", vjob=vjob.display_id)
            shared = self._settings.nodes.shared
            places = {
                vm: {"image_node": SHARED if shared else copy.node, "touched": [copy.node]}
                for vm, copy in copies.items()
            }
            left = {vm.name: list(vm.touched) for vm in vms}
            content = {"places": places, "left": left, "rows": ledger.handed.take_out(number)}
            ledger.parcels.pack(ParcelKind.VJOB, number, to, content, [vm.address for vm in vms])
            ledger.parcels.forget_copies(number)
            ledger.checkpoints.retire(number)
        return True

    # -- what is to come -----------------------------------------------------------------------------------------

    def prepare_stores(self, seen: Observation) -> list[str]:
        """Set up stores of nodes of this group, to which others are about to copy states. Returns sentences of faults.

        A group that never had to save a VM has none. A few are set up in each cycle, first those that come first.
        """
        coming, known = self._territory.coming(), self._ledger.markers.of
        hosts = dict.fromkeys(host for number in coming for host in self._territory.hosts_from(number))
        if self._settings.nodes.shared:
            missing = [] if known(SHARED) else [host for host in hosts if host in seen.vms][:1]
        else:
            missing = [host for host in hosts if host in seen.vms and not known(host)][:_STORES]
        problems = []
        for host in missing:
            try:
                self._stores.ensure(host)
            except RmspluginError as error:
                problems.append(f"no state can be copied to {host}: {error}")
        return problems

    # -- what comes to nothing -----------------------------------------------------------------------------------

    def order_removals(self, busy: Collection[int]) -> None:
        """Have copies removed that nobody needs: their vjob stays, has run meanwhile, or is no more."""
        by_number: dict[int, dict[str, Copy]] = {}
        for copy in self._ledger.parcels.copies():
            by_number.setdefault(copy.number, {})[copy.vm] = copy
        for number, copies in by_number.items():
            if number not in busy and not self._are_needed(number, copies):
                with self._ledger.transaction():
                    files = [(copy.vm, copy.node) for copy in copies.values()]
                    to = next(iter(copies.values())).to
                    self._ledger.parcels.pack(ParcelKind.ORDER, number, to, {"files": files})
                    self._ledger.parcels.forget_copies(number)

    def _are_needed(self, number: int, copies: Mapping[str, Copy]) -> bool:
        place = self._territory.place(number)
        vjob = self._ledger.vjobs_among([number]).get(number)
        to = next(iter(copies.values())).to
        if place is None or (place.group, place.to) != (self._territory.group, to):
            return False
        return vjob is not None and self._may_go(vjob) and _are_whole(self._ledger.vms(number), copies, to)

    def carry_out_orders(self) -> list[str]:
        """Remove copies from the nodes of this group as other groups have ordered. Returns a sentence for each failure.

        Raises:
            UnavailableError: the directory that controllers share cannot be read or written.
        """
        files, problems = self._territory.parcels, []
        for order in files.orders():
            try:
                for vm, node in order.content["files"]:
                    if not self._is_in_use(vm):
                        self._stores.ensure(node)
                        self._nodes.drop_state(node, vm, shared=self._settings.nodes.shared)
            except RmspluginError as error:
                problems.append(f"a copy of a saved state of vjob {order.number} cannot be removed: {error}")
            else:
                files.prove(order.id, order.giver)
        return problems

    def _is_in_use(self, vm: str) -> bool:
        return any(vm == each.name for each in self._ledger.vms())


def _are_whole(vms: Sequence[VMRow], copies: Mapping[str, Copy], to: str) -> bool:
    """Whether there is a copy of each state as it is now, on nodes of this group, checked where it is."""
    return {vm.name: (vm.image_bytes, vm.image_blake2b, to, True) for vm in vms} == {
        name: (each.size_bytes, each.blake2b, each.to, each.arrived) for name, each in copies.items()
    }
