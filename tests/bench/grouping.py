"""w. Groups beside one planner over all nodes: whom the groups keep waiting, on generated clusters and on traces.

The cluster lives on with what the groups decide; at each step one planner over all decides about the same moment. A
vjob is worse off if it would run there and does not run with groups, and better off the other way round.
"""

from __future__ import annotations

import gzip
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from unit.replayed import DATA

from bench.measure import Report, progress
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.groups.assignment import assign
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import Group, form
from rmsplugin.groups.proposing import Memory, remembered
from rmsplugin.groups.splitting import split
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.workload.jobs import read_workload

STEP_S = 30.0
_LIFE_STEPS = 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    ``widths``: by name, VMs of vjobs; ``traces``: that may lie beside this checkout, with the CPUs of the cluster.
    """

    nodes: int = 80
    groups: int = 4
    steps: int = 80
    seeds: int = 1
    widths: Sequence[tuple[str, Sequence[int]]] = (
        ("of 1 to 4 VMs", (1, 1, 2, 4)),
        ("of 1 to 16 VMs", (1, 2, 4, 8, 16)),
    )
    loads: Sequence[float] = (0.7, 1.0, 1.5)
    policies: Sequence[str] = ("rjsp", "mixed", "slowdown")
    traces: Sequence[tuple[str, int]] = (("ctc_sp2_full.swf.gz", 338), ("sdsc_blue_full.swf.gz", 1152))
    jobs: int = 1000


SIZES = {
    "full": Sizes(),
    "quick": Sizes(steps=60, nodes=60, loads=(1.0,), traces=(("sdsc_blue_full.swf.gz", 1152),), jobs=600),
    "tiny": Sizes(4, 2, 15, 1, (("of 1 VM", (1,)),), (1.0,), ("rjsp",), ()),
}


class Arrival(NamedTuple):
    """A vjob that comes: when (in steps), of what VMs, and for how many steps it runs."""

    step: int
    vms: int
    demand: Resources
    runs_steps: int
    limit_s: float


@dataclass
class Course:
    """A cluster on which vjobs come, run by the groups' decisions, and end."""

    nodes: tuple[Node, ...]
    groups: Sequence[Group]
    policy: str
    vjobs: dict[str, VJob] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)  # steps that each still runs
    locations: dict[str, Location] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    counts: Counter[str] = field(default_factory=Counter)
    whole_s: float = 0.0
    groups_s: float = 0.0

    def run(self, arrivals: Iterable[Arrival], steps: int, warm: int = 10) -> None:
        """Live through so many steps; the first ones are not counted."""
        coming = iter(arrivals)
        following = next(coming, None)
        for step in range(steps):
            while following is not None and following.step <= step:
                self._come(following)
                following = next(coming, None)
            if self.vjobs:
                self._step(counted=step >= warm)

    def _come(self, one: Arrival) -> None:
        name = f"v{len(self.locations)}-{self.counts['came']}"
        self.counts["came"] += 1
        vms = tuple(VM(f"{name}-{i}", one.demand) for i in range(one.vms))
        self.vjobs[name] = VJob(name, vms, state_s=0.0, time_limit_s=one.limit_s)
        self.left[name] = one.runs_steps
        self.locations |= {vm.name: WAITING for vm in vms}

    def _step(self, *, counted: bool) -> None:
        source = Configuration(self.nodes, tuple(self.vjobs.values()), self.locations)
        parameters = Parameters(exact_checks=0)
        began = time.process_time()
        whole = decide(self.policy, source, parameters)
        self.whole_s += time.process_time() - began
        began = time.process_time()
        assignment = assign(source, self.groups, self.memory.before, self.memory.refused)
        parts = [decide(self.policy, part.configuration, parameters) for part in split(source, self.groups, assignment)]
        self.groups_s += time.process_time() - began
        states: dict[str, VJobState] = {}
        placement: dict[str, str] = {}
        reasons = {}
        for part in parts:
            assert isinstance(part, Decision), part
            states |= part.states
            placement |= part.placement
            reasons |= part.reasons
        self.memory = remembered(assignment, reasons, self.memory)
        if counted:
            assert isinstance(whole, Decision), whole
            self._count(source, whole, states, assignment)
        self._live_on(source, states, placement)

    def _count(
        self, source: Configuration, whole: Decision, states: dict[str, VJobState], assignment: dict[str, Assigned]
    ) -> None:
        runs = VJobState.RUNNING
        worse = [n for n in self.vjobs if whole.states[n] is runs and states[n] is not runs]
        better = [n for n in self.vjobs if whole.states[n] is not runs and states[n] is runs]
        wide = [name for name in worse if assignment[name].note]
        self.counts["decisions"] += len(self.vjobs)
        self.counts["worse"] += len(worse) - len(wide)
        self.counts["wide"] += len(wide)
        self.counts["better"] += len(better)
        self.counts["fewer"] += max(0, len(worse) - len(wide) - len(better))
        self.counts["fragments"] += sum(assignment[name].by_room for name in worse)
        for name, vjob in self.vjobs.items():
            centi = round(vjob.demand.cpus * 100)
            self.counts["whole_centi"] += centi * (whole.states[name] is runs)
            self.counts["groups_centi"] += centi * (states[name] is runs)

    def _live_on(self, source: Configuration, states: dict[str, VJobState], placement: dict[str, str]) -> None:
        for name, vjob in list(self.vjobs.items()):
            ran = source.state(vjob) is VJobState.RUNNING
            if states[name] is VJobState.RUNNING:
                self.locations |= {vm.name: running_on(placement[vm.name]) for vm in vjob.vms}
                state_s = (vjob.state_s or 0.0) + STEP_S if ran else 0.0
                self.vjobs[name] = replace(vjob, state_s=state_s, ran_s=vjob.ran_s + STEP_S)
                self.left[name] -= 1
                if self.left[name] <= 0:
                    del self.vjobs[name]
                    for vm in vjob.vms:
                        del self.locations[vm.name]
                continue
            if ran:
                self.locations |= {vm.name: sleeping_on(self.locations[vm.name].node or "") for vm in vjob.vms}
            self.vjobs[name] = replace(vjob, waited_s=vjob.waited_s + STEP_S)


