"""Cycle: observe once, reconcile every vjob, decide which waiting vjobs start, begin the operations, record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.assessment.promises import promises
from rmsplugin.engine.assess.first_sight import FirstSight
from rmsplugin.engine.assess.job_identity import JobIdentity
from rmsplugin.engine.assess.queue import Order, Waiting
from rmsplugin.engine.assess.rooms_wanted import Ahead, places_ahead
from rmsplugin.engine.assess.waiting_vjobs import GeometryOf, WaitingVJobs
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.demands import Demands
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.capacity.priorities import Priorities
from rmsplugin.engine.capacity.traffic import Traffic
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.cycle_report import CycleReport, Phase
from rmsplugin.engine.context.outages import Neighbour, Outages
from rmsplugin.engine.context.overseers import KnownOverseers
from rmsplugin.engine.decide.deciding import Deciding, Found, Proposes
from rmsplugin.engine.decide.hot_group import HotGroup
from rmsplugin.engine.decide.planned_power import PlannedPower
from rmsplugin.engine.execute.executor import Chore, Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.execute.switch import Switch
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.dead_nodes import clear_left_behind
from rmsplugin.engine.observe.observation import Observation, Observer
from rmsplugin.engine.observe.rooms import RoomState
from rmsplugin.engine.observe.strays import stop_strays
from rmsplugin.engine.observe.unentered import Unentered
from rmsplugin.engine.power.cap import PowerCap
from rmsplugin.engine.power.clearing import Clearing
from rmsplugin.engine.power.demand import PowerDemand, horizon_s, needs_of
from rmsplugin.engine.power.emptying import Emptier
from rmsplugin.engine.power.heat import HeatWatch
from rmsplugin.engine.power.powering import Powering
from rmsplugin.engine.power.sensing import Sensing
from rmsplugin.engine.reconcile.fencing import Fencing
from rmsplugin.engine.reconcile.following import Following
from rmsplugin.engine.reconcile.giving_up import GivingUp
from rmsplugin.engine.reconcile.handing_over import HandingOver
from rmsplugin.engine.schedule.calibration import Calibrating
from rmsplugin.engine.upkeep.borrowing import Borrowing
from rmsplugin.engine.upkeep.checkpointing import Checkpointing
from rmsplugin.engine.upkeep.evacuation import Evacuation
from rmsplugin.engine.upkeep.gate import Gate
from rmsplugin.engine.upkeep.sizes import Sizes
from rmsplugin.engine.upkeep.user_mails import UserMails
from rmsplugin.engine.upkeep.user_news import UserNews
from rmsplugin.engine.upkeep.user_notes import UserNotes
from rmsplugin.errors import RefusedError, RmspluginError, UnavailableError
from rmsplugin.latency import Sparing, going_first
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.model.vjob import VJobState

log = logging.getLogger(__name__)

#: With fewer jobs the collector of garbage goes through all that a cycle leaves within some 10 ms.
_MANY_JOBS = 500


class Cycle:
    """Runs cycles and previews, one at a time; while a caller holds ``lock``, none of them runs."""

    def __init__(
        self,
        context: Context,
        memory_care: MemoryCare,
        executor: Executor,
        placing: Placing,
        switch: Switch,
        proposes: Proposes,
    ) -> None:
        self.lock = threading.RLock()
        self._sparing = Sparing()
        self._settings = context.settings
        self._ledger = context.ledger
        self._clock = context.clock
        self._hearing = context.hearing
        self._hypervisor = context.hypervisor
        self._nodes = context.nodes
        self._stores = context.stores
        self._observer = Observer(context)
        self._capacities = Capacities(context.settings, context.ledger, context.clock, context.demanded_cpus)
        self.memory_care = memory_care
        self._demands = Demands(context.settings, context.ledger, context.bounds, context.demanded_cpus)
        self.traffic = Traffic()
        self.deciding = Deciding(
            context.settings,
            context.ledger,
            context.clock,
            self._capacities,
            context.capabilities,
            memory_care,
            switch,
            proposes,
            context.rms.leaf_switches,
            Emptier(context.settings, context.ledger, context.clock, context.power, proposes),
            context.durations,
        )
        self._executor = executor
        self._first_sight = FirstSight(context.settings, context.ledger, context.clock, context.rms)
        self.identity = JobIdentity(context.ledger, context.rms)
        self.gate = Gate(context.settings, context.ledger, context.clock, context.rms)
        self._waiting = WaitingVJobs(context.settings, context.ledger, self._first_sight, self.identity)
        self._following = Following(context, executor, placing, self._first_sight, self.identity)
        self.brake = self._following.brake
        self._unentered = Unentered(context.ledger)
        self._priorities = Priorities(context.ledger)
        self._evacuation = Evacuation(
            context.settings, context.durations, context.ledger, context.clock, executor, placing
        )
        self._borrowing = Borrowing(
            context.settings, context.ledger, context.clock, context.rms, context.nodes, placing
        )
        self.powering = Powering(context.settings, context.ledger, context.clock, context.rms, context.power, placing)
        self._cap = PowerCap(context.settings, context.ledger, self.powering.classes)
        self.sensing = Sensing(context.power, context.sensed)
        self._heat = HeatWatch(context.settings, context.ledger, context.clock, context.power, self.sensing)
        self._clearing = Clearing(
            context.settings,
            context.ledger,
            context.hypervisor,
            context.nodes,
            context.stores,
            context.power,
            executor,
            placing,
        )
        self._checkpointing = Checkpointing(
            context.settings, context.ledger, context.nodes, context.stores, context.capabilities, executor
        )
        self.fencing = Fencing(context.settings, context.ledger, context.nodes, context.acts, context.hearing)
        self._territory = context.territory
        self._handing: HandingOver | None = None
        self._giving_up: GivingUp | None = None
        self._hot_group: HotGroup | None = None
        if (territory := context.territory) is not None:
            self._handing = HandingOver(
                context.settings,
                context.ledger,
                context.clock,
                context.nodes,
                context.stores,
                territory,
                executor,
                placing,
                can_suspend=context.capabilities.suspend,
            )
            self._hot_group = HotGroup(
                context.settings, context.ledger, context.clock, context.durations, territory, self._handing.may_leave
            )
            self._giving_up = GivingUp(context.ledger, territory, self._handing)
        slurm = context.settings.slurm
        self._news = UserNews(context.ledger)
        self._notes = UserNotes(context.rms, context.clock.now)
        self._mails = UserMails(context.rms, context.clock.now, slurm.mail_every_s)
        self.durations = context.durations
        self._calibrating = Calibrating(context.settings, context.ledger, context.clock.now, context.durations)
        self._sizes = Sizes(context.ledger, context.guests, context.hypervisor, context.clock)
        self.overseers = KnownOverseers(context.rms, context.clock.now)
        self._outages = Outages(context.ledger, context.clock.now)
        self.report = CycleReport()
        self.number, self.seconds = 0, 0.0  # of all cycles of this engine
        self.seen: Observation | None = None
        self.order: Order | None = None  # of the queue of the last decision

    def run(self) -> CycleReport:
        """Run one cycle. Faults are in the report; the next cycle tries again."""
        with self.lock, going_first(), self._sparing.meanwhile(self._is_large):
            return self._run_reported()

    def _is_large(self) -> bool:
        """Whether the collector of garbage would take long to go through what a cycle leaves."""
        return self.seen is not None and len(self.seen.rms.jobs) >= _MANY_JOBS

    def _run_reported(self) -> CycleReport:
        clock = self._clock
        report = CycleReport(time=clock.now())
        report.problems += filter(None, [self._hearing.problem(report.time)])
        try:
            self._do_stages(report)
        except RmspluginError as error:
            report.failed = True
            report.problems.append(str(error))
            # A wrapper that Slurm or the ledger has to vouch for first was refused meanwhile.
            self._hearing.note_deaf(str(error), clock.now())
        report.enter(None)
        report.seconds = clock.now() - report.time
        self.number, self.seconds = self.number + 1, self.seconds + report.seconds
        for problem in report.problems:
            if problem not in self.report.problems:
                log.warning("%s", problem)
        if report.begun:
            log.info("%s", report.sentence)
        self.report = report
        return report

    def _do_stages(self, report: CycleReport) -> None:
        report.enter(Phase.LOOK)
        self._executor.record_ends()
        if self._territory is not None:
            self._territory.hear()
            self._territory.collect()
            report.problems += filter(None, [self._territory.problem, self._territory.delay])
        # Asked before looking: an operation that ends during the look has changed what the look sees.
        busy = self._executor.busy()
        with report.alone("the memory of VMs"):
            self.memory_care.watch()
        with report.alone("the sensors of nodes"):
            report.problems += self._heat.watch(self.seen)
        seen = self.seen = self._cap.obeyed(self._observe())
        report.problems += filter(None, [seen.over_cap])
        self._demands.take_samples(seen)
        with report.alone("the traffic of VMs"):
            self.traffic.take(seen)
        with report.alone("the memory of VMs"):
            self.memory_care.set_bounds(seen)
        switched = self._ledger.power.switches()
        silent = {node: why for node, why in seen.unreachable.items() if node not in switched}
        report.problems += [f"{node} is unreachable: {why}" for node, why in silent.items()]
        with report.alone("outages"):
            held = {node for node, room in seen.rooms.by_node.items() if room.state is RoomState.HELD}
            self._note_outages(silent, set() if self._settings.native else held - switched.keys())
        with report.alone("what users are told"):
            self._tell_users(seen)
        if seen.rms.private and self.overseers.is_due:
            self._executor.chore(Chore.OVERSEERS, self.overseers.read)
        if self._calibrating.is_due:
            self._executor.chore(Chore.CALIBRATION, self._calibrating.measure)
        if self._sizes.is_due:
            self._executor.chore(Chore.SIZES, self._sizes.carry_out)
        report.problems += site.problems(self._settings, seen.rms)
        report.problems += filter(None, [self._clock.problem(), self._own_reading()])
        report.problems += self._not_ours_any_more() + self._unentered.problems()
        if gate := self.gate.keep(seen.rms):
            report.problems.append(gate)
        ours = [job for job in seen.rms.jobs if job.partition in self._settings.slurm.partitions]
        report.enter(Phase.FOLLOW)
        self._waiting.note_ended_jobs(seen)
        self._priorities.note_changes(seen)
        with report.alone("the identity of jobs"):
            self.identity.find_others(seen.rms.jobs)
        self._first_sight.meet(ours, self.identity.others, report)
        with report.alone("interrupted checkpoints"):
            report.begun += self._checkpointing.recover(seen, busy | self._executor.held_back.now())
        observes_only = bool(site.time_slices(seen.rms))
        if not observes_only and self._executor.held_back.compared:
            with report.alone("evacuation"):
                lendable = self._borrowing.lendable(seen)
                report.begun += self._evacuation.evacuate(seen, busy | self._executor.held_back.now(), lendable)
        jobs, changed = self._following.follow_jobs(seen, ours, busy, report)
        seen = self.seen = seen.after_changes(changed)
        if self._giving_up is not None and self._handing is not None and self._territory is not None:
            with report.alone("vjobs that other groups are to have"):
                report.problems += self._giving_up.give_up(seen, self._executor.busy())
            ours = self._territory.still_own(ours)
            with report.alone("copies of saved states"):
                report.problems += self._handing.prepare_stores(seen) + self._handing.carry_out_orders()
        if not self._settings.native:
            stop_strays(self._settings, self._ledger, self._hypervisor, self._nodes, seen, jobs, report)
        with report.alone("dead nodes"):
            report.problems += clear_left_behind(
                self._settings, self._ledger, self._hypervisor, self._nodes, self._stores, seen
            ) + self.fencing.fence_silent(seen)
        if observes_only and self._hot_group is not None:
            self._hot_group.forget()
        if not observes_only:
            demand, before_off = PowerDemand(), frozenset[str]()
            with report.alone("the decision"):
                report.enter(Phase.DECIDE)
                demand = self._decide(seen, ours, report)
            report.enter(Phase.CARE)
            with report.alone("the power of nodes"):
                self._clearing.clear(seen)
                before_off = self.powering.switch_nodes(seen, demand, report)
            with report.alone("rooms"):
                wanted = demand.wanted | before_off | self._evacuation.wanted
                report.begun += self._borrowing.change_rooms(seen, wanted)
            with report.alone("checkpoints"):
                busy = self._executor.busy() | self._executor.held_back.now()
                report.begun += self._checkpointing.begin_due(seen, busy)

    def _observe(self) -> Observation:
        try:
            return self._observer.observe()
        except UnavailableError as error:
            self._outages.note(Neighbour.SLURMCTLD, {"": str(error)})
            raise

    def _note_outages(self, silent: Mapping[str, str], held: Set[str]) -> None:
        """Record which neighbours have begun, or ended, not to answer; the look has shown that slurmctld does.

        Args:
            silent: by node whose platform does not answer, why.
            held: nodes whose rooms are held.
        """
        accounting = self._following.accounting
        self._outages.note(Neighbour.SLURMCTLD, {})
        self._outages.note(Neighbour.NODE, silent)
        self._outages.note(Neighbour.SLURMDBD, {"": accounting.silent} if accounting.silent else {})
        self._outages.note(Neighbour.STORE, self._stores.missing)
        self._outages.note(Neighbour.STORE_SERVER, self._stores.silent)
        # Accounting and stores may hang, and no cycle waits for them.
        if accounting.is_due:
            self._executor.chore(Chore.ACCOUNTING, accounting.look_at_it)
        if not self._executor.is_at(Chore.STORES):
            nodes = self._stores.to_look_at(held, silent, self._clock.now())
            if nodes:
                self._executor.chore(Chore.STORES, lambda: self._stores.look_again(nodes))

    def _tell_users(self, seen: Observation) -> None:
        slurm = self._settings.slurm
        if not (slurm.admin_comment or slurm.mail):
            return
        news = self._news.collect()
        if slurm.admin_comment:
            self._notes.take(news)
            if self._notes.is_due:
                self._executor.chore(Chore.NOTES, self._notes.send)
        if slurm.mail:
            self._mails.take(news)
            if self._mails.is_due:
                program = slurm.mail_program or seen.rms.mail_program
                self._executor.chore(Chore.MAILS, lambda: self._mails.send(program))

    def _own_reading(self) -> str:
        """Why this engine has to read Slurm itself, where others read it for all groups; empty: it has not."""
        why = "" if self._territory is None else self._territory.own_reading
        return f"this engine reads Slurm itself, beside the manager that leads: {why}" if why else ""

    def _not_ours_any_more(self) -> list[str]:
        """Sentences about partitions of vjobs that the settings do not have: a typo, or a partition taken away."""
        found = {vjob.partition for vjob in self._ledger.living().values()} - set(self._settings.slurm.partitions)
        what = "which is not in slurm.partitions: they are kept as they are, and none is started or resumed there"
        return [f"there are vjobs in partition {name}, {what}" for name in sorted(found)]

    def _decide(self, seen: Observation, ours: list[RmsJob], report: CycleReport) -> PowerDemand:
        """Decide, and begin the switch. Returns the nodes without a room on which other vjobs would start."""
        promised = self._promised()
        queue, silent, self.order = self._waiting.find_queue(seen, ours, self._first_sight.look_into, report)
        self._waiting.record_reasons(silent)
        later = self._later(seen, ours, self._first_sight.look_into)
        after = self.deciding.decide_and_begin(seen, queue, self._borrowing.lendable(seen), report)
        if self._hot_group is not None:
            self._hot_group.tell_who_is_in_the_way(
                after, self.deciding.told, is_quiet=self.deciding.quiet() is not None
            )
        ahead = self._ahead(seen, queue, later, after, promised | self._promised())
        self.deciding.remember_barred(ahead.barred)
        return self._demand(seen, ahead, after)

    def _later(self, seen: Observation, ours: list[RmsJob], geometry_of: GeometryOf) -> list[Waiting]:
        """The vjobs whose begin time is near enough to matter for the power of nodes."""
        if not self._settings.power.switch:
            return []
        return self._waiting.find_later(
            ours, geometry_of, seen.taken + horizon_s(self._settings, self.powering.classes)
        )

    def _promised(self) -> frozenset[str]:
        """The vjobs that have a place by a context switch that is under way.

        Asked before the queue is found, too: a step that ends between the two has started a vjob of the queue.
        """
        return frozenset(promises(self._ledger.plans.open_steps()))

    def _ahead(
        self,
        seen: Observation,
        queue: Sequence[Waiting],
        later: Sequence[Waiting],
        after: Configuration,
        promised: Set[str],
    ) -> Ahead:
        """The places of vjobs that a decision leaves waiting, or that begin later; ``promised`` ones need none."""
        placed = _running(after) | promised
        left = [waiting for waiting in queue if not (waiting.rests or waiting.job.display_id in placed)]
        found = places_ahead(self._capacities, seen, left, after, later)
        return replace(found, left=tuple(waiting.job.display_id for waiting in left))

    def _demand(self, seen: Observation, ahead: Ahead, after: Configuration) -> PowerDemand:
        """The nodes that these vjobs need."""
        found = PowerDemand(ahead.wanted, ahead.kept, places=ahead.places, begins=ahead.begins, left=ahead.left)
        if not self._settings.power.switch:
            return found
        return replace(found, needs=needs_of(self._capacities, seen, ahead.unplaced, ahead.late, after))

    def preview(self) -> Found:
        """The decision of the next cycle, if it began now. Changes nothing. Waits for a cycle that runs.

        Raises:
            RefusedError: the next cycle would decide nothing.
            UnavailableError: the RMS does not answer, or the engine ends.
        """
        with self.lock, going_first(), self._sparing.meanwhile(self._is_large), self._ledger.only_reading():
            seen = self._cap.obeyed(self._observer.observe())
            if slices := site.time_slices(seen.rms):
                raise RefusedError(f"{slices}; the engine only observes, and decides nothing")
            partitions, promised = self._settings.slurm.partitions, self._promised()
            ours = self._first_sight.met(job for job in seen.rms.jobs if job.partition in partitions)
            queue = self._waiting.find_queue(seen, ours, self._first_sight.known, CycleReport()).waiting
            found = self.deciding.find(seen, queue, self._borrowing.lendable(seen))
            later = self._later(seen, ours, self._first_sight.known)
            ahead = self._ahead(seen, queue, later, found.after, promised | self._promised())
            powers = self.powering.planned(seen, self._demand(seen, ahead, found.after))
            found = found.with_rules(ahead.barred)
            return replace(found, powers=(*powers, *self._goes_off_then(found)))

    def _goes_off_then(self, found: Found) -> Iterator[PlannedPower]:
        """The node that a context switch empties: it goes off once all steps have ended and nobody uses it."""
        if found.emptied is not None:
            node, steps = found.emptied.node, range(len(found.prepared.steps))
            off_s = self.powering.classes.of(node)[1].off_s
            yield PlannedPower(NodeActionKind.POWER_OFF, node, "nobody uses it then", off_s, needs=tuple(steps))


def _running(configuration: Configuration) -> set[str]:
    """The names of the vjobs that run."""
    return {vjob.name for vjob in configuration.vjobs if configuration.state(vjob) is VJobState.RUNNING}
