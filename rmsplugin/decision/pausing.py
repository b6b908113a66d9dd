"""Pausing: chooses which vjobs that make way keep their memory, and which are saved. Any policy's decision passes here.

To a policy a paused vjob sleeps: it computes nothing, and takes no room from those that shall run. After the decision
which vjobs run, a vjob that makes way, or sleeps in memory, is paused if nobody needs that memory, its nodes stay,
and it was not paused for too long; all others are saved. Vjobs nearest to the head of the queue, which will go on
first, keep their memory first.

A vjob whose platform only pauses is always paused. A decision that gives its memory to others is made again
(``rmsplugin.decision.resident``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.reasons import seconds, sentence
from rmsplugin.decision.resident import given_away, residents, with_memory_taken
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Node, NodeState, VJob, VMState, held, sleeping_on
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.item import items_of
from rmsplugin.packing.repair import Repair
from rmsplugin.packing.search import Search

#: The most trials, one vjob after the other, which vjobs keep their memory beside those known to.
_MOST_TRIES = 32

#: The most decisions, one after the other, until none gives memory away that stays. By the last one policies have none
#: of the memory of vjobs that only pause.
_ROUNDS = 4

#: The part of a decision's limits that one solver may use to look for room beside all that are paused.
_SEARCH_SHARE = 0.25


def decide_with_pauses(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide the state of each vjob by a policy; then choose those that are paused among vjobs that make way.

    The costs of a switch depend on that. The decision is made as if all that make way were paused; if one of them has
    to be saved, it is made once more at the costs of a save and a resume.

    Args:
        policy: a name from ``rmsplugin.decision.policies.POLICIES``.
        configuration: nodes, queue (head first) and the place of each VM.
        parameters: tunables; ``pause_limit_s`` of 0 pauses none that can be saved, and saves a paused vjob that does
            not go on.

    Raises:
        ValueError: there is no such policy.
    """
    if not may_pause(configuration, parameters):
        return decide(policy, configuration, parameters)
    if parameters.pause_limit_s > 0 or all(vjob.can.only_pauses for vjob in configuration.vjobs):
        cheap = replace(parameters, durations=replace(parameters.durations, pauses=True))
        found = _decided(policy, configuration, cheap)
        if not _saves_one_that_runs(configuration, found):
            return found
    return _decided(policy, configuration, parameters)


def may_pause(configuration: Configuration, parameters: Parameters) -> bool:
    """Whether a vjob that makes way can be paused, or one is paused now."""
    return parameters.pause_limit_s > 0 or _knows_pauses(configuration)


