"""Counting: what ``slowdown`` decides where all VMs are alike, and a plan for it, without packing or searching.

A vjob then is a number of places. Who goes first, who makes way and whether that pays is asked of the same functions
as in ``rmsplugin.decision.slowdown``; a property compares whole replays. Where the VMs go is plain, too: to their
saved states if there is room, else anywhere. No VM ever has to move for another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rmsplugin.assessment.facts import VMFacts
from rmsplugin.decision.expansion import borne, expansion, lost_s, overdue, part_of, protected, still_expected_s
from rmsplugin.decision.parameters import ActionDuration, Parameters
from rmsplugin.model.action import Action, ActionKind, resume, run, suspend
from rmsplugin.model.elements import VM
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.counted import taken_by
from rmsplugin.simulation.switches import Foreseen
from rmsplugin.simulation.vjob import SimulatedVJob

_READY = (VJobState.WAITING, VJobState.SLEEPING)


@dataclass(frozen=True, slots=True)
class _Standing:
    """One vjob as it stands at the time of a decision.

    Attributes:
        rank: of those that are ready, less for whoever goes first.
        stays: of those that run, less for whoever makes way later.
    """

    vjob: SimulatedVJob
    places: int
    expansion: float
    waited_s: float
    needed_s: float
    due: bool
    rank: tuple[bool, float, int]
    stays: tuple[float, int]


@dataclass
class _Run:
    """Who runs, and may be suspended, in the course of a decision."""

    free: int
    may_yield: list[_Standing]
    starts: list[_Standing] = field(default_factory=list)
    goes: list[_Standing] = field(default_factory=list)

    def goes_on(self, each: _Standing) -> None:
        """One runs: it starts, or it does not make way after all."""
        if each in self.goes:
            self.goes.remove(each)
        else:
            self.starts.append(each)


class Counting:
    """Decides about one cluster again and again."""

    def __init__(self, nodes: Sequence[str], places: int, capacity: Resources, parameters: Parameters) -> None:
        """Know the cluster: names of nodes, the places of each, and what all have together."""
        self._nodes, self._places, self._capacity = nodes, places, capacity
        self._parameters = parameters
        self.quiet_s = 0.0  # after a decision by which nobody starts: for so long time alone lets nobody start

    def find(
        self, queue: Iterable[SimulatedVJob], transit: Collection[SimulatedVJob], left: int, now: float
    ) -> tuple[list[SimulatedVJob], list[SimulatedVJob]]:
        """Who is suspended, and who starts or is resumed.

        Args:
            queue: all that have not ended, in the order of their submissions.
            transit: those of them about which nothing is decided.
            left: places for the others.
            now: the time.
        """
        settled = [vjob for vjob in queue if vjob not in transit]
        ready = [vjob for vjob in settled if vjob.state in _READY and not self._rests(vjob, now)]
        running = [vjob for vjob in settled if vjob.state is VJobState.RUNNING]
        free = left - sum(len(vjob.names) for vjob in running)
        smallest = min((len(vjob.names) for vjob in ready), default=0)
        exempt_s = [self._exempt_for_s(vjob, now) for vjob in running]
        if not ready or (smallest > free and all(left_s > 0 for left_s in exempt_s)):
            self.quiet_s = min(exempt_s, default=math.inf)
            return [], []
        stand = self._standings([*running, *ready], now)
        may_yield = [stand[vjob] for vjob in running if not stand[vjob].due and not self._exempt_for_s(vjob, now)]
        then = _Run(free, may_yield)
        asking = [stand[vjob] for vjob in ready]
        waiting = sorted(asking, key=lambda each: each.rank)
        for _ in range(self._parameters.rounds):
            before = ([*then.starts], [*then.goes])
            for number, each in enumerate(waiting):
                self._consider(each, islice(waiting, number + 1, None), then)
            if (then.starts, then.goes) == before:
                break
            # Who makes way may find room all the same, now that wider ones have made way, too, or others for it.
            waiting = [each for each in [*asking, *then.goes] if each not in then.starts]
            waiting.sort(key=lambda each: each.rank)
        self.quiet_s = 0.0 if then.starts else self._quiet_for_s(waiting, [stand[vjob] for vjob in running])
        return [each.vjob for each in then.goes], [each.vjob for each in then.starts]

    def _rests(self, vjob: SimulatedVJob, now: float) -> bool:
        return vjob.rests(OperationKind.START, now) or vjob.rests(OperationKind.RESUME, now)

    def _exempt_for_s(self, vjob: SimulatedVJob, now: float) -> float:
        exempt_s = max(self._parameters.exempt_s, self._parameters.slowdown.switches * self._switch_s(vjob))
        return max(0.0, exempt_s - (now - vjob.since_s))

    def _quiet_for_s(self, waiting: Iterable[_Standing], running: Iterable[_Standing]) -> float:
        """For how long time alone lets nobody start: until one can have enough of whoever has waited least, or is due.

        What one that runs still needs is the most when it has run for a twentieth of its limit, if it has not yet.
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

    def _switch_s(self, vjob: SimulatedVJob) -> float:
        durations = self._parameters.durations
        return _of(durations.suspend, vjob) + _of(durations.resume, vjob)

    def _standings(self, vjobs: Sequence[SimulatedVJob], now: float) -> dict[SimulatedVJob, _Standing]:
        slowdown = self._parameters.slowdown
        found, late = [], []
        for vjob in vjobs:
            runs = vjob.state is VJobState.RUNNING
            ran_s = vjob.run_s + (now - vjob.since_s if runs else 0.0)
            waited_s = max(0.0, now - vjob.job.submit_s - ran_s)
            limit_s = vjob.job.estimate_s
            found.append((vjob, waited_s, still_expected_s(limit_s, ran_s), ran_s))
            times = overdue(waited_s, limit_s, ran_s, slowdown)
            if times > 1:
                late.append((vjob, now - vjob.since_s if runs else None, times, self._part(vjob)))
        due = set(protected(sorted(late, key=lambda each: each[0].number))) if late else set()
        by_queue = slowdown.slurm_priority == "order"
        stand = {}
        for vjob, waited_s, needed_s, ran_s in found:
            its = expansion(waited_s, needed_s)
            rank = (vjob not in due, 0.0 if by_queue else -its, vjob.number)
            stays = (-ran_s, vjob.number)
            stand[vjob] = _Standing(vjob, len(vjob.names), its, waited_s, needed_s, vjob in due, rank, stays)
        return stand

    def _part(self, vjob: SimulatedVJob) -> float:
        size, vms = vjob.requested, len(vjob.names)
        return part_of(Resources(size.cpus * vms, size.memory_mib * vms), self._capacity)

    def _consider(self, each: _Standing, behind: Iterable[_Standing], run: _Run) -> None:
        """Start one if there is room, or if those that yield make room and that pays."""
        if each.places <= run.free:
            run.free -= each.places
            run.goes_on(each)
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
        run.goes += victims
        run.may_yield = [other for other in run.may_yield if other not in victims]
        run.goes_on(each)

    def _yields(self, member: _Standing, each: _Standing) -> bool:
        if each.due:
            return True
        slowdown = self._parameters.slowdown
        if slowdown.slurm_priority == "order" and member.vjob.number < each.vjob.number:
            return False
        return each.expansion >= slowdown.factor * member.expansion

    def _pays(self, each: _Standing, victims: Sequence[_Standing], room: int, behind: Iterable[_Standing]) -> bool:
        """Whether it pays for one to have these make way, with those behind it that get what it leaves free."""
        lost = [(self._part(other.vjob), self._switch_s(other.vjob)) for other in victims]
        most = max(other.expansion for other in victims)
        durations = self._parameters.durations

        def bears(one: _Standing, part: float) -> bool:
            begins = durations.run if one.vjob.state is VJobState.WAITING else durations.resume
            its = expansion(one.waited_s, one.needed_s + lost_s(_of(begins, one.vjob), part, lost))
            return one.due or its >= self._parameters.slowdown.factor * most

        def part_of_one(one: _Standing) -> float:
            return self._part(one.vjob)

        own = part_of_one(each)
        if bears(each, own):
            return True
        if not bears(each, own * (each.places + room) / each.places):
            return False
        return borne(each, self._follow(behind, victims, room), part_of_one, bears)[0]

    def _follow(self, behind: Iterable[_Standing], victims: Sequence[_Standing], room: int) -> Iterable[_Standing]:
        """Those next in order for whom these make way, too, as far as they find room beside whom it is made for."""
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
        """The steps of the context switch: suspends, then what waits for the places that they free.

        Args:
            goes: who is suspended.
            starts: who starts, or is resumed.
            running: who runs and is decided about, those that go among them.
            transit: VMs of those about which nothing is decided.
        """
        free = dict.fromkeys(self._nodes, self._places)
        for node, count in taken_by(transit)[0].items():
            free[node] -= count
        for vjob in running:
            for node in vjob.hosts.values():
                free[node] -= 1
        found = [PlannedStep(vjob.name, OperationKind.SUSPEND, {}) for vjob in goes]
        freed: dict[str, list[int]] = {}  # places by node, each by the number of the step that frees it
        for number, vjob in enumerate(goes):
            for node in vjob.hosts.values():
                freed.setdefault(node, []).append(number)
        open_nodes = [node for node in self._nodes if free[node] > 0]
        at_once = sum(count for count in free.values() if count > 0)
        waits = []
        for vjob in starts:  # whoever need not wait for a suspend does not
            if len(vjob.names) > at_once:
                waits.append(vjob)
            else:
                at_once -= len(vjob.names)
        for vjob in [*(each for each in starts if each not in waits), *waits]:
            hosts, needs = _placed(vjob, free, freed, open_nodes)
            kind = OperationKind.RESUME if vjob.state is VJobState.SLEEPING else OperationKind.START
            found.append(PlannedStep(vjob.name, kind, hosts, tuple(sorted(needs))))
        return found


def _of(duration: ActionDuration, vjob: SimulatedVJob) -> float:
    return duration.constant_s + duration.s_per_mib * vjob.requested.memory_mib


def _placed(
    vjob: SimulatedVJob, free: dict[str, int], freed: dict[str, list[int]], open_nodes: list[str]
) -> tuple[dict[str, str], set[int]]:
    """A node for each VM, and for which steps it waits: on its saved state, on a free node, on one that will be."""
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
    """What the steps cost and how long they take, as of the plan of two pools that they are: suspends go first."""
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
