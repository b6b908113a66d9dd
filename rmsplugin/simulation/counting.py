"""Counting: the decisions of ``slowdown`` where all VMs are alike, and a plan for them, without packing or searching.

A vjob then is a number of places. The functions of ``rmsplugin.decision.slowdown`` tell which vjob goes first, which
makes way and whether that pays; a property test compares whole replays. The VMs' nodes are plain, too: the nodes of
their saved states if there is room, else any. No VM ever has to move for another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rmsplugin.assessment.facts import VMFacts
from rmsplugin.decision.expansion import borne, expansion, lost_s, part_of
from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.action import Action, ActionKind, resume, run, suspend
from rmsplugin.model.elements import VM
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.counted import NOTHING_HELD, Held, taken_by
from rmsplugin.simulation.standing import Moved, Standing, exempt_for_s, standings, switch_s, takes_s
from rmsplugin.simulation.switches import Foreseen
from rmsplugin.simulation.vjob import SimulatedVJob

_READY = (VJobState.WAITING, VJobState.SLEEPING)


@dataclass
class _Run:
    """The course of a decision: places that are free, vjobs that may be suspended, and the decisions so far."""

    free: int
    may_yield: list[Standing]
    then: Moved


class Counting:
    """Decides about one cluster again and again."""

    def __init__(self, nodes: Sequence[str], places: int, capacity: Resources, parameters: Parameters) -> None:
        """Know the cluster: the names of nodes, the places of each, and the total."""
        self._nodes, self._places, self._capacity = nodes, places, capacity
        self._parameters = parameters
        self._shares = parameters.slowdown.user_share < 1
        self._whole = capacity  # the total as of the decision that is being made
        self.quiet_s = 0.0  # after a decision by which no vjob starts: for so many seconds, time alone lets none start

    def find(
        self,
        queue: Iterable[SimulatedVJob],
        transit: Collection[SimulatedVJob],
        left: int,
        now: float,
        held: Held = NOTHING_HELD,
    ) -> tuple[list[SimulatedVJob], list[SimulatedVJob]]:
        """Decide which vjobs are suspended, and which start or are resumed.

        Args:
            queue: all vjobs that have not ended, in the order of their submissions.
            transit: those vjobs of the queue about which nothing is decided.
            left: places for the other vjobs.
            now: the time.
            held: the holdings of the vjobs about which nothing is decided.
        """
        settled = [vjob for vjob in queue if vjob not in transit]
        ready = [vjob for vjob in settled if vjob.state in _READY and not self._rests(vjob, now)]
        running = [vjob for vjob in settled if vjob.state is VJobState.RUNNING]
        free = left - sum(len(vjob.names) for vjob in running)
        smallest = min((len(vjob.names) for vjob in ready), default=0)
        exempt_s = [exempt_for_s(vjob, now, self._parameters) for vjob in running]
        if not ready or (smallest > free and all(left_s > 0 for left_s in exempt_s)):
            self.quiet_s = min(exempt_s, default=math.inf)
            return [], []
        self._whole = self._capacity + held.twice
        then, decided = Moved(), [*running, *ready]
        stand = standings(decided, now, then, held, self._parameters, self._whole)
        run = _Run(free, [stand[v] for v, left_s in zip(running, exempt_s, strict=True) if not left_s], then)
        for number in range(self._parameters.rounds):
            before = then.copy()
            if number and self._shares:  # other vjobs may now be beyond a share, or protected
                stand = standings(decided, now, then, held, self._parameters, self._whole)
                run.may_yield = [stand[each.vjob] for each in run.may_yield]
            # A vjob that makes way may still find room, now that wider ones have made way, too, or others for it.
            waiting = sorted(
                (stand[vjob] for vjob in [*ready, *then.goes] if vjob not in then.starts), key=lambda each: each.rank
            )
            for place, each in enumerate(waiting):
                self._consider(each, islice(waiting, place + 1, None), run)
            if then == before:
                break
        else:
            self.quiet_s = 0.0
            return [], []
        changes = then.starts or any(each.beyond for each in stand.values())
        self.quiet_s = 0.0 if changes else self._quiet_for_s(waiting, [stand[vjob] for vjob in running])
        return then.goes, then.starts

    def _rests(self, vjob: SimulatedVJob, now: float) -> bool:
        return vjob.rests(OperationKind.START, now) or vjob.rests(OperationKind.RESUME, now)

    def _quiet_for_s(self, waiting: Iterable[Standing], running: Iterable[Standing]) -> float:
        """The seconds for which time alone lets no vjob start: until one may replace the least waiting one, or is due.

        A running vjob is taken to need the most when it has run for a twentieth of its limit, if it has not yet.
        """
        least = min(
            (1 + each.waited_s / max(each.needed_s, each.vjob.job.estimate_s) for each in running), default=math.inf
        )
        if math.isinf(least):
            return math.inf
        slowdown = self._parameters.slowdown
        quiet_s = math.inf
        for each in waiting:
            if each.due:
                return 0.0
            bound_s = max(slowdown.max_delay_s, slowdown.max_delay * each.vjob.job.estimate_s)
            enough_s = each.needed_s * (slowdown.factor * least - 1)
            quiet_s = min(quiet_s, max(0.0, enough_s - each.waited_s), max(0.0, bound_s - each.waited_s))
        return quiet_s

    def _part(self, each: Standing) -> float:
        return part_of(each.demand, self._whole)

    def _consider(self, each: Standing, behind: Iterable[Standing], run: _Run) -> None:
        """Start a vjob if there is room, or if the vjobs that yield make room and that pays."""
        if each.places <= run.free:
            run.free -= each.places
            run.then.goes_on(each.vjob)
            return
        yielding = [other for other in run.may_yield if self._yields(other, each)]
        room = run.free + sum(other.places for other in yielding) - each.places
        if room < 0:
            return
        victims = []
        for other in sorted(yielding, key=lambda other: other.stays):
            if other.places <= room:
                room -= other.places
            else:
                victims.append(other)
        if not each.due and not self._pays(each, victims, room, behind):
            return
        run.free = room
        run.then.go([other.vjob for other in victims])
        run.may_yield = [other for other in run.may_yield if other not in victims]
        run.then.goes_on(each.vjob)

    def _yields(self, member: Standing, each: Standing) -> bool:
        if self._shares:
            if each.beyond and not (member.beyond and member.user == each.user):
                return False
            if self._by_share(each, member):
                return True
        if each.due or member.due:
            return not member.due
        slowdown = self._parameters.slowdown
        if slowdown.slurm_priority == "order" and member.vjob.number < each.vjob.number:
            return False
        return each.expansion >= slowdown.factor * member.expansion

    def _by_share(self, each: Standing, member: Standing) -> bool:
        """Whether a vjob gets what another user has beyond his share."""
        if not member.beyond or each.beyond or member.user == each.user:
            return False
        return each.waited_s >= self._parameters.slowdown.user_share_s

    def _pays(self, each: Standing, victims: Sequence[Standing], room: int, behind: Iterable[Standing]) -> bool:
        """Whether it pays that these make way for a vjob, and for those behind it that get the places left free."""
        lost = [(self._part(other), switch_s(other.vjob, self._parameters)) for other in victims]
        most = max(other.expansion for other in victims)
        durations = self._parameters.durations

        def bears(one: Standing, part: float) -> bool:
            begins = durations.run if one.vjob.state is VJobState.WAITING else durations.resume
            its = expansion(one.waited_s, one.needed_s + lost_s(takes_s(begins, one.vjob), part, lost))
            compared = most
            if self._shares:
                compared = max((each.expansion for each in victims if not self._by_share(one, each)), default=0.0)
            return one.due or its >= self._parameters.slowdown.factor * compared

        own = self._part(each)
        if bears(each, own):
            return True
        if not bears(each, own * (each.places + room) / each.places):
            return False
        return borne(each, self._follow(behind, victims, room), self._part, bears)[0]

    def _follow(self, behind: Iterable[Standing], victims: Sequence[Standing], room: int) -> Iterable[Standing]:
        """The next vjobs in order for which these make way, too, as far as they find room beside the first one."""
        for other in behind:
            if room <= 0 or not all(self._yields(victim, other) for victim in victims):
                return
            if other.places <= room:
                room -= other.places
                yield other

    # -- where -----------------------------------------------------------------------------------------------------

    def steps(
        self,
        goes: Sequence[SimulatedVJob],
        starts: Sequence[SimulatedVJob],
        running: Iterable[SimulatedVJob],
        transit: Iterable[VMFacts],
    ) -> list[PlannedStep]:
        """The steps of the context switch: suspends, then the steps that wait for the places that these free.

        Args:
            goes: the vjobs that are suspended.
            starts: the vjobs that start, or are resumed.
            running: the vjobs that run and are decided about, those of ``goes`` among them.
            transit: VMs of vjobs about which nothing is decided.
        """
        free = dict.fromkeys(self._nodes, self._places)
        for node, count in taken_by(transit)[0].items():
            free[node] -= count
        for vjob in running:
            for node in vjob.hosts.values():
                free[node] -= 1
        found = [PlannedStep(vjob.name, OperationKind.SUSPEND, {}) for vjob in goes]
        freed: dict[str, list[int]] = {}  # places by node, each as the number of the step that frees it
        for number, vjob in enumerate(goes):
            for node in vjob.hosts.values():
                freed.setdefault(node, []).append(number)
        open_nodes = [node for node in self._nodes if free[node] > 0]
        at_once = sum(count for count in free.values() if count > 0)
        waits = []
        for vjob in starts:  # vjobs that need not wait for a suspend do not wait
            if len(vjob.names) > at_once:
                waits.append(vjob)
            else:
                at_once -= len(vjob.names)
        for vjob in [*(each for each in starts if each not in waits), *waits]:
            hosts, needs = _placed(vjob, free, freed, open_nodes)
            kind = OperationKind.RESUME if vjob.state is VJobState.SLEEPING else OperationKind.START
            found.append(PlannedStep(vjob.name, kind, hosts, tuple(sorted(needs))))
        return found


def _placed(
    vjob: SimulatedVJob, free: dict[str, int], freed: dict[str, list[int]], open_nodes: list[str]
) -> tuple[dict[str, str], set[int]]:
    """A node for each VM, and the steps that it waits for: its saved state's node, a free node, or one free later."""
    hosts: dict[str, str] = {}
    needs: set[int] = set()
    for name, node in vjob.images.items():
        if free.get(node, 0) > 0:
            free[node] -= 1
            hosts[name] = node
    for name in vjob.names:
        if name in hosts:
            continue
        while open_nodes and free[open_nodes[0]] <= 0:
            open_nodes.pop(0)
        if open_nodes:
            node = open_nodes[0]
            free[node] -= 1
        else:
            node = next(node for node, numbers in freed.items() if numbers)
            needs.add(freed[node].pop())
        hosts[name] = node
    return {name: hosts[name] for name in vjob.names}, needs


