"""Admission: settles targets, losses and ends before any policy is asked, and the vjobs that run in any case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rmsplugin.decision.exact import repack
from rmsplugin.decision.leaving import as_many_as_leave
from rmsplugin.decision.near import staying
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.preferring import CROWDED_OUT, note, to_rest, to_run
from rmsplugin.decision.reasons import no_room, sentence
from rmsplugin.decision.result import Barred, Decision, Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import Effort, NodeRoom, Site
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob, VMState
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.wording import counted


@dataclass
class Draft:
    """A decision in the making: settled vjobs, vjobs that must run, and vjobs left to the policy, in queue order."""

    configuration: Configuration
    effort: Effort = field(default_factory=Effort)
    states: dict[str, VJobState] = field(default_factory=dict)
    reasons: dict[str, Reason] = field(default_factory=dict)
    musts: list[VJob] = field(default_factory=list)
    others: list[VJob] = field(default_factory=list)
    barred: dict[str, Barred] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by vjob name, added to its reason

    def copy(self) -> Draft:
        """An independent copy of the state so far, to go on with on trial."""
        return replace(self, states=dict(self.states), reasons=dict(self.reasons))

    def set(self, vjob: VJob, state: VJobState, reason: Reason) -> None:
        """Set the state of one vjob."""
        self.states[vjob.name] = state
        self.reasons[vjob.name] = reason

    def runs(self, vjob: VJob, reason: Reason) -> None:
        """Decide that a vjob runs."""
        self.set(vjob, VJobState.RUNNING, reason)

    def is_running(self, vjob: VJob) -> bool:
        """Whether a vjob runs now."""
        return self.configuration.state(vjob) is VJobState.RUNNING

    def stays_out(self, vjob: VJob, reason: Reason) -> None:
        """Decide that a vjob does not run: asleep if it runs or sleeps now, else waiting (RR-6929 section 3.2)."""
        self.set(vjob, out_of(self.configuration.state(vjob)), reason)

    def preferred(self) -> list[VJob]:
        """The vjobs that must run for an administrator's preference alone: they do not run yet."""
        code = ReasonCode.PREFERRED
        return [vjob for vjob in self.musts if self.reasons[vjob.name].code is code and not self.is_running(vjob)]

    def leave_to_policy(self, vjob: VJob, why: str) -> None:
        """Leave a vjob of ``preferred`` to the policy, like any other; ``why``: what its user is told besides."""
        self.notes[vjob.name] = why
        del self.states[vjob.name], self.reasons[vjob.name]
        self.musts = [each for each in self.musts if each is not vjob]
        names = {each.name for each in (*self.others, vjob)}
        self.others = [each for each in self.configuration.vjobs if each.name in names]

    def _reason(self, name: str) -> Reason:
        reason = self.reasons[name]
        return replace(reason, sentence=f"{reason.sentence}; {self.notes[name]}") if name in self.notes else reason

    def decision(self, policy: str, placement: Mapping[str, str]) -> Decision:
        """The decision, once every vjob has a state."""
        order = [vjob.name for vjob in self.configuration.vjobs]
        states = {name: self.states[name] for name in order}
        reasons = {name: self._reason(name) for name in order}
        words = sentence(self.configuration, states, reasons)
        return Decision(policy, states, reasons, dict(placement), words, barred=dict(self.barred))


def out_of(now: VJobState) -> VJobState:
    """The state of a vjob that does not run: asleep if it runs or sleeps now, else waiting (RR-6929 section 3.2)."""
    asleep = now in (VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING)
    return VJobState.SLEEPING if asleep else VJobState.WAITING


def settle(
    configuration: Configuration, must_run: Callable[[VJob], Reason | None], effort: Effort | None = None
) -> Draft:
    """Sort the queue into settled vjobs, vjobs that must run, and vjobs left to the policy.

    Args:
        configuration: nodes, queue and locations.
        must_run: for a running vjob, the reason why the policy may not suspend it, or None.
        effort: the bound on the number of trials; None: no limit.
    """
    draft = Draft(configuration, effort or Effort())
    for vjob in configuration.vjobs:
        now = configuration.state(vjob)
        fixed = _fixed(configuration, vjob, now)
        if fixed is not None:
            draft.set(vjob, *fixed)
            continue
        reason = must_run(vjob) if now is VJobState.RUNNING else None
        if vjob.in_transit:
            reason = Reason(ReasonCode.IN_TRANSIT, "something is under way on it, and it keeps what it holds")
        if vjob.target is VJobState.RUNNING and reason is None:
            reason = Reason(ReasonCode.TARGET, "its target fixes it as running")
        if reason is None or reason.code is ReasonCode.EXEMPT:
            reason = to_run(vjob) or reason
        if said := note(vjob):
            draft.notes[vjob.name] = said
        if reason is None:
            draft.others.append(vjob)
        else:
            draft.musts.append(vjob)
            draft.runs(vjob, reason)
    return draft


