"""Switch: carries out cluster-wide context switches, step by step; a state machine over the steps in the ledger.

Nothing of a switch is only in memory: after a kill the next engine goes on with the steps that it finds. `advance` is
called whenever an operation has ended, and in each cycle. It waits for nothing. A step begins once all steps that it
waits for have ended well; if one of these failed, the step is skipped, and the next cycle decides anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rmsplugin.decision.outgrown import bearable
from rmsplugin.engine.assess.assess import Among, Assessment, assess
from rmsplugin.engine.assess.members import KeptMembers
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.assess.site_rules import there_are_rules
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.execute import tokens
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.one_step_plan import has_one_step
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.rows import (
    OPEN_STEPS,
    OperationKind,
    Outcome,
    Plan,
    PlanState,
    Step,
    StepState,
    VJobRow,
)
from rmsplugin.engine.observe.ending import is_ending
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import NotFoundError, RefusedError, RmspluginError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.joint_checker import check_joint
from rmsplugin.planning.order_checker import all_needs
from rmsplugin.proposing.fingerprint import fingerprint, nodes_of
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.steps import PlannedStep

log = logging.getLogger(__name__)

#: A step never begins after this many seconds, plus a multiple of the plan's expected makespan.
_PATIENCE_S = 600.0
_PATIENCE_MAKESPANS = 3.0

#: By kind of step, the states in which its vjob may be.
_BEFORE = {
    OperationKind.START: (VJobState.WAITING,),
    OperationKind.RESUME: (VJobState.SLEEPING,),
    OperationKind.SUSPEND: (VJobState.RUNNING, VJobState.PAUSED),
    OperationKind.MIGRATE: (VJobState.RUNNING, VJobState.PAUSED),
    OperationKind.PAUSE: (VJobState.RUNNING,),
    OperationKind.UNPAUSE: (VJobState.PAUSED,),
}

#: Steps of vjobs that wait for their turn.
_LETS_RUN = (OperationKind.START, OperationKind.RESUME, OperationKind.UNPAUSE)


class StaleError(RmspluginError):
    """A plan is of no use any more, because the cluster has changed since it was made."""


class Switch:
    """Applies plans, and has their steps carried out."""

    def __init__(self, context: Context, executor: Executor, placing: Placing, memory_care: MemoryCare) -> None:
        self._settings = context.settings
        self._ledger = context.ledger
        self._clock = context.clock
        self._capabilities = context.capabilities
        self._capacities = Capacities(context.settings, context.ledger, context.clock, context.demanded_cpus)
        self._executor = executor
        self._placing = placing
        self._memory_care = memory_care
        self._lock = threading.RLock()
        self._seen: Observation | None = None
        self._queue: Mapping[str, Waiting] = {}
        self._members = KeptMembers(context.settings)
        self._closed = False

    def close(self) -> None:
        """Begin no more steps: the engine ends."""
        with self._lock:
            self._closed = True

    def take_observation(self, seen: Observation, queue: Sequence[Waiting]) -> None:
        """Take over a new look at the cluster, and the waiting vjobs."""
        with self._lock:
            self._seen = seen
            self._queue = {waiting.job.display_id: waiting for waiting in queue}

    def assess(self, seen: Observation, queue: Sequence[Waiting], among: Among | None = None) -> Assessment:
        """Assess what can be decided about now; ``among``: only what is wanted of it (``engine.assess``)."""
        busy = (self._executor.busy() - self._executor.yielding()) | self._executor.held_back.now()
        closed = self._placing.closed(seen)
        return assess(
            *(self._capacities, self._capabilities, self._memory_care, seen, queue, busy, closed, self._members, among)
        )

    def apply(
        self,
        seen: Observation,
        queue: Sequence[Waiting],
        proposal: Proposal,
        steps: Sequence[PlannedStep],
        plan: Plan,
    ) -> Plan:
        """Record a plan with its steps, unless its preconditions have changed; `advance` begins the steps.

        Args:
            seen: one look at the cluster.
            queue: vjobs that may start or be resumed.
            proposal: the decision.
            steps: of the proposal.
            plan: the row that is recorded.

        Raises:
            StaleError: the preconditions have changed.
        """
        ledger = self._ledger
        with self._placing.lock, self._lock:
            # From here on no room is given away; room given since the old assessment shows in this new one.
            # Rules about VMs beside each other need all VMs.
            among = None if there_are_rules(self._settings, ledger, seen) else _looked_at(proposal, steps)
            now = proposal.decided_about(bearable(self.assess(seen, queue, among).configuration))
            if fingerprint(now, proposal.plan) != proposal.fingerprint:
                raise StaleError("the cluster has changed since the plan was made")
            if now.joint and (broken := _broken(now, proposal)):
                raise StaleError(f"the cluster has changed since the plan was made: {broken}")
            reasons = {name: reason.sentence for name, reason in proposal.decision.reasons.items()}
            with ledger.transaction():
                plan = replace(plan, id=ledger.plans.add(plan, steps, reasons))
                ledger.plans.decided(proposal.decision, plan.id)
                ledger.event("context-switch", f"context switch {plan.id}: {proposal.sentence}")
            return plan

    # -- steps ---------------------------------------------------------------------------------------------------

    def advance(self, *, judge: bool = False) -> list[str]:
        """Record which steps have ended, skip those that never can begin, and begin those that can. Waits for nothing.

        Args:
            judge: ``look`` was called a moment ago: a vjob that is not in the queue does not wait any more.

        Returns:
            Sentences about the steps begun.
        """
        with self._placing.lock, self._lock:
            steps = self._ledger.plans.open_steps()
            if not steps:
                self._end_plans()  # an engine may have been killed before it did
                return []
            states = self._states(steps)
            for step in steps:
                if step.state is StepState.RUNNING:
                    states[step.id] = self._outcome(step)
            begun = []
            under_way = [self._use(step, self._row(step.vjob)) for step in steps if _runs(states[step.id])]
            overdue = self._overdue()
            for step in steps if not self._closed else ():
                if states[step.id] is not StepState.PLANNED:
                    continue
                vjob = self._row(step.vjob)
                use = self._use(step, vjob)
                if never := _why_never(step, states, overdue):
                    states[step.id] = self._end(step, *never)
                elif all(states[need] is StepState.DONE for need in step.needs) and self._is_free(vjob, under_way, use):
                    states[step.id] = self._begin(step, vjob, judge)
                if _runs(states[step.id]):
                    under_way.append(use)
                    begun.append(f"{step.kind} {step.vjob}: {step.reason}")
            self._end_plans()
            return begun

    def skip_planned(self, why: str) -> int:
        """Skip all steps that have not begun. Returns their number."""
        with self._lock:
            planned = [s for s in self._ledger.plans.open_steps() if s.state is StepState.PLANNED]
            for step in planned:
                self._ledger.plans.step_ends(step.id, StepState.SKIPPED, why)
            self._end_plans()
            return len(planned)

    def _states(self, steps: Sequence[Step]) -> dict[int, StepState]:
        needed = {need for step in steps for need in step.needs}
        return self._ledger.plans.step_states(needed | {step.id for step in steps})

    def _outcome(self, step: Step) -> StepState:
        """The state of a step that has begun."""
        operation = self._ledger.operation(step.operation_id)
        if operation.state is Outcome.RUNNING:
            return StepState.RUNNING
        if operation.state is Outcome.DONE:
            return self._end(step, StepState.DONE, operation.error)
        vjob = self._row(step.vjob)
        has_ended = vjob is None or vjob.state in (VJobState.STOPPING, VJobState.TERMINATED)
        return self._end(step, StepState.NEEDLESS if has_ended else StepState.FAILED, operation.error)

    def _use(self, step: Step, vjob: VJobRow | None) -> tokens.Use:
        """The tokens that a step takes, given the nodes where the VMs of its vjob are now."""
        vms = self._ledger.vms(vjob.job_id) if vjob is not None else []
        return tokens.use_of(step, {vm.name: vm.host for vm in vms if vm.host})

    def _is_free(self, vjob: VJobRow | None, under_way: Sequence[tokens.Use], use: tokens.Use) -> bool:
        """Whether no operation on the vjob is under way, and the tokens for the step are free."""
        busy = vjob is not None and vjob.job_id in self._executor.busy()
        if vjob is not None and busy:
            self._executor.make_way(vjob.job_id, f"a {use.kind}")
        return not busy and tokens.are_free(self._settings.tokens, under_way, use)

    def _begin(self, step: Step, vjob: VJobRow | None, judge: bool) -> StepState:
        """Begin a step whose turn has come, unless the next look has to tell whether it may. Returns its state."""
        try:
            if not self._may_begin(step, vjob, judge):
                return StepState.PLANNED
        except RefusedError as error:
            return self._end(step, StepState.NEEDLESS, str(error))
        assert self._seen is not None
        try:
            if not self._placing.fits_beside_caches(self._seen, step, vjob, self._queue.get(step.vjob)):
                return StepState.PLANNED  # balloons make room
            self._placing.begin_step(self._seen, step, vjob, self._queue.get(step.vjob))
        except Exception as error:
            return self._failed(step, vjob, error)
        return StepState.RUNNING

    def _may_begin(self, step: Step, vjob: VJobRow | None, judge: bool) -> bool:
        """Whether the step may begin now; False if the next look has to tell.

        Raises:
            RefusedError: nobody needs the step any more.
        """
        state = vjob.state if vjob is not None else VJobState.WAITING
        if state not in _BEFORE[step.kind]:
            raise RefusedError(f"vjob {step.vjob} is {state}")
        if vjob is not None and is_ending(vjob, self._clock.now()):
            raise RefusedError(f"the script of vjob {step.vjob} has ended")
        if self._seen is None:
            return False
        if step.kind not in _LETS_RUN or step.vjob in self._queue:
            return True
        if judge and (vjob is None or vjob.state_since < self._seen.taken):
            raise RefusedError(f"vjob {step.vjob} does not wait for its turn any more")
        return False

    def _failed(self, step: Step, vjob: VJobRow | None, error: Exception) -> StepState:
        reason = str(error) or repr(error)
        if not isinstance(error, RmspluginError):
            log.exception("%s of vjob %s", step.kind, step.vjob)
            reason = f"internal error: {error!r}"
        if vjob is not None:
            self._ledger.failures.vjob_failed(vjob.job_id, step.kind, reason)
        return self._end(step, StepState.FAILED, reason)

    def _end(self, step: Step, state: StepState, why: str) -> StepState:
        ledger = self._ledger
        with ledger.transaction():
            ledger.plans.step_ends(step.id, state, why)
            counts = ledger.plans.step_counts([step.plan_id])[step.plan_id]
            ended = sum(number for each, number in counts.items() if each not in OPEN_STEPS)
            plan = ledger.plans.plan(step.plan_id)
            if plan is not None and not has_one_step(plan):  # else the events of its operation say so
                words = (
                    f"{ended} of {sum(counts.values())} steps, "
                    f"{step.kind} {step.vjob} {state}{': ' if why else ''}{why}"
                )
                ledger.event(f"step-{state}", f"context switch {step.plan_id}: {words}", vjob=step.vjob)
        return state

    def _overdue(self) -> set[int]:
        """Ids of the plans whose steps never begin if they have not begun by now."""
        now = self._clock.now()
        return {
            plan.id
            for plan in self._ledger.plans.running()
            if now - plan.time > _PATIENCE_S + _PATIENCE_MAKESPANS * plan.estimate_s
        }

    def _row(self, display_id: str) -> VJobRow | None:
        try:
            return self._ledger.find_vjob(display_id)
        except NotFoundError:
            return None

    def _end_plans(self) -> None:
        """End the plans of which nothing is left to be done."""
        plans, ledger = self._ledger.plans, self._ledger
        running = plans.running()
        counts = plans.step_counts([plan.id for plan in running])
        for plan in running:
            states = counts.get(plan.id, {})
            if any(states.get(state) for state in OPEN_STEPS):
                continue
            done, needless, number = (
                states.get(StepState.DONE, 0),
                states.get(StepState.NEEDLESS, 0),
                sum(states.values()),
            )
            seconds = self._clock.now() - plan.time
            with ledger.transaction():
                plans.end(plan.id, PlanState.DONE if done + needless == number else PlanState.FAILED)
                if has_one_step(plan):
                    continue
                words = f"{done} of {number} steps done in {seconds:.0f} s"
                words += f", {needless} had become needless" if needless else ""
                ledger.event("context-switch-ended", f"context switch {plan.id}: {words}")


def _looked_at(proposal: Proposal, steps: Sequence[PlannedStep]) -> Among | None:
    """What a plan depends on; None: all, because nodes are short of memory, and some may be reserved."""
    if proposal.remedy is not None and (proposal.remedy.reservations.held or proposal.remedy.waiting):
        return None
    return Among({step.vjob for step in steps}, nodes_of(proposal.plan))


def _broken(now: Configuration, proposal: Proposal) -> str:
    """The first rule about VMs beside each other that a plan would break now; empty if it breaks none."""
    found = check_joint(now, proposal.order.actions, all_needs(proposal.order.needs))
    return next(map(str, found), "")


def _runs(state: StepState) -> bool:
    return state is StepState.RUNNING


def _why_never(step: Step, states: Mapping[int, StepState], overdue: Collection[int]) -> tuple[StepState, str] | None:
    """As what a step ends that never begins, and why; None if it may begin."""
    needed = {states[need] for need in step.needs}
    if needed & {StepState.FAILED, StepState.SKIPPED}:
        return StepState.SKIPPED, "a step that it waits for failed"
    if StepState.NEEDLESS in needed:
        # Whether the room that it waits for has come about is for the next cycle to see.
        return StepState.NEEDLESS, "a step that it waits for became needless: the next cycle decides again"
    return (StepState.SKIPPED, "its turn did not come in time") if step.plan_id in overdue else None
