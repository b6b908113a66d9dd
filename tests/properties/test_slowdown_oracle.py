"""Slowdown, decision by decision, against an oracle that was written from the documents and knows of no packing.

Where it does not matter where a VM is (all VMs are alike, or there is one node), a vjob is what it takes of the sums.
And what a decision must have wherever VMs are: applied, it decides nothing new, and nobody is switched to and fro.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

import pytest
from unit.queues import Queue, nodes

from rmsplugin.decision.parameters import ActionDuration, Parameters, SlowdownParameters, SwitchDurations
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.decision.rounds import applied
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search

RUNS, SLEEPS, WAITS = VJobState.RUNNING, VJobState.SLEEPING, VJobState.WAITING


def parameters(random: Random) -> Parameters:
    """Durations with and without what memory takes, and bounds that some reach."""
    grows = random.choice((0.0, 0.02))
    return Parameters(
        search=Search(time_limit_s=math.inf, deterministic_limit=0.05),
        exempt_s=random.choice((0.0, 300.0)),
        durations=SwitchDurations(ActionDuration(10), ActionDuration(5, grows), ActionDuration(10, grows)),
        slowdown=SlowdownParameters(
            max_delay=random.choice((0.2, 0.4)),
            max_delay_s=random.choice((1000.0, 6000.0, 86400.0)),
            slurm_priority=random.choice(("ties", "weight", "order")),
        ),
    )


def known(random: Random, priority: int) -> dict[str, object]:
    """What is known of a vjob beyond its VMs."""
    waited_s = random.choice((0.0, 10.0, 100.0, 1000.0, 5000.0, 30000.0)) * random.choice((1.0, 1.3, 2.1))
    return {
        "priority": priority,
        "preemptible": random.random() < 0.85,
        "time_limit_s": random.choice((None, 60.0, 600.0, 3600.0, 86400.0)),
        "ran_s": random.choice((0.0, 5.0, 200.0, 3000.0)),
        "waited_s": waited_s,
        "weight": random.choice((1.0, 1.0, 0.2, 0.05)),
        "state_s": random.choice((None, 20.0, 140.0, 290.0, 5000.0)),
    }


def alike(random: Random) -> Configuration:
    """VMs of one CPU on nodes of one to three: full, half full, or more than full of what waits."""
    places = random.randint(1, 3)
    queue = Queue(*nodes(random.randint(2, 6), cpus=places))
    slots = [node.name for node in queue.nodes for _ in range(places)]
    random.shuffle(slots)
    for number, priority in enumerate(sorted(random.choices((0, 0, 0, 1), k=random.randint(2, 12)), reverse=True)):
        width = random.choice((1, 1, 2, 3, len(queue.nodes)))
        if len(slots) >= width and random.random() < 0.7:
            where = [slots.pop() for _ in range(width)]
        else:
            where = [f"zz:{random.choice(queue.nodes).name}"] * width if random.random() < 0.4 else []
        queue.add(f"j{number}", *where, vms=width, memory_mib=64, **known(random, priority))
    return queue.configuration


def firm(random: Random) -> Configuration:
    """The same, of which half may not be preempted."""
    found = alike(random)
    return replace(
        found,
        vjobs=tuple(
            replace(vjob, preemptible=random.random() < 0.5, state_s=vjob.state_s or 0.0) for vjob in found.vjobs
        ),
    )


def one_node(random: Random) -> Configuration:
    """CPUs and memory on one node, of which now and then more is taken than there is."""
    queue = Queue(*nodes(1, cpus=8, memory_mib=8192))
    left = [8.0, 8192]
    for number, priority in enumerate(sorted(random.choices((0, 0, 1), k=random.randint(2, 10)), reverse=True)):
        width = random.choice((1, 1, 2, 3))
        cpus, memory_mib = random.choice((0.5, 1.0, 2.0)), random.choice((256, 1024, 2048))
        fits = left[0] >= cpus * width and left[1] >= memory_mib * width
        where = ["n1"] * width if random.random() < 0.75 and fits else []
        if where:
            left = [left[0] - cpus * width, left[1] - memory_mib * width]
        elif random.random() < 0.4:
            where = ["zz:n1"] * width
        queue.add(f"j{number}", *where, vms=width, cpus=cpus, memory_mib=memory_mib, **known(random, priority))
    return queue.configuration


def bursts(random: Random) -> Configuration:
    """Wide vjobs have all there is, and many narrow ones come at once: who pays for a switch that serves them all?"""
    queue = Queue(*nodes(random.randint(3, 8), cpus=1))
    slots, number = [node.name for node in queue.nodes], 0
    waits = (100.0, 160.0, 220.0, 280.0, 400.0)
    while slots:
        where = [slots.pop() for _ in range(min(len(slots), random.randint(2, 8)))]
        usual = {
            "state_s": random.choice((300.0, 5000.0)),
            "waited_s": random.choice((0.0, 60.0)),
        }
        queue.add(
            f"r{number}",
            *where,
            vms=len(where),
            memory_mib=64,
            ran_s=3000.0 * random.random() + 300,
            time_limit_s=86400.0,
            **usual,
        )
        number += 1
    for number in range(random.randint(2, 10)):
        usual = {"time_limit_s": random.choice((30.0, 60.0, 60.0, 600.0)), "waited_s": random.choice(waits)}
        width = random.choice((1, 1, 1, 2))
        queue.add(f"w{number}", vms=width, memory_mib=64, weight=random.choice((1.0, 1.0, 0.8)), **usual)
    return queue.configuration


# -- the oracle -----------------------------------------------------------------------------------------------------


@dataclass
class Oracle:
    """The vjobs that run according to the documents: policy.md, 0080, "How slowdown decides"."""

    configuration: Configuration
    parameters: Parameters

    def __post_init__(self) -> None:
        self.queue = list(self.configuration.vjobs)
        self.all_cpus = sum(node.capacity.cpus for node in self.configuration.nodes)
        self.all_mib = sum(node.capacity.memory_mib for node in self.configuration.nodes)
        self.state = {vjob.name: self.configuration.state(vjob) for vjob in self.queue}
        self.since_s = {vjob.name: vjob.state_s for vjob in self.queue}
        self.due = {name for tier in {v.priority for v in self.queue} for name in self.overdue(tier)}

    def rank(self) -> list[VJob]:
        """Whoever goes first first; whoever may not be preempted, and does not run, has its place by Slurm's order."""
        order = self.parameters.slowdown.slurm_priority == "order"
        found = sorted(
            self.queue,
            key=lambda v: (-v.priority, v.name not in self.due, 0 if order else -self.expansion(v)),
        )
        for tier in {v.priority for v in self.queue}:
            firm = [v for v in self.queue if v.priority == tier and not v.preemptible]
            firm = [v for v in firm if self.state[v.name] is not RUNS]
            places = [number for number, v in enumerate(found) if v in firm]
            for place, vjob in zip(places, firm, strict=True):
                found[place] = vjob
        return found

    def expected_s(self, vjob: VJob) -> float:
        return min(vjob.time_limit_s or math.inf, 20 * vjob.ran_s + 60)

    def expansion(self, vjob: VJob, more_s: float = 0.0) -> float:
        needs_s = max(self.expected_s(vjob) - vjob.ran_s, 60) + more_s
        weight = vjob.weight if self.parameters.slowdown.slurm_priority == "weight" else 1
        return weight * (vjob.waited_s + needs_s) / needs_s

    def together_mib(self, vjob: VJob) -> int:
        """The memory that one node saves, or restores, at most."""
        where = [self.configuration.locations[vm.name].node or vm.name for vm in vjob.vms]
        return max(sum(vm.demand.memory_mib for vm, at in zip(vjob.vms, where, strict=True) if at == w) for w in where)

    def switch_s(self, vjob: VJob, mib: int) -> float:
        kinds = (self.parameters.durations.suspend, self.parameters.durations.resume)
        return sum(kind.constant_s + kind.s_per_mib * mib for kind in kinds)

    def size(self, vjob: VJob) -> tuple[float, int]:
        return sum(vm.demand.cpus for vm in vjob.vms), sum(vm.demand.memory_mib for vm in vjob.vms)

    def part(self, vjob: VJob) -> float:
        cpus, mib = self.size(vjob)
        return max(cpus / self.all_cpus, mib / self.all_mib)

    def overdue(self, tier: int) -> set[str]:
        found = []
        for vjob in self.queue:
            asked_s = vjob.time_limit_s or self.expected_s(vjob)
            bound_s = max(self.parameters.slowdown.max_delay * asked_s, self.parameters.slowdown.max_delay_s)
            if vjob.priority == tier and vjob.waited_s > bound_s:
                runs = self.state[vjob.name] is RUNS
                runs_s = (math.inf if vjob.state_s is None else vjob.state_s) if runs else -1.0
                found.append((-runs_s, -vjob.waited_s / bound_s, vjob))
        found.sort(key=lambda each: each[:2])
        by_much = [vjob for _, times, vjob in found if -times >= math.sqrt(len(found))]
        due: list[VJob] = []
        for vjob in by_much:
            if due and sum(map(self.part, due)) + self.part(vjob) > 0.05:
                break
            due.append(vjob)
        return {vjob.name for vjob in due}

    def exempt_of_tier_s(self, runner: VJob) -> float:
        largest_mib = max(vm.demand.memory_mib for vm in runner.vms)
        return max(10 * self.switch_s(runner, largest_mib), 2 * self.switch_s(runner, self.together_mib(runner)))

    def exempt_s(self, runner: VJob, vjob: VJob) -> float:
        """For how long after its start one makes way for nobody of its tier; and for nobody of a higher one."""
        of_tier_s = self.exempt_of_tier_s(runner) if runner.priority >= vjob.priority else 0.0
        return max(self.parameters.exempt_s, of_tier_s)

    def exempt(self, runner: VJob, vjob: VJob) -> bool:
        since_s = self.since_s[runner.name]
        return since_s is not None and since_s < self.exempt_s(runner, vjob)

    def fit(self, vjobs: list[VJob]) -> bool:
        cpus, mib = map(sum, zip((0.0, 0), *map(self.size, vjobs), strict=True))
        return cpus <= self.all_cpus and mib <= self.all_mib

    def makes_way(self, runner: VJob, vjob: VJob) -> bool:
        if not runner.preemptible or self.exempt(runner, vjob):
            return False
        if runner.priority != vjob.priority:
            return runner.priority < vjob.priority
        if runner.name in self.due or vjob.name in self.due:
            return runner.name not in self.due
        by_queue = self.parameters.slowdown.slurm_priority == "order"
        if by_queue and self.queue.index(runner) < self.queue.index(vjob):
            return False
        return self.expansion(vjob) >= 3 * self.expansion(runner)

    def bears(self, vjob: VJob, victims: list[VJob], team: list[VJob]) -> bool:
        """Whether one has waited enough with its share of what a switch loses that is made for all of a team."""
        equal = [each for each in victims if each.priority == vjob.priority]
        if vjob.name in self.due or not equal:
            return True
        durations = self.parameters.durations
        kind = durations.resume if self.state[vjob.name] is SLEEPS else durations.run
        loss_s = kind.constant_s + kind.s_per_mib * self.together_mib(vjob)
        loss_s += sum(self.part(each) * self.switch_s(each, self.together_mib(each)) for each in victims) / sum(
            map(self.part, team)
        )
        return self.expansion(vjob, loss_s) >= 3 * max(map(self.expansion, equal))

    def pays(self, vjob: VJob, victims: list[VJob], beside: list[VJob], behind: list[VJob]) -> bool:
        """Alone, or with those behind it that find room, too; without those for which their share is too much."""
        team = [vjob]
        if self.bears(vjob, victims, team):
            return True
        for other in behind:
            if not all(self.makes_way(each, other) for each in victims):
                break
            if self.fit([*beside, *team, other]):
                team.append(other)
        while self.bears(vjob, victims, team):
            bearing = [each for each in team if self.bears(each, victims, team)]
            if bearing == team:
                return True
            team = bearing
        return False

    def gone_s(self, runner: VJob, head: VJob) -> float:
        """When one that runs has ended, or makes way for another one, as far as anybody can tell."""
        end_s = math.inf if runner.time_limit_s is None else max(0.0, runner.time_limit_s - runner.ran_s)
        if not runner.preemptible or runner.priority > head.priority:
            return end_s
        since_s = self.since_s[runner.name]
        if since_s is not None and self.state[runner.name] is not RUNS:
            since_s = 0.0  # it starts now
        exempt_s = 0.0 if since_s is None else self.exempt_s(runner, head) - since_s
        return min(end_s, max(exempt_s, self.yields_in_s(runner, head)))

    def yields_in_s(self, runner: VJob, head: VJob) -> float:
        if runner.priority < head.priority or (head.name in self.due and runner.name not in self.due):
            return 0.0
        if runner.name in self.due:
            return math.inf
        asked_s = head.time_limit_s or self.expected_s(head)
        bound_s = max(self.parameters.slowdown.max_delay * asked_s, self.parameters.slowdown.max_delay_s)
        due_in_s = max(0.0, bound_s - head.waited_s)
        by_queue = self.parameters.slowdown.slurm_priority == "order"
        if by_queue and self.queue.index(runner) < self.queue.index(head):
            return due_in_s
        needs_s = max(self.expected_s(head) - head.ran_s, 60)
        weight = head.weight if self.parameters.slowdown.slurm_priority == "weight" else 1
        enough_in_s = max(0.0, needs_s * (3 * self.expansion(runner) / weight - 1) - head.waited_s)
        return min(due_in_s, enough_in_s)

    def held(self, head: VJob, running: list[VJob]) -> tuple[float, list[VJob] | None]:
        """From when on there is room for one, and with whom it shares the cluster then."""
        ends = {vjob.name: self.gone_s(vjob, head) for vjob in running}
        for when_s in sorted(set(ends.values()) - {math.inf}):
            left = [vjob for vjob in running if ends[vjob.name] > when_s]
            if self.fit([*left, head]):
                return when_s, [*left, head]
        return math.inf, [head] if self.fit([head]) else None

    def delays(self, vjob: VJob, heads: list[tuple[float, list[VJob] | None]]) -> bool:
        """Whether one that may not be preempted is in the way of those for whom room is held."""
        end_s = math.inf if vjob.time_limit_s is None else max(0.0, vjob.time_limit_s - vjob.ran_s)
        return any(
            not (end_s <= when_s and end_s < math.inf) and others is not None and not self.fit([*others, vjob])
            for when_s, others in heads
        )

    def by_run(self) -> list[VJob]:
        """Those that run; the last to make way comes first: of a higher tier, or having run for longer."""
        return sorted(self.queue, key=lambda v: (-v.priority, v.name not in self.due, -v.ran_s))

    def turn(self) -> None:
        """Every ready vjob once, in the order in which they go; also those that have made way meanwhile."""
        here = [vjob for vjob in self.queue if self.state[vjob.name] is RUNS]
        started: list[VJob] = []
        goes: list[VJob] = []
        ready = [vjob for vjob in self.rank() if self.state[vjob.name] is not RUNS]
        heads: list[tuple[float, list[VJob] | None]] = []
        held: list[VJob] = []
        for number, vjob in enumerate(ready):
            may_start = vjob.preemptible or not self.delays(vjob, heads)
            staying = [each for each in here if each not in goes]
            can_go = [each for each in self.by_run() if each in staying and self.makes_way(each, vjob)]
            gone: list[VJob] = []
            while not self.fit([*[v for v in staying if v not in gone], *started, vjob]) and can_go:
                gone.append(can_go.pop())  # who has run least first
            for each in [each for each in self.by_run() if each in gone]:  # who is in nobody's way after all
                if self.fit([*[v for v in staying if v not in gone], *started, vjob, each]):
                    gone.remove(each)
            beside = [*[v for v in staying if v not in gone], *started]
            if may_start and self.fit([*beside, vjob]) and self.pays(vjob, gone, beside, ready[number + 1 :]):
                started.append(vjob)
                goes += gone
                for when_s, others in heads if not vjob.preemptible else []:
                    end_s = math.inf if vjob.time_limit_s is None else max(0.0, vjob.time_limit_s - vjob.ran_s)
                    if others is not None and not (end_s <= when_s and end_s < math.inf):
                        others.append(vjob)
            elif not held or not (vjob.preemptible or any(not each.preemptible for each in held)):
                running = [*[v for v in here if v not in goes], *started]
                heads.append(self.held(vjob, running))
                held.append(vjob)
        for vjob in [*started, *goes]:
            self.state[vjob.name] = RUNS if vjob in started else SLEEPS
            if self.since_s[vjob.name] is not None:
                self.since_s[vjob.name] = 0.0

    def decide(self) -> dict[str, VJobState]:
        """As if it were done, and decided again, until nothing changes."""
        for _ in range(8):
            before = dict(self.state)
            self.turn()
            if self.state == before:
                return self.state
        raise AssertionError("it does not settle")


