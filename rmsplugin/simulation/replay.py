"""Replay: a workload on a simulated cluster in virtual time: the daemon's assess, propose and execute, event by event.

At one instant come first all ends, then all submissions, then one decision: if anything happened that it may depend
on, and the last one was a cycle ago. No clock and no chance is asked: the same input gives the same outcome anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from rmsplugin.assessment.facts import VMFacts
from rmsplugin.energy.prediction import Need
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.assess import Assessor
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.counted import Held, places_left, places_of, reached
from rmsplugin.simulation.counting import Counting, foreseen
from rmsplugin.simulation.deciding import Deciding
from rmsplugin.simulation.emptying import emptier_of
from rmsplugin.simulation.events import Events
from rmsplugin.simulation.feedback import Links, Submissions
from rmsplugin.simulation.hosts import Hosts
from rmsplugin.simulation.needs import known_needs, used_nodes, waiting_behind
from rmsplugin.simulation.observed import Known, Observed
from rmsplugin.simulation.observed_memory import MemoryObserver, MemoryParameters
from rmsplugin.simulation.operations import Operation, Operations
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.parameters import STATIC, ReplayParameters
from rmsplugin.simulation.powering import Powering, wake
from rmsplugin.simulation.relief import Relief
from rmsplugin.simulation.ruled import lets
from rmsplugin.simulation.runnable import node_facts
from rmsplugin.simulation.still import Still, of_vjobs
from rmsplugin.simulation.switches import Foreseen, Switches
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.simulation.watching import Watching
from rmsplugin.simulation.work import Work
from rmsplugin.workload.jobs import Job

K = OperationKind

#: The number of simulated instants between two reports of the progress.
_TOLD_EVERY = 256

_YEAR_S = 366 * 86400.0

_READY = (VJobState.WAITING, VJobState.PAUSED, VJobState.SLEEPING)

#: Policies that run each vjob that finds room beside those ahead of it, so that the others need not be looked at.
_GREEDY = frozenset({"rjsp", "rjsp-exact"})

#: Policies whose order changes with time alone, as long as any vjob waits.
_RANKED = frozenset({"slowdown"})

#: Policies that suspend no vjob that was started or resumed just now, and by which a vjob that waited long goes first.
_TIMED = frozenset({"easy-preempt", "mixed", "load-sharing", "v-reconfiguration"})


def replay(
    jobs: Sequence[Job],
    cluster: Cluster,
    parameters: ReplayParameters,
    tell: Callable[[int], None] = lambda _: None,
    links: Links = MappingProxyType({}),
) -> Outcome:
    """Replay a workload.

    Args:
        jobs: in the order of the queue, submit times ascending; each fits on the empty cluster.
        cluster: with the memory of its nodes.
        parameters: the parameters of the replay.
        tell: called now and then with the number of jobs submitted so far.
        links: the jobs that wait for others before they are submitted; the outcome tells their submit times.

    Raises:
        OperationFailedError: a policy of a site decides nothing, or one starts no job by the placement rules.
    """
    return _Replay(jobs, cluster, parameters, links).run(tell)


class _Replay:
    """One replay; times are seconds as in the trace."""

    def __init__(self, jobs: Sequence[Job], cluster: Cluster, parameters: ReplayParameters, links: Links) -> None:
        assert cluster.memory_per_node_mib is not None
        self._jobs, self._cluster, self._parameters = jobs, cluster, parameters
        self._submissions = Submissions([job.submit_s for job in jobs], links)
        self._place_of: dict[SimulatedVJob, int] = {}  # in the order of the jobs
        names = cluster.node_names
        self._events = Events()
        self._hosts = Hosts(names, cluster.cpus_per_node, cluster.memory_per_node_mib, parameters.slowdown)
        self._watching = Watching(self._events, parameters.cycle_s, self._demands_otherwise)
        self._work = Work(self._hosts, self._events, begins=self._watching.watch, done=self._work_done)
        self._operations = Operations(
            parameters.proposal.durations,
            self._hosts,
            parameters.measured,
            failure_rate=parameters.failure_rate,
            seed=parameters.seed,
            ended=self._ended,
        )
        self._powering = None if parameters.energy is None else Powering(names, parameters.energy, self._events)
        self._emptier = emptier_of(parameters)
        self._live: dict[str, SimulatedVJob] = {}  # in queue order
        self._vjobs: list[SimulatedVJob] = []
        self._switches = Switches(
            self._operations,
            self._live,
            self._have_room,
            *self._switched_nodes(),
        )
        self._memory: MemoryObserver | None = None
        self._relief: Relief | None = None
        planned_mib = cluster.memory_per_node_mib
        if parameters.memory is not None:
            self._observe(parameters.memory, dict.fromkeys(names, cluster.memory_per_node_mib))
            planned_mib = parameters.memory.planned_mib(cluster.memory_per_node_mib)
        self._rules = parameters.rules
        nodes = node_facts(cluster, planned_mib, self._rules)
        self._assessor = Assessor(nodes, parameters.proposal.capabilities, self._rules)
        self._deciding = Deciding(parameters.proposal, parameters.decides)
        self._static = parameters.proposal.policy in STATIC
        self._ranked = parameters.proposal.policy in _RANKED
        self._timed = parameters.proposal.policy in _TIMED
        self._places = self._places_of_a_node()
        self._counting: Counting | None = None
        self._capacity = Resources(cluster.cpus_per_node * cluster.nodes, planned_mib * cluster.nodes)
        if self._ranked and self._places is not None:
            self._counting = Counting(names, self._places, self._capacity, parameters.proposal.decision)
        self._due = False  # something happened that a decision may depend on
        self._looks = False  # nothing happened, but time went by
        self._stood: Still | None = None  # as of the last decision, if it changed nothing
        self._decided_s = -math.inf
        self._called_s: float | None = None  # the time when the next decision was called for

    def _switched_nodes(self) -> Iterator[Any]:
        """What context switches ask about nodes that may be off; by rules, nodes that have nothing are not alike."""
        if self._powering is not None:
            yield self._powering.are_on
            if self._parameters.rules is None:
                yield self._powering.instead

    def run(self, tell: Callable[[int], None]) -> Outcome:
        """Replay the whole workload."""
        instants = 0
        while len(self._vjobs) < len(self._jobs) or self._live:
            now = min(self._next_s, self._next_submission_s)
            if self._rules is not None and now == math.inf:
                raise OperationFailedError(self._stuck)
            assert now < math.inf, "jobs are left, and nothing will ever happen"
            self._happen(now)
            if (self._due or self._looks) and self._next_s > now:
                self._decide(now)
            if self._powering is not None and (self._live or len(self._vjobs) < len(self._jobs)):
                self._empty(self._powering, now)
                self._power(self._powering, now)
            instants += 1
            if instants % _TOLD_EVERY == 0:
                tell(len(self._vjobs))
        assert self._hosts.are_idle, "all jobs have ended, and something is left of them"
        runs = [vjob.told() for vjob in sorted(self._vjobs, key=self._place_of.__getitem__)]
        found = self._deciding
        switches = sorted(self._switches.done, key=lambda each: each.begin_s)
        policy = self._parameters.proposal.policy
        notes = () if self._relief is None else tuple(self._relief.notes)
        emptied = 0 if self._emptier is None else self._emptier.emptied
        powered = None if self._powering is None else self._powering.told(emptied)
        return Outcome(policy, runs, switches, self._work.usage, found.decisions, dict(found.faults), notes, powered)

    @property
    def _stuck(self) -> str:
        """That nothing will ever happen, and jobs are left, in a sentence."""
        first, policy = next(iter(self._live)), self._parameters.proposal.policy
        why = "".join(f"; {fault}" for fault in list(self._deciding.faults)[-1:])
        return f"under {policy} job {first} never ends by the placement rules: take out rules, or add nodes{why}"

    def _have_room(self, vjob: SimulatedVJob, to: Mapping[str, str]) -> bool:
        """Whether a vjob's VMs have room where they come to, and may come there."""
        if not self._hosts.have_room(to.values(), vjob.held_mib):
            return False
        return self._rules is None or not to or lets(self._rules, vjob, to, self._live.values())

    @property
    def _next_s(self) -> float:
        return min(self._operations.next_s, self._events.next_s)

    @property
    def _next_submission_s(self) -> float:
        return self._submissions.next_s

    def _happen(self, now: float) -> None:
        """Do all ends and all submissions of this instant; then change the speed of the vjobs that these affect."""
        self._operations.proceed(now)
        self._events.proceed(now)
        for place in self._submissions.until(now):
            self._submit(place, now)
        self._due |= self._switches.advance(now)
        self._work.set_rates(now)

    def _decide(self, now: float) -> None:
        """Decide once, or ask for a decision at the end of the cycle."""
        if self._called_s is None:
            self._called_s = now
        next_s = max(self._decided_s + self._parameters.cycle_s, self._called_s + self._parameters.look_s)
        only_looks = not self._due
        self._due = self._looks = False
        if not only_looks:
            self._stood = None
        if now < next_s:
            self._events.at(next_s, self._wake_for_time if only_looks else self._wake)
            return
        self._called_s = None
        if not self._ranked:  # a look for changes by time alone does not delay new jobs
            self._decided_s = now
        if self._all_stays:
            return
        quiet_s = self._counted(self._counting, now) if self._counting is not None else None
        if quiet_s is None and not (only_looks and self._stands_still(now)):
            self._decide_by_vms(now)
        if self._ranked and any(vjob.state in _READY for vjob in self._live.values()):
            cycles = max(1, math.floor(min(quiet_s or 0.0, _YEAR_S) / self._parameters.cycle_s))
            self._look_again(now + cycles * self._parameters.cycle_s)

    def _decide_by_vms(self, now: float) -> None:
        """Decide about VMs on nodes, as the engine does."""
        steps = list(self._switches.open_steps())
        queue = self._reached(steps)
        prepared = None
        if queue is None:
            self._deciding.decisions += 1
        else:
            settled = self._assessor.assess(queue, steps, now)
            source = settled.configuration
            prepared = self._deciding.find(source if self._relief is None else self._relief.relieved(source, now))
        self._stood = self._still(now) if self._deciding.barred is not None else None
        if prepared is not None and prepared.proposal is not None:
            self._switch(Foreseen.of(prepared.proposal), prepared.steps, now)

    def _stands_still(self, now: float) -> bool:
        """Whether a decision would change nothing, as the last one did not: only time went by since then."""
        barred = self._deciding.barred
        if self._stood is None or barred is None:
            return False
        still = self._still(now)
        return still is not None and still.is_as(self._stood, of_vjobs(barred, self._live))

    def _still(self, now: float) -> Still | None:
        """All that time has a part in; None if the decision depends on more."""
        decision = self._parameters.proposal.decision
        if not self._ranked or decision.slowdown.user_share < 1 or decision.pause_limit_s > 0:
            return None
        if self._rules is not None:
            return None  # who stands in whose way depends on where VMs are
        live = self._live.values()
        if self._memory is not None or any(vjob.observed is not None or not vjob.job.preemptible for vjob in live):
            return None  # room is held until a time for a vjob that may not be preempted
        transit, _, held = self._under_way()
        return Still.at(now, live, transit, held, decision, self._capacity)

    def _under_way(self) -> tuple[Mapping[SimulatedVJob, int], list[VMFacts], Held]:
        """The vjobs about which nothing is decided, each with its number of VMs; these VMs, and their holdings."""
        promised = list(self._switches.open_steps())
        moving = self._in_transit(promised)
        transit = {vjob: len(vjob.names) for vjob in self._live.values() if vjob in moving}
        members = list(self._assessor.members(transit, promised))
        each = iter(members)
        held = Held.by((vjob.job.user, islice(each, vms)) for vjob, vms in transit.items())
        return transit, members, held

    def _switch(self, foreseen: Foreseen, steps: Sequence[PlannedStep], now: float) -> None:
        self._decided_s = now
        self._switches.add(foreseen, steps, now)
        self._due |= self._switches.advance(now)
        self._work.set_rates(now)

    def _counted(self, counting: Counting, now: float) -> float | None:
        """Decide by counting. Returns for how long time alone changes nothing; None if counting does not tell."""
        live = self._live.values()
        transit, members, held = self._under_way()
        assert self._places is not None
        settled = [vjob for vjob in live if vjob not in transit and vjob.state is not VJobState.WAITING]
        left = places_left(self._cluster.nodes, self._places, members, settled)
        if left is None or sum(len(vjob.hosts) for vjob in settled) > left:
            return None
        self._deciding.decisions += 1
        goes, starts = counting.find(live, transit, left, now, held)
        if starts:
            steps = counting.steps(goes, starts, settled, members)
            self._switch(foreseen(steps, self._live, self._parameters.proposal.durations), steps, now)
        return counting.quiet_s

    def _empty(self, powering: Powering, now: float) -> None:
        """Empty a node that is little used, if nobody waits and nothing is under way."""
        emptier, live = self._emptier, self._live.values()
        if emptier is None or not emptier.is_due((len(self._vjobs), len(live)), now):
            return
        if any(self._switches.open_steps()) or any(vjob.state is not VJobState.RUNNING for vjob in live):
            return
        found = emptier.find(self._assessor.assess(live, (), now).configuration, live, powering, now)
        if found is not None and found.proposal is not None:
            self._switch(Foreseen.of(found.proposal), found.steps, now)
        elif live:
            self._events.at(emptier.again_s, wake)

    def _power(self, powering: Powering, now: float) -> None:
        """Switch nodes off and on."""
        live, steps = self._live.values(), list(self._switches.open_steps())

        def needs() -> Sequence[Need]:
            return known_needs(live, self._in_transit(steps), self._cluster, now)

        def behind(boots: Container[str]) -> int:
            return waiting_behind(live, boots)

        powering.feel(len(live), behind, now)
        powering.switch_idle(used_nodes(live, steps), (len(self._vjobs), len(self._live)), needs, now)

    def _in_transit(self, steps: Sequence[PlannedStep]) -> set[SimulatedVJob]:
        """The vjobs about which nothing is decided: an operation on them is under way, or planned."""
        promised = {self._live[step.vjob] for step in steps if step.vjob in self._live}
        return promised | self._operations.by_vjob.keys()

    @property
    def _all_stays(self) -> bool:
        """Whether no policy changes anything: no vjob is ready, and VMs that are all alike fit as they do now."""
        live = self._live.values()
        if self._parameters.proposal.objective == "nodes" or self._memory is not None or self._rules is not None:
            return False
        if any(vjob.state in _READY or vjob.observed is not None for vjob in live):
            return False
        return len({vjob.requested for vjob in live}) <= 1

    def _observe(self, memory: MemoryParameters, real_mib: Mapping[str, int]) -> None:
        """See the memory that VMs need, and relieve nodes that are short of it."""
        self._memory = MemoryObserver(memory, self._cluster, self._hosts, self._demands_otherwise)
        policy = self._parameters.proposal.policy
        self._relief = Relief(policy, memory, real_mib, lambda at: self._events.at(at, self._wake))

    def _places_of_a_node(self) -> int | None:
        """The number of VMs that a node hosts, if decisions depend on the numbers of VMs on the nodes alone."""
        parameters = self._parameters
        fails = parameters.failure_rate > 0 or parameters.measured.fails
        if fails or parameters.memory is not None or parameters.proposal.objective == "nodes":
            return None
        if self._cluster.cpu_overbooking:  # VMs of partitions may be booked otherwise
            return None
        if parameters.rules is not None:  # where VMs may be depends on whose they are
            return None
        if parameters.proposal.decision.pause_limit_s > 0:  # a paused vjob takes memory, and no CPUs
            return None
        if any(self._is_observed(job) for job in self._jobs):
            return None
        return places_of(self._jobs, self._cluster)

    def _is_observed(self, job: Job) -> bool:
        """Whether the demand of its VMs is the observed one, and not the requested one.

        On a platform that only pauses it is the requested one: the RMS starts no job beside CPUs that it gave away.
        """
        if self._parameters.proposal.capabilities.only_pauses:
            return False
        activity = self._cluster.activity_of(job, self._parameters.activity)
        vcpus = self._cluster.vcpus_of(job)
        varies = any(cpus != vcpus for phase in activity for cpus in phase.cpus)
        return varies and job.preemptible and not self._static

    def _reached(self, steps: Sequence[PlannedStep]) -> Collection[SimulatedVJob] | None:
        """The vjobs of the queue that may be in another state after a decision; None if none may."""
        queue = self._live.values()
        if self._places is None or self._ranked:
            return queue
        transit = self._in_transit(steps)
        members = self._assessor.members(transit, steps)
        left = places_left(self._cluster.nodes, self._places, members, (v for v in queue if v not in transit))
        if left is None:
            return queue
        found, starts = reached(queue, transit, left)
        if not starts:
            return None
        return found if self._parameters.proposal.policy in _GREEDY else queue

    def _look_again(self, then_s: float) -> None:
        """Decide at that time, unless a decision comes before: then another time is given."""
        decision = self._deciding.decisions

        def wake_if_undecided(now: float) -> None:
            self._looks |= self._deciding.decisions == decision

        self._events.at(then_s, wake_if_undecided)

    def _wake(self, now: float) -> None:
        self._due = True

    def _wake_for_time(self, now: float) -> None:
        self._looks = True

    # -- vjobs -------------------------------------------------------------------------------------------------------

    def _submit(self, place: int, now: float) -> None:
        job, submit_s = self._jobs[place], self._submissions.times_s[place]
        job = job if job.submit_s == submit_s else job._replace(submit_s=submit_s)
        cluster, vms = self._cluster, self._cluster.vms_of(job)
        vcpus = cluster.vcpus_of(job)
        requested = Resources(cluster.booked_of(job), cluster.vm_memory_mib(job))
        activity = cluster.activity_of(job, self._parameters.activity)
        names = tuple(f"{job.job_id}-{index}" for index in range(vms))
        vjob = SimulatedVJob(len(self._vjobs), job, names, requested, activity, since_s=now)
        if self._is_observed(job):
            columns = max(len(phase.cpus) for phase in activity)
            window_s = self._parameters.window_s
            vjob.observed = Known(vjob.cpus) if self._parameters.known else Observed(vcpus, columns, window_s)
        if self._memory is not None:
            vjob.memory = self._memory.of(job)
        self._place_of[vjob] = place
        self._vjobs.append(vjob)
        self._live[vjob.name] = vjob
        self._due = True
        self._remind(vjob, now)

    def _remind(self, vjob: SimulatedVJob, now: float) -> None:
        """Decide again when a vjob stops being exempt from suspension, or has waited for as long as its patience.

        And when it was paused for as long as a pause may last.
        """
        limit_s = self._parameters.proposal.decision.pause_limit_s
        if vjob.state is VJobState.PAUSED and math.isfinite(limit_s):
            self._events.at(now + limit_s, self._wake)
        if not self._timed:
            return
        decision = self._parameters.proposal.decision
        ready = vjob.state in _READY
        wait_s, since_s = decision.patience_s if ready else decision.exempt_s, vjob.since_s

        def remind(then: float) -> None:
            waited_for = self._memory is not None or any(each.state in _READY for each in self._live.values())
            self._due |= vjob.since_s == since_s and waited_for

        if ready or vjob.state is VJobState.RUNNING:
            self._events.at(now + wait_s, remind)

    def _ended(self, operation: Operation, now: float) -> None:
        """Handle the end of an operation."""
        vjob = operation.vjob
        self._switches.ended(operation)
        self._assessor.changed(vjob)
        self._due = True
        if self._memory is not None and operation.kind is K.START and not operation.fails:
            self._memory.see(vjob, self._live.values())
        if operation.fails:
            again_s = vjob.failed(operation.kind, now)
            stops = operation.kind is K.STOP
            self._events.at(again_s, (lambda then: self._stop(vjob, then)) if stops else self._wake)
        if vjob.state is VJobState.TERMINATED:
            del self._live[vjob.name]
        elif vjob.state is VJobState.RUNNING and vjob.end_s is not None:
            self._stop(vjob, now)
        else:
            self._remind(vjob, now)
        if operation.kind in (K.START, K.RESUME, K.MIGRATE, K.UNPAUSE) and vjob.computes:
            self._watching.watch(vjob, now)

    def _stop(self, vjob: SimulatedVJob, now: float) -> None:
        """Stop the VMs of a vjob whose work is done."""
        self._operations.begin(vjob, K.STOP, {}, now)
        self._assessor.changed(vjob)

    def _work_done(self, vjob: SimulatedVJob, now: float) -> None:
        """Note that a vjob has done its work; if an operation on it is under way, its VMs are stopped after that."""
        self._submissions.ends(self._place_of[vjob], now)
        if vjob not in self._operations.by_vjob:
            self._stop(vjob, now)

    def _demands_otherwise(self, vjob: SimulatedVJob) -> None:
        self._assessor.changed(vjob)
        self._due = True
