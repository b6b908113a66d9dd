"""Members: the VMs of vjobs as facts for an assessment, made anew only when what they follow from has changed.

From cycle to cycle most vjobs are where they were. What was found of their VMs, and what others derive from it
(``rmsplugin.assessment.facts.Members``), is then kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from rmsplugin.assessment.facts import Members, VMFacts, shared
from rmsplugin.assessment.promises import Promise
from rmsplugin.engine.capacity.capacity import Observed, demand, demand_of_new
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.model.elements import VM, WAITING, paused_on, running_on, sleeping_on
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings import Settings

#: States in which a vjob gives back the resources of its VMs.
_GOES = (VJobState.SUSPENDING, VJobState.STOPPING)

#: States in which a vjob's VMs, on their hosts, compute nothing. They compute nothing after the end of its script, too.
_HOLDS_STILL = (VJobState.PAUSED, VJobState.UNPAUSING)


class New(NamedTuple):
    """All that the facts about VMs that are still to be made follow from.

    Attributes:
        vjob: the display id of their vjob.
        partition: its partition.
        geometry: its request.
        large_mib: the memory to be booked for the first ones; None: all of it.
        small_mib: the same of the last one.
        promise: what a planned step promises; None: there is none.
    """

    vjob: str
    partition: str
    geometry: Geometry
    large_mib: int | None
    small_mib: int | None
    promise: Promise | None


class Placed(NamedTuple):
    """All that the facts about existing VMs of a vjob follow from.

    Attributes:
        vms: the VMs.
        observed: what each of them was seen to demand.
        partition: of the vjob.
        geometry: the request of the vjob.
        state: of the vjob.
        ending: whether its script has just ended.
        ended: whether it has probably ended.
        promise: what a planned step promises; None: there is none.
    """

    vms: tuple[VMRow, ...]
    observed: tuple[Observed, ...]
    partition: str
    geometry: Geometry
    state: VJobState
    ending: bool
    ended: bool
    promise: Promise | None


class KeptMembers:
    """The VMs of each vjob as they were last found. For one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        """Keep nothing yet."""
        self._settings = settings
        self._kept: dict[str, tuple[New | Placed, Members]] = {}

    def new(self, of: New) -> Members:
        """The VMs of a vjob that has none yet."""
        return self._as_before(of.vjob, of, members_to_be)

    def placed(self, vjob: str, of: Placed) -> Members:
        """The VMs of the vjob with this display id."""
        return self._as_before(vjob, of, members_placed)

    def retain(self, vjobs: Collection[str]) -> None:
        """Forget all vjobs but these."""
        if len(self._kept) > len(vjobs):
            self._kept = {name: kept for name, kept in self._kept.items() if name in vjobs}

    def _as_before(self, vjob: str, of: _Of, make: Callable[[Settings, _Of], Members]) -> Members:
        before = self._kept.get(vjob)
        if before is not None and before[0] == of:
            return before[1]
        found = make(self._settings, of)
        self._kept[vjob] = (of, found)
        return found


_Of = TypeVar("_Of", New, Placed)


def members_to_be(settings: Settings, of: New) -> Members:
    """The VMs of a vjob that has none yet; they have no final names."""
    geometry, promise = of.geometry, of.promise
    large = demand_of_new(settings, of.partition, geometry, 0, of.large_mib)
    small = demand_of_new(settings, of.partition, geometry, geometry.vms - 1, of.small_mib)
    names = ((f"{of.vjob}-{index}", large if index < geometry.large else small) for index in range(geometry.vms))
    return Members(
        VMFacts(VM(name, each), WAITING, frozenset(), promise.will_hold(name, "") if promise else frozenset())
        for name, each in names
    )


def members_placed(settings: Settings, of: Placed) -> Members:
    """The VMs of a vjob that has some."""
    return Members(
        _placed(of, vm, VM(vm.name, demand(settings, of.partition, of.geometry, vm, *observed)))
        for vm, observed in zip(of.vms, of.observed, strict=True)
    )


def _placed(of: Placed, row: VMRow, vm: VM) -> VMFacts:
    promise = of.promise
    holds = frozenset({row.host, row.destination} - {""})
    here = paused_on if of.ending or of.state in _HOLDS_STILL else running_on
    asleep = row.phase in (VMPhase.SAVED, VMPhase.MOVING)
    location = sleeping_on(row.image_node) if asleep else here(row.host) if row.host else WAITING
    ends = "" if promise is None and of.state in _GOES else row.destination or row.host
    will_hold = frozenset({ends} - {""}) if promise is None else promise.will_hold(row.name, ends)
    will_hold = frozenset() if of.ended else will_hold
    computes = of.state is VJobState.UNPAUSING
    computes = computes or (promise is not None and promise.kind is OperationKind.UNPAUSE)
    return VMFacts(vm, location, shared(holds), shared(will_hold), computes)