# -- the properties -------------------------------------------------------------------------------------------------


def decided(configuration: Configuration, tunables: Parameters) -> Decision:
    decision = decide("slowdown", configuration, tunables)
    assert isinstance(decision, Decision), decision
    return decision


@pytest.mark.parametrize("kind", [alike, firm, one_node, bursts])
def test_slowdown_decides_as_the_documents_say(kind: object) -> None:
    assert callable(kind)
    moved = 0
    for seed in range(400):
        random = Random(seed)
        configuration, tunables = kind(random), parameters(random)
        decision = decided(configuration, tunables)
        assert dict(decision.states) == Oracle(configuration, tunables).decide(), f"seed {seed}: {decision.reasons}"
        runs = [vjob.name for vjob in configuration.vjobs if configuration.state(vjob) is RUNS]
        moved += any(decision.states[name] is SLEEPS for name in runs)
    assert moved > 30, "hardly anybody made way: nothing is compared"


@pytest.mark.parametrize("kind", [alike, firm, one_node, bursts])
def test_what_slowdown_decided_it_does_not_decide_otherwise_at_once(kind: object) -> None:
    assert callable(kind)
    for seed in range(300):
        random = Random(seed)
        configuration, tunables = kind(random), parameters(random)
        decision = decided(configuration, tunables)
        again = decided(applied(configuration, decision), tunables)
        assert again.states == decision.states, f"seed {seed}: {again.reasons}"