def _decided(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """A policy's decision, made again as long as it gives memory away that stays; then the choice who is paused."""
    taken, everybody = frozenset[str](), residents(configuration)
    for left in reversed(range(_ROUNDS)):
        found = decide(policy, as_asleep(with_memory_taken(configuration, taken)), parameters)
        if isinstance(found, Infeasible):
            return found
        claimed = given_away(configuration, found) - taken
        if not claimed:
            return with_pauses(with_memory_taken(configuration, everybody), found, parameters)
        taken = taken | claimed if left > 1 else everybody
    raise AssertionError("by the last decision nobody has memory to give away")


def _saves_one_that_runs(configuration: Configuration, decision: Decision | Infeasible) -> bool:
    """Whether a running vjob makes way by more than a pause, so that its costs were taken to be too low."""
    if isinstance(decision, Infeasible):
        return False
    running, asleep = VJobState.RUNNING, VJobState.SLEEPING
    return any(decision.states[v.name] is asleep and configuration.state(v) is running for v in configuration.vjobs)


def as_asleep(configuration: Configuration) -> Configuration:
    """The configuration as a policy sees it: paused vjobs sleep where they are, and vjobs to be paused are to sleep."""
    paused, target = VMState.PAUSED, VJobState.PAUSED
    locations = {
        name: sleeping_on(at.node or "") if at.state is paused else at for name, at in configuration.locations.items()
    }
    asleep = VJobState.SLEEPING
    vjobs = tuple(replace(each, target=asleep) if each.target is target else each for each in configuration.vjobs)
    return Configuration(configuration.nodes, vjobs, locations, checked=True)


def with_pauses(configuration: Configuration, decision: Decision, parameters: Parameters) -> Decision | Infeasible:
    """Set for each vjob that makes way whether it is paused or saved.

    Args:
        configuration: the place of each VM, with pauses.
        decision: a policy's decision about ``as_asleep`` of it.
        parameters: the limit of a pause, and the limits of a search.

    Returns:
        The decision with the same vjobs running; Infeasible if a vjob is fixed as paused, and its memory is needed.
    """
    obstacles = {
        vjob.name: _obstacle(configuration, vjob, parameters.pause_limit_s)
        for vjob in configuration.vjobs
        if decision.states[vjob.name] is VJobState.SLEEPING and _is_in_memory(configuration, vjob)
    }
    able = [v for v in configuration.vjobs if obstacles.get(v.name, "") is None and not v.can.only_pauses]
    able.sort(key=lambda vjob: vjob.target is not VJobState.PAUSED)  # stable: those that have to stay, then the queue
    fixed = sum(vjob.target is VJobState.PAUSED for vjob in able)
    rooms = _Rooms(configuration, decision, parameters.search.part(_SEARCH_SHARE))
    kept, placement = _kept(rooms, able, fixed)
    if len(kept) < fixed:
        which = next(vjob.name for vjob in able if vjob not in kept)
        return Infeasible(f"vjob {which!r} cannot stay paused, as its target demands: others need its memory")
    kept += [vjob for vjob in configuration.vjobs if vjob.name in obstacles and vjob.can.only_pauses]
    names = {vjob.name for vjob in kept}
    states = {name: VJobState.PAUSED if name in names else state for name, state in decision.states.items()}
    reasons = dict(decision.reasons)
    for name, obstacle in obstacles.items():
        if name in names:
            reasons[name] = _adding(reasons[name], "it keeps its memory meanwhile")
        elif obstacle != "":
            reasons[name] = _adding(reasons[name], obstacle or "it is saved: its memory is needed")
    hosts = {vm.name: configuration.locations[vm.name].node or "" for vjob in kept for vm in vjob.vms}
    words = sentence(configuration, states, reasons)
    return replace(decision, states=states, reasons=reasons, placement={**placement, **hosts}, sentence=words)


def _adding(reason: Reason, words: str) -> Reason:
    return replace(reason, sentence=f"{reason.sentence}; {words}")


def _knows_pauses(configuration: Configuration) -> bool:
    if any(at.state is VMState.PAUSED for at in configuration.locations.values()):
        return True
    return any(vjob.target is VJobState.PAUSED or vjob.can.only_pauses for vjob in configuration.vjobs)


def _is_in_memory(configuration: Configuration, vjob: VJob) -> bool:
    return any(configuration.locations[vm.name].state.holds_memory for vm in vjob.vms)


def _obstacle(configuration: Configuration, vjob: VJob, limit_s: float) -> str | None:
    """The reason why a vjob that makes way is saved, whether its memory is needed or not; empty if that is plain.

    None: it may be paused.
    """
    if vjob.can.only_pauses:
        return None
    places = [configuration.locations[vm.name] for vm in vjob.vms]
    if not all(at.state.holds_memory for at in places):
        return "it is saved: part of it is already"
    nodes = [configuration.node_by_name[at.node or ""] for at in places]
    leaving = next((node.name for node in nodes if node.state is not NodeState.UP or not vjob.allows(node.name)), None)
    if leaving is not None:
        return f"it is saved: it cannot stay on {leaving}"
    if not vjob.can.pause:
        return "it is saved: its platform pauses no VM"
    if vjob.target is VJobState.PAUSED:
        return None
    if vjob.target is VJobState.SLEEPING or limit_s <= 0:
        return ""
    paused_s = math.inf if vjob.state_s is None else vjob.state_s
    if configuration.state(vjob) is VJobState.PAUSED and math.isfinite(limit_s) and paused_s >= limit_s:
        return f"it is saved: it was paused for {seconds(limit_s)}, and no vjob is paused for longer"
    return None


def _kept(rooms: _Rooms, able: Sequence[VJob], fixed: int) -> tuple[list[VJob], Mapping[str, str]]:
    """The vjobs that keep their memory, and the places of the running ones beside it."""
    if not able:
        return [], rooms.sample
    found = rooms.beside(able, with_solver=True)
    if found is not None:
        return list(able), found
    stay, go, placement = 0, len(able), rooms.sample
    while go - stay > 1:  # a search by halves: where fewer leave no room, more hardly ever do
        middle = (stay + go) // 2
        trial = rooms.beside(able[:middle], with_solver=False)
        if trial is None:
            go = middle
        else:
            stay, placement = middle, trial
    if stay < fixed:
        trial = rooms.beside(able[:fixed], with_solver=True)
        stay, placement = (stay, placement) if trial is None else (fixed, trial)
    kept = list(able[:stay])
    for vjob in able[stay : stay + _MOST_TRIES]:
        trial = rooms.beside([*kept, vjob], with_solver=False)
        if trial is not None:
            kept, placement = [*kept, vjob], trial
    return kept, placement


@dataclass
class _Rooms:
    """Looks for room for the running vjobs, beside the memory of others."""

    configuration: Configuration
    decision: Decision
    search: Search

    def __post_init__(self) -> None:
        """Sort the running vjobs into those with a fixed place, and those that may have another."""
        running = [v for v in self.configuration.vjobs if self.decision.states[v.name] is VJobState.RUNNING]
        self._loose = [vjob for vjob in running if not self._is_pinned(vjob)]
        pinned = [vm for vjob in running if self._is_pinned(vjob) for vm in vjob.vms]
        self._fixed = {vm.name: self.sample[vm.name] for vm in pinned}
        self._taken = _sums((self.sample[vm.name], vm.demand) for vm in pinned)
        locations = self.configuration.locations
        there = ((vm.name, locations[vm.name].node) for vjob in self._loose for vm in vjob.vms)
        self._current = {name: node for name, node in there if node is not None}
        alone = self._repair(self._left([])).by_best_fit()
        self._moved_mib = math.inf if alone is None else alone.moved_mib

    @property
    def sample(self) -> Mapping[str, str]:
        """The placement with which the policy proved its decision."""
        return self.decision.placement

    def beside(self, paused: Sequence[VJob], with_solver: bool) -> Mapping[str, str] | None:
        """The node of each running VM; None if none was found for which no more has to move than is kept."""
        left = self._left(paused)
        hosts = {self._node(vm) for vjob in paused for vm in vjob.vms}
        if any(node.name in hosts and node.capacity.memory_mib < 0 for node in left):
            return None  # beside the vjobs with a fixed place
        repair = self._repair(left)
        worth_mib = self._moved_mib + sum(vjob.demand.memory_mib for vjob in paused)
        found = repair.by_best_fit()
        if with_solver and (found is None or found.moved_mib > worth_mib):
            found = repair.by_program(self.search, worth_mib) or found
        if found is not None and found.moved_mib <= worth_mib:
            return {**self._fixed, **found.assignment}
        return self.sample if found is None and self._has_room(left) else None

    def _is_pinned(self, vjob: VJob) -> bool:
        """Whether a running vjob has to be where the policy left it."""
        if vjob.in_transit or self.decision.reasons[vjob.name].code is ReasonCode.RESERVED_IN_PLACE:
            return True
        nodes = (self.configuration.node_by_name[self.sample[vm.name]] for vm in vjob.vms)
        return any(node.state is not NodeState.UP or not vjob.allows(node.name) for node in nodes)

    def _left(self, paused: Iterable[VJob]) -> list[Node]:
        """The nodes that are up, with the resources that these leave."""
        kept = _sums((self._node(vm), held(vm, VMState.PAUSED)) for vjob in paused for vm in vjob.vms)
        up = [node for node in self.configuration.nodes if node.state is NodeState.UP]
        used = {node.name: self._taken.get(node.name, NOTHING) + kept.get(node.name, NOTHING) for node in up}
        return [replace(node, capacity=node.capacity - used[node.name]) for node in up]

    def _node(self, vm: VM) -> str:
        return self.configuration.locations[vm.name].node or ""

    def _repair(self, left: Sequence[Node]) -> Repair:
        return Repair(items_of(self._loose, self.configuration.apart), left, self._current)

    def _has_room(self, left: Sequence[Node]) -> bool:
        """Whether the policy's own sample fits into the resources left on nodes."""
        wanted = _sums((self.sample[vm.name], vm.demand) for vjob in self._loose for vm in vjob.vms)
        return all(node.capacity.holds(wanted.get(node.name, NOTHING)) for node in left)


def _sums(amounts: Iterable[tuple[str, Resources]]) -> dict[str, Resources]:
    found: dict[str, Resources] = {}
    for node, amount in amounts:
        found[node] = found.get(node, NOTHING) + amount
    return found
