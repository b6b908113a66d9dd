"""Way checker: whether each VM of a plan goes its way without detours, and the actions stand in the pools they may.

Like ``rmsplugin.planning.checker``, of which it is a part, it shares nothing with the planner but the model's values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VJob, VMState, state_of
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.violations import Pools, Rule, Violation


def outcome_of(action: Action) -> Location:
    """The place of an action's VM when the action has ended."""
    match action.kind:
        case ActionKind.STOP:
            return Location(VMState.WAITING if action.requeue else VMState.TERMINATED)
        case ActionKind.SUSPEND:
            return Location(VMState.SLEEPING, action.destination)
        case ActionKind.MIGRATE if action.paused:
            return Location(VMState.PAUSED, action.destination)
        case ActionKind.PAUSE:
            return Location(VMState.PAUSED, action.source)
        case ActionKind.RUN | ActionKind.MIGRATE | ActionKind.RESUME | ActionKind.UNPAUSE:
            return Location(VMState.RUNNING, action.destination)


#: The checker's word for an action that all VMs of a vjob do in one pool.
_TOGETHER = {ActionKind.RESUME: "resumed", ActionKind.PAUSE: "paused", ActionKind.UNPAUSE: "unpaused"}


def check_places(source: Configuration, pools: Pools) -> Iterator[Violation]:
    """RR-6929 section 4.1: suspends and stops in the first pool, all resumes of a vjob in one; and forbidden actions.

    Pools of pauses, unpauses and stops alone, before all others, cost nothing: suspends may be in the first one after.
    """
    at_once = (ActionKind.PAUSE, ActionKind.UNPAUSE, ActionKind.STOP)
    costly = (number for number, pool in enumerate(pools) if any(action.kind not in at_once for action in pool))
    first = next(costly, len(pools))
    together: dict[tuple[ActionKind, str], int] = {}
    woken: set[str] = set()  # VMs that were resumed on the way: they are paused apart from the others
    for number, pool in enumerate(pools):
        for action in pool:
            vjob = source.vjob_by_vm.get(action.vm.name)
            if vjob is None:
                continue
            yield from _wrongs(source, vjob, number, action, first, action.vm.name in woken)
            if action.kind in _TOGETHER and not (action.kind is ActionKind.PAUSE and action.vm.name in woken):
                before = together.setdefault((action.kind, vjob.name), number)
                if before != number:
                    done = f"vjob {vjob.name} is {_TOGETHER[action.kind]} in pool {before} already"
                    yield Violation(Rule.SCATTERED, number, action, f"{done}, and its VMs must be together")
        woken |= {action.vm.name for action in pool if action.kind is ActionKind.RESUME}


def _wrongs(
    source: Configuration, vjob: VJob, number: int, action: Action, first: int, woken: bool
) -> Iterator[Violation]:
    """``first``: the first pool that may cost something; ``woken``: the VM was resumed in the plan."""
    suspends = action.kind is ActionKind.SUSPEND and not action.bypass
    pauses = action.kind is ActionKind.PAUSE
    if (number > first and (suspends or action.kind is ActionKind.STOP)) or (number > 0 and pauses and not woken):
        yield Violation(Rule.LATE, number, action, "it is always feasible, and belongs into the first pool")
    if (suspends or pauses) and not vjob.preemptible and state_of(vjob, source.locations) is not VJobState.PAUSED:
        yield Violation(Rule.PREEMPTION, number, action, f"vjob {vjob.name} is not preemptible: it stays running")
    if action.requeue and not vjob.lost and state_of(vjob, source.locations) is not VJobState.WAITING:
        sentence = f"vjob {vjob.name} is not lost: to begin anew throws away what it has computed"
        yield Violation(Rule.LOSS, number, action, sentence)


def check_detours(source: Configuration, pools: Pools) -> Iterator[Violation]:
    """A bypass leads on: suspend -> resume, migrate or resume -> migrate; and each action on the way is a bypass."""
    steps: dict[str, list[tuple[int, Action]]] = defaultdict(list)
    for number, pool in enumerate(pools):
        for action in pool:
            steps[action.vm.name].append((number, action))
    for name, all_of_it in steps.items():
        yield from _vain_pauses(source, name, all_of_it)
        own = [(number, step) for number, step in all_of_it if step.kind not in _IN_PLACE]
        before: Action | None = None
        nexts = [*(step for _, step in own), None][1:]
        for (number, action), following in zip(own, nexts, strict=True):
            wrong = _wrong_detour(source, before, action, following)
            if wrong is not None:
                yield Violation(Rule.BYPASS, number, action, wrong)
            before = action


_IN_PLACE = (ActionKind.PAUSE, ActionKind.UNPAUSE)


def _vain_pauses(source: Configuration, name: str, steps: Sequence[tuple[int, Action]]) -> Iterator[Violation]:
    """A VM is paused only to end so or to be saved, and goes on only to run in the end; each once."""
    runs = bool(steps) and outcome_of(steps[-1][1]).state is VMState.RUNNING
    seen: set[ActionKind] = set()
    for number, action in steps:
        if action.kind not in _IN_PLACE:
            continue
        wrong = action.kind in seen or runs is (action.kind is ActionKind.PAUSE)
        seen.add(action.kind)
        if wrong and name in source.vm_by_name:
            yield Violation(Rule.BYPASS, number, action, f"{name} does not end so: it is for nothing")


def _wrong_detour(source: Configuration, before: Action | None, action: Action, following: Action | None) -> str | None:
    if not action.bypass:
        if following is None or action.requeue:
            return None
        return f"{following} follows: it is a bypass, and not marked as one"
    match action.kind:
        case ActionKind.SUSPEND:
            if following is None or following.kind is not ActionKind.RESUME:
                return "no resume of the VM follows"
        case ActionKind.MIGRATE:
            # a pivot may turn out to be a dead end: then the state is saved there, and its resume must follow in turn
            breaks = following is not None and following.kind is ActionKind.SUSPEND and following.bypass
            if following is None or not (breaks or following.kind is ActionKind.MIGRATE):
                return "no migration of the VM follows"
        case _:
            # or the VM wakes with its vjob where there is room, and migrates to where it ends
            moves_on = following is not None and following.kind is ActionKind.MIGRATE
            suspended = before is not None and before.kind is ActionKind.SUSPEND and before.bypass
            if not suspended and not moves_on:
                return "no bypass suspended the VM before, and no migration of it follows"
    return None