def later(configuration: Configuration, seconds: float) -> Configuration:
    """The same after some time in which nothing else happens."""
    vjobs = []
    for vjob in configuration.vjobs:
        runs = configuration.state(vjob) is RUNS
        ran_s, waited_s = (seconds, 0.0) if runs else (0.0, seconds)
        state_s = None if vjob.state_s is None else vjob.state_s + seconds
        vjobs.append(replace(vjob, state_s=state_s, ran_s=vjob.ran_s + ran_s, waited_s=vjob.waited_s + waited_s))
    return replace(configuration, vjobs=tuple(vjobs))


@pytest.mark.parametrize("kind", [alike, firm, one_node, bursts])
def test_nobody_is_switched_to_and_fro(kind: object) -> None:
    """A vjob that is started or resumed runs for ten times what a switch of it takes, if no higher tier waits."""
    assert callable(kind)
    for seed in range(60):
        random = Random(seed)
        configuration, tunables = kind(random), parameters(random)
        vjobs = tuple(replace(vjob, state_s=vjob.state_s or 0.0) for vjob in configuration.vjobs)
        now = replace(configuration, vjobs=vjobs)
        began: dict[str, float] = {}
        for cycle in range(12):
            decision = decided(now, tunables)
            for vjob in now.vjobs:
                before, after = now.state(vjob), decision.states[vjob.name]
                if before is RUNS and after is SLEEPS and vjob.name in began:
                    ran_s = 30.0 * cycle - began[vjob.name]
                    ahead = any(v.priority > vjob.priority and now.state(v) is not RUNS for v in now.vjobs)
                    least_s = tunables.exempt_s if ahead else Oracle(now, tunables).exempt_of_tier_s(vjob)
                    assert ran_s >= least_s, f"seed {seed}: {vjob.name} after {ran_s} s"
                if before is not RUNS and after is RUNS:
                    began[vjob.name] = 30.0 * cycle
            now = later(applied(now, decision), 30.0)
