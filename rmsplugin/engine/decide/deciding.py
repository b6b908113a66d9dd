"""Deciding: assess, propose, check, apply. Turns one look at the cluster into a context switch, or into why not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rmsplugin.decision.outgrown import bearable
from rmsplugin.engine.assess.assess import Assessment
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.assess.rooms_wanted import RoomAhead
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.decide.emptying import ENERGY, Emptied, Empties
from rmsplugin.engine.decide.grouping import Asking, Grouping, Switches
from rmsplugin.engine.decide.parameters import proposal_parameters
from rmsplugin.engine.decide.planned_power import PlannedPower
from rmsplugin.engine.decide.quiet_hours import QuietHours, Window
from rmsplugin.engine.decide.relief import Relief
from rmsplugin.engine.decide.telling import Telling, Told, with_rule
from rmsplugin.engine.execute.switch import StaleError, Switch
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import Plan, PlanState
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import Formed
from rmsplugin.groups.proposing import Memory
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared, prepare
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.quiet import Quiet
from rmsplugin.settings import Settings


class Proposes(Protocol):
    """Makes proposals, within a bound of time and memory; of several groups at the same time, by several threads."""

    def propose(self, configuration: Configuration, parameters: ProposalParameters) -> Proposed:
        """Propose one context switch, which is not checked yet."""
        ...


@dataclass(frozen=True)
class DecidedGroups:
    """The groups as they were last decided about.

    Attributes:
        formed: the groups, and the faults of their settings.
        configuration: nodes, vjobs, and the location of each VM.
        assignment: the group of each vjob about which something was decided.
    """

    formed: Formed
    configuration: Configuration
    assignment: Mapping[str, Assigned]


@dataclass(frozen=True)
class Found:
    """The context switch that a cycle would make.

    Attributes:
        assessment: the assessment for which it was made.
        source: its configuration, with what nodes have to bear.
        prepared: a proposal that the checker accepts, with its steps; or why there is none.
        left_out: by display id, vjobs about which nothing is decided, as they have a room soon; and why, in a sentence.
        seconds: how long the proposals took.
        memory: what the next cycle has to know of the groups to which vjobs went.
        groups: the groups, and the group of each vjob.
        emptied: the node that it empties to save energy; None: it empties none.
        powers: the nodes that are, or would be, switched; only of a preview.
        solver_s: how long solvers took for the proposals, all together.
    """

    assessment: Assessment
    source: Configuration
    prepared: Prepared
    left_out: Mapping[str, str]
    seconds: float = 0.0
    memory: Memory = field(default_factory=Memory)
    groups: DecidedGroups | None = None
    emptied: Emptied | None = None
    powers: tuple[PlannedPower, ...] = ()
    solver_s: float = 0.0

    @property
    def after(self) -> Configuration:
        """The configuration as it will be after the switch."""
        proposal = self.prepared.proposal
        if proposal is None:
            return self.assessment.configuration
        return proposal.decided_about(self.source).with_locations(proposal.target)

    def with_rules(self, barred: Mapping[str, str]) -> Found:
        """The same, in which those are told their rule whom only rules keep off nodes that could be borrowed.

        Args:
            barred: by display id, the rule in a sentence.
        """
        proposal = self.prepared.proposal
        if proposal is None or not barred:
            return self
        told = {name: with_rule(reason, barred.get(name)) for name, reason in proposal.decision.reasons.items()}
        decision = replace(proposal.decision, reasons=told)
        return replace(self, prepared=replace(self.prepared, proposal=replace(proposal, decision=decision)))


class Deciding:
    """Decides about the cluster, once a cycle."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        capacities: Capacities,
        capabilities: Capabilities,
        memory_care: MemoryCare,
        switch: Switch,
        proposes: Proposes,
        switches: Callable[[], Switches],
        empties: Empties,
        durations: DurationsInUse,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._capabilities = capabilities
        self._switch = switch
        self._proposes = proposes
        self._empties = empties
        self._durations = durations
        self._relief = Relief(settings, ledger, clock, memory_care, durations)
        self._quiet_hours = QuietHours(settings.schedule)
        self._quiet = ""  # what was last told of them
        self._room_ahead = RoomAhead(settings, ledger, capacities)
        self._previous: dict[str, str] = {}
        self._grouping = Grouping(settings, switches)
        self._memory = Memory()
        self.groups: DecidedGroups | None = None  # of the last cycle that decided
        self._fault = ""
        self._telling = Telling(ledger, clock)

    @property
    def told(self) -> Mapping[str, Told]:
        """By display id, why each vjob of the queue waits, as of the last cycle."""
        return self._telling.newest

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of quiet hours."""
        return self._quiet_hours.windows

    def remember_barred(self, barred: Mapping[str, str]) -> None:
        """Remember whom only rules keep off the nodes that could be borrowed: see ``Telling``."""
        self._telling.remember_barred(barred)

    def quiet(self) -> Quiet | None:
        """The quiet hours that have begun; None if it is no such time."""
        return self._quiet_hours.at(self._clock.of_the_host())

    def find(self, seen: Observation, queue: Sequence[Waiting], lendable: Collection[str]) -> Found:
        """Assess, propose and check. Changes nothing.

        Args:
            seen: one look at the cluster.
            queue: vjobs that may start or be resumed, head first.
            lendable: nodes of elastic partitions for which a room would be requested now.
        """
        assessment, left_out = self._assess(seen, queue, lendable)
        parameters = proposal_parameters(self._settings, seen.rms, self._capabilities, self._durations.values())
        shortage = self._relief.asked(seen)
        parameters = replace(parameters, previous=self._previous or None, shortage=shortage, quiet=self.quiet())
        source = bearable(assessment.configuration)
        asking = Asking(self._grouping.of(seen.rms), self._settings, self._proposes.propose, self._memory)
        prepared = prepare(source, parameters, asking.ask)
        groups = DecidedGroups(asking.formed, source, asking.assignment)
        emptied = None
        if not left_out:
            emptied = self._empties.find(seen, source, prepared, asking.formed, asking.assignment)
            prepared = prepared if emptied is None else emptied.prepared
        return Found(
            assessment,
            source,
            prepared,
            left_out,
            asking.seconds,
            asking.memory,
            groups,
            emptied,
            solver_s=asking.solver_s,
        )

    def _assess(
        self, seen: Observation, queue: Sequence[Waiting], lendable: Collection[str]
    ) -> tuple[Assessment, dict[str, str]]:
        """The assessment, and the vjobs that are left out of it.

        If a node is freed between the two, no other vjob may have it before one that was left out for want of it. So
        both are found anew until they agree.
        """
        left_out = self._room_ahead.find(seen, queue, lendable)
        while True:
            assessment = self._switch.assess(seen, _without(queue, left_out))
            before = left_out
            left_out = self._room_ahead.find(seen, queue, lendable) if before else before
            if left_out == before:
                return assessment, left_out

    def decide_and_begin(
        self, seen: Observation, queue: Sequence[Waiting], lendable: Collection[str], report: CycleReport
    ) -> Configuration:
        """Decide, and begin the context switch.

        Args:
            seen: one look at the cluster.
            queue: vjobs that may start or be resumed, head first.
            lendable: as for ``find``.
            report: receives the acts that were begun.

        Returns:
            The configuration as it will be after the switch.
        """
        self._switch.take_observation(seen, queue)
        report.begun += self._switch.advance(judge=True)
        pause = self._ledger.plans.pause
        if pause is not None:
            self._switch.skip_planned(f"paused by {pause.by}")
            paused = f"context switches, starts and resumes are paused by {pause.by}"
            self._telling.tell(queue, {waiting.job.display_id: paused for waiting in queue}, None, None, report)
            configuration = self._switch.assess(seen, queue).configuration
            self.groups = DecidedGroups(self._grouping.of(seen.rms), configuration, {})
            return configuration
        found = self.find(seen, queue, lendable)
        self._room_ahead.remember(seen, queue, found.left_out)
        self._memory, self.groups = found.memory, found.groups
        self._empties.looked(found.source, found.emptied)
        report.problems += found.groups.formed.faults if found.groups else ()
        report.proposed_s, report.solver_s = found.seconds, found.solver_s
        self._note(found, report)
        self._note_quiet(found.prepared.parameters.quiet)
        proposal = found.prepared.proposal
        self._telling.tell(queue, found.left_out, found.assessment, proposal.decision if proposal else None, report)
        if proposal is None:
            return found.after
        self._relief.remember(proposal.remedy)
        self._previous = {name: at.node for name, at in proposal.target.items() if at.state.holds_memory and at.node}
        if not found.prepared.steps:
            self._ledger.plans.decided(proposal.decision, 0)
        else:
            self._apply(seen, _without(queue, found.left_out), found, proposal, report)
        return found.after

    def _apply(
        self, seen: Observation, queue: Sequence[Waiting], found: Found, proposal: Proposal, report: CycleReport
    ) -> None:
        plan = self._plan(found, PlanState.RUNNING, "")
        try:
            self._switch.apply(seen, queue, proposal, found.prepared.steps, plan)
        except StaleError as error:
            self._ledger.plans.add(replace(plan, state=PlanState.STALE, error=str(error), ended=plan.time))
            report.problems.append(f"a context switch was not begun: {error}; the next cycle decides anew")
            return
        if found.emptied is not None:
            self._ledger.event("node-emptied", found.emptied.why, node=found.emptied.node)
        report.begun += self._switch.advance()

    def _note(self, found: Found, report: CycleReport) -> None:
        """Record a fault of a proposal once, not in each cycle."""
        if found.prepared.fault:
            report.problems.append(found.prepared.fault)
        if found.prepared.fault and found.prepared.fault != self._fault:
            state = PlanState.NONE if found.prepared.proposal is None else PlanState.REJECTED
            plan = self._plan(found, state, found.prepared.fault)
            with self._ledger.transaction():
                self._ledger.plans.add(replace(plan, ended=plan.time))
                self._ledger.event("no-context-switch", found.prepared.fault)
        self._fault = found.prepared.fault

    def _note_quiet(self, quiet: Quiet | None) -> None:
        """Record that quiet hours have begun or ended, once."""
        sentence = quiet.sentence if quiet else ""
        if sentence != self._quiet:
            told = f"{sentence}: no vjob that runs makes way or moves, unless it has to"
            self._ledger.event("quiet-hours", told if sentence else "quiet hours have ended")
        self._quiet = sentence

    def _plan(self, found: Found, state: PlanState, error: str) -> Plan:
        proposal = found.prepared.proposal
        return Plan(
            id=0,
            time=self._clock.now(),
            policy=ENERGY if found.emptied else found.prepared.parameters.policy,
            sentence=_sentence(proposal) if proposal else "",
            fallback=(proposal.fallback or found.prepared.fault) if proposal else "",
            cost_mib=proposal.plan.cost if proposal else 0,
            lower_bound_mib=proposal.lower_bound if proposal else 0,
            estimate_s=proposal.estimate.by_dependencies_s if proposal else 0.0,
            decided_s=found.seconds,
            state=state,
            error=error,
            ended=0.0,
        )


def _without(queue: Sequence[Waiting], left_out: Collection[str]) -> list[Waiting]:
    """The queue without the vjobs about which nothing is decided."""
    return [waiting for waiting in queue if waiting.job.display_id not in left_out] if left_out else list(queue)


def _sentence(proposal: Proposal) -> str:
    """The proposal in a sentence, with the relief of nodes that are short of memory first."""
    notes = () if proposal.remedy is None else proposal.remedy.notes
    return "; ".join([proposal.sentence, *(note.sentence for note in notes)])