def foreseen(steps: Sequence[PlannedStep], live: Mapping[str, SimulatedVJob], durations: Durations) -> Foreseen:
    """The cost and the duration of the steps, as of a plan of two pools, which they are: suspends go first."""
    pools: tuple[list[Action], list[Action]] = ([], [])
    ends_s: list[float] = []
    for step in steps:
        actions = _actions(live[step.vjob], step)
        pools[bool(step.needs)].extend(actions)
        own_s = max(durations.of(action).seconds(action.vm.demand.memory_mib) for action in actions)
        gaps_s = 0.0 if step.kind is OperationKind.START else durations.pipeline_s * (len(actions) - 1)
        ends_s.append(max((ends_s[need] for need in step.needs), default=0.0) + own_s + gaps_s)
    plan = Plan(tuple(tuple(pool) for pool in pools if pool))
    kinds = Counter(
        "remote_resume" if action.kind is ActionKind.RESUME and not action.is_local else str(action.kind)
        for action in plan.actions()
    )
    return Foreseen(plan.cost, max(ends_s, default=0.0), dict(sorted(kinds.items())))


def _actions(vjob: SimulatedVJob, step: PlannedStep) -> list[Action]:
    vms = [VM(name, vjob.requested) for name in vjob.names]
    if step.kind is OperationKind.SUSPEND:
        return [suspend(vm, vjob.hosts[vm.name]) for vm in vms]
    if step.kind is OperationKind.RESUME:
        return [resume(vm, vjob.images[vm.name], step.hosts[vm.name]) for vm in vms]
    return [run(vm, step.hosts[vm.name]) for vm in vms]