def _fixed(configuration: Configuration, vjob: VJob, now: VJobState) -> tuple[VJobState, Reason] | None:
    if now is VJobState.TERMINATED:
        return now, Reason(ReasonCode.ENDED, "has ended")
    if vjob.target is VJobState.TERMINATED:
        return vjob.target, Reason(ReasonCode.TARGET, "its target fixes it as terminated")
    if vjob.lost:
        states = [configuration.locations[vm.name].state for vm in vjob.vms]
        left = sum(state in (VMState.RUNNING, VMState.PAUSED, VMState.SLEEPING) for state in states)
        if left:
            words = f"a VM or a saved state of it is lost; what is left, {left} of {len(states)} VMs, is stopped first"
            if vjob.target is VJobState.RUNNING:
                words += ", and its target, to run, can be met after that"
            return VJobState.WAITING, Reason(ReasonCode.LOST, words, {"left": left, "vms": len(states)})
    if vjob.target in (VJobState.PAUSED, VJobState.SLEEPING, VJobState.WAITING):
        return vjob.target, Reason(ReasonCode.TARGET, f"its target fixes it as {vjob.target}")
    if vjob.target is None and not vjob.in_transit and (rests := to_rest(vjob, now)):
        return out_of(now), rests
    return None


def admit(draft: Draft, parameters: Parameters) -> NodeRoom | Infeasible:
    """Find room for all that must run: by FFD in queue order, else by an exact packing, else near where they are.

    Where not all fit, as many VMs as fit leave the nodes on which they should not be, and the others stay there. Should
    even that not be found, a running vjob that finds no place is reserved where its VMs are now, even if that overloads
    its nodes, and the others that must run are placed around it. Before that, vjobs that only an administrator prefers
    to run are left to the policy, the last of the queue first.

    Returns:
        The room with those that must run in it (``room.site.pinned`` tells which VMs First Fit Decreasing did not
        place); or Infeasible, if one that does not run by necessity, but by its target, finds no place.
    """
    return _admit(draft, parameters, parameters.exact_checks)


def _admit(draft: Draft, parameters: Parameters, checks: int) -> NodeRoom | Infeasible:
    """As ``admit``, with so many exact checks at most while preferences are given up."""
    configuration = draft.configuration
    pinned: dict[str, Mapping[str, str]] = {}
    stays = staying(configuration)
    for _ in range(len(draft.musts) + 1):
        site = Site(configuration, {**stays, **pinned}, frozenset(pinned), draft.effort)
        room, stuck = site.pack_until(draft.musts)
        if stuck is None:
            return room
        by_target = draft.reasons[stuck.name].code is ReasonCode.TARGET and not draft.is_running(stuck)
        worth_a_check = checks > 0 and (by_target or not pinned)
        exact = repack(site, draft.musts, parameters.search_of_one_check) if worth_a_check else None
        if exact is not None:
            return exact
        if preferred := draft.preferred():
            draft.leave_to_policy(stuck if stuck in preferred else preferred[-1], CROWDED_OUT)
            return _admit(draft, parameters, checks - 1)
        partly = None if pinned else _partly(draft, site, parameters)
        if partly is not None:
            return partly
        if by_target:
            return _infeasible(draft, stuck, room)
        pinned[stuck.name] = where_it_is(site, stuck)
        draft.runs(stuck, _in_place(stuck, draft.reasons[stuck.name], room))
    raise AssertionError("a vjob that is pinned is not packed, so that each round leaves one less to fail")


def _partly(draft: Draft, site: Site, parameters: Parameters) -> NodeRoom | None:
    """As many as fit leave the nodes where they should not be; the others stay there, with the reason."""
    search = parameters.search_of_one_check if parameters.exact_checks else None
    found = as_many_as_leave(site, draft.musts, search)
    if found is None:
        return None
    for vjob in draft.musts:
        if vjob.name in found.behind:
            why = draft.reasons[vjob.name]
            words = f"{why.sentence}; {found.behind[vjob.name]}"
            draft.runs(vjob, Reason(ReasonCode.RESERVED_IN_PLACE, words, why.numbers))
    return found.room


def where_it_is(site: Site, vjob: VJob) -> dict[str, str]:
    """The nodes of a vjob's VMs in memory; for a VM that is in none (yet), one that the vjob may use.

    A vjob counts as running also while some of its VMs still sleep (after a part of a plan).
    """
    locations = [(vm.name, site.configuration.locations[vm.name]) for vm in vjob.vms]
    here = {name: at.node for name, at in locations if at.node is not None and at.state.holds_memory}
    if len(here) == len(locations):
        return here
    nodes = [node.name for node in site.configuration.nodes]
    usable = [name for name in site.up if vjob.allows(name)] or [name for name in nodes if vjob.allows(name)] or nodes
    there = {name: at.node for name, at in locations if at.node in usable}
    return dict.fromkeys((name for name, _ in locations), usable[0]) | there | here


def _in_place(vjob: VJob, why: Reason, room: NodeRoom) -> Reason:
    words = f"{why.sentence}; no placement of all that must run is found ({no_room(vjob, room).sentence}), "
    return Reason(ReasonCode.RESERVED_IN_PLACE, f"{words}so its VMs are reserved where they are", why.numbers)


def _infeasible(draft: Draft, vjob: VJob, room: NodeRoom) -> Infeasible:
    ahead = len(room.members)
    others = f"{counted(ahead, 'other vjob')} that must run"
    fault = no_room(vjob, room, f"free beside {others}" if ahead else "free on all nodes that are up").sentence
    return Infeasible(f"vjob {vjob.name!r} cannot run, as its target demands: it {fault}")