def run(sizes: Sizes, report: Report) -> None:
    """Measure all generated clusters, then all traces."""
    report.title("w", "groups beside one planner over all: vjobs that do not run for it, in percent of all decisions")
    rows = []
    for name, widths in sizes.widths:
        for load in sizes.loads:
            for policy in sizes.policies:
                progress(f"w: {name}, load {load}, {policy}")
                courses = [_generated(sizes, widths, load, policy, seed) for seed in range(sizes.seeds)]
                rows.append(_row(report, f"{sizes.nodes} nodes, {name}, load {load}", policy, courses))
    for trace, cpus in sizes.traces:
        if not (DATA / "swf" / trace).exists():
            continue
        for policy in sizes.policies:
            progress(f"w: {trace}, {policy}")
            rows.append(_row(report, trace.partition(".")[0], policy, [_replayed(sizes, trace, cpus, policy)]))
    progress("")
    headers = ["", "policy", "decisions", "worse %", "better %", "fewer run %", "too wide %", "CPUs / one planner's"]
    report.table(headers, rows)


def _row(report: Report, name: str, policy: str, courses: Sequence[Course]) -> list[object]:
    counts: Counter[str] = sum((course.counts for course in courses), Counter())
    decisions = max(1, counts["decisions"])
    whole_s, groups_s = (sum(getattr(course, key) for course in courses) for key in ("whole_s", "groups_s"))
    report.record(name=name, policy=policy, **counts, whole_s=whole_s, groups_s=groups_s)
    percent = [100 * counts[key] / decisions for key in ("worse", "better", "fewer", "wide")]
    busy = counts["groups_centi"] / max(1, counts["whole_centi"])
    report.ratio(f"{name}, {policy}: decisions for which a vjob does not run / all", percent[0] / 100)
    return [name, policy, counts["decisions"], *percent, f"{busy:.3f}"]


def _generated(sizes: Sizes, widths: Sequence[int], load: float, policy: str, seed: int) -> Course:
    nodes = tuple(Node(f"n{i:03}", Resources(8, 16384)) for i in range(sizes.nodes))
    course = Course(nodes, _groups(nodes, sizes.groups), policy)
    course.run(_arrivals(sizes, widths, load, seed), sizes.steps)
    return course


def _groups(nodes: Sequence[Node], number: int) -> Sequence[Group]:
    return form({"p": [node.name for node in nodes]}, most=-(-len(nodes) // number)).groups


def _arrivals(sizes: Sizes, widths: Sequence[int], load: float, seed: int) -> Iterator[Arrival]:
    """At first as much as the cluster can run, then as much work as ``load`` of what it can do."""
    chance = random.Random(f"grouping/{widths}/{load}/{seed}")
    cpus = (1, 2, 4)
    of_one = sum(widths) / len(widths) * sum(cpus) / len(cpus)
    each_step = load * sizes.nodes * 8 / of_one / _LIFE_STEPS
    for step in range(sizes.steps):
        number = sizes.nodes * 8 / of_one * load * 1.3 if step == 0 else each_step
        for _ in range(int(number) + (chance.random() < number % 1)):
            demand = Resources(chance.choice(cpus), chance.choice((1024, 2048, 4096)))
            yield Arrival(step, chance.choice(widths), demand, chance.randint(1, 2 * _LIFE_STEPS), 3600.0)


def _replayed(sizes: Sizes, trace: str, cpus: int, policy: str) -> Course:
    """A trace on nodes of 8 CPUs, a VM of one CPU for each processor; a step is ten minutes of it."""
    nodes = tuple(Node(f"n{i:03}", Resources(8, 16384)) for i in range(-(-cpus // 8)))
    course = Course(nodes, _groups(nodes, sizes.groups), policy)
    with gzip.open(DATA / "swf" / trace) as file:
        jobs = list(islice(read_workload(file).jobs, sizes.jobs))
    first = jobs[0].submit_s
    arrivals = [
        Arrival(
            int((job.submit_s - first) / 600),
            min(job.processors, cpus),
            Resources(1, job.memory_mib if job.memory_mib and job.memory_mib <= 2048 else 512),
            max(1, round(job.run_s / 600)),
            max(STEP_S, job.estimate_s / 600 * STEP_S),
        )
        for job in jobs
    ]
    course.run(arrivals, arrivals[-1].step)
    return course
