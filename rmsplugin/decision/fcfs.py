"""FCFS: First Come First Serve, plain, or with EASY or conservative backfill; none ever suspends anything.

These are the baselines, and the state of a site without context switches. A running vjob keeps running, preemptible or
not. A vjob is taken to end when the rest of its time limit has passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rmsplugin.decision.admission import Draft, admit, settle
from rmsplugin.decision.conservative import Profile
from rmsplugin.decision.easy import Reservation, Verdict, schedule
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import fits, needs, seconds, starts_within
from rmsplugin.decision.result import Decision, Infeasible, Numbers, Reason, ReasonCode
from rmsplugin.decision.room import Effort
from rmsplugin.decision.ruled_room import RoomNow, room_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob

_BESIDE = "free beside those that run"


def fcfs(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Start from the head of the queue while it fits."""
    return _start("fcfs", configuration, parameters, backfill=False)


def easy(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Start from the head of the queue while it fits, then all vjobs that do not delay the head."""
    return _start("easy", configuration, parameters, backfill=True)


def conservative(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Start all vjobs that delay none ahead of them."""
    draft = settle(configuration, _stays, Effort.within(parameters, checks=False))
    admitted = admit(draft, parameters)
    if isinstance(admitted, Infeasible):
        return admitted
    room = room_by_rules(admitted, parameters)
    profile = Profile.of(admitted.members, room, remaining_s)
    may_start = len(draft.others) if parameters.explains else _last_that_fits(draft.others, room)
    for number, vjob in enumerate(draft.others):
        if number >= may_start:  # whatever is reserved for it keeps nobody out
            draft.stays_out(vjob, room.lack(vjob, _BESIDE))
            continue
        if draft.effort.is_spent:
            words = "is not considered in this cycle, which has tried as many packings as it may"
            draft.stays_out(vjob, Reason(ReasonCode.POSTPONED, words))
            continue
        begin_s = profile.begin_s(vjob, remaining_s(vjob))
        if begin_s is None:
            draft.runs(vjob, fits(vjob, how="which fit as long as it may run beside those ahead of it"))
            if not parameters.explains:
                may_start = _last_that_fits(draft.others[:may_start], room)
        else:
            draft.stays_out(vjob, _later(begin_s, room.lack(vjob, _BESIDE), profile.fits_now))
    return draft.decision("conservative", room.placement)


def _last_that_fits(vjobs: Sequence[VJob], room: RoomNow) -> int:
    """The number of vjobs up to the last one that fits now: none behind it starts, whatever is reserved for others."""
    running = room.room.names
    for number in reversed(range(len(vjobs))):
        if vjobs[number].name not in running and room.add(vjobs[number]):
            room.discard(vjobs[number])
            return number + 1
    return 0


def _later(begin_s: float, lack: Reason, fits_now: bool) -> Reason:
    """The reason: it does not start, and when it does at the latest; ``lack``: why there is no room for it now."""
    when = "with no time at which that is sure" if begin_s == math.inf else starts_within(begin_s)
    if fits_now:
        words = f"fits now, but not beside those ahead of it for as long as it may run; {when}"
        return Reason(ReasonCode.RESERVED, words, {} if begin_s == math.inf else {"shadow_s": begin_s})
    if begin_s == math.inf:
        return lack
    return Reason(_reserved_code(lack), f"{lack.sentence}; {when}", {**lack.numbers, "shadow_s": begin_s})


def _reserved_code(lack: Reason) -> ReasonCode:
    """The code of a vjob with a reservation; one that a rule keeps out till then has that of the rule."""
    return lack.code if lack.code is ReasonCode.RULE else ReasonCode.RESERVED


def remaining_s(vjob: VJob) -> float:
    """Estimated end, in seconds from now: the rest of the time limit; ``math.inf`` without one.

    A vjob that has outrun its limit is expected to end now.
    """
    return math.inf if vjob.time_limit_s is None else max(0.0, vjob.time_limit_s - vjob.ran_s)


def _stays(vjob: VJob) -> Reason | None:
    return Reason(ReasonCode.KEPT, "runs, and this policy suspends nothing")


def _start(name: str, configuration: Configuration, parameters: Parameters, backfill: bool) -> Decision | Infeasible:
    draft = settle(configuration, _stays, Effort.within(parameters, checks=False))
    admitted = admit(draft, parameters)
    if isinstance(admitted, Infeasible):
        return admitted
    room = room_by_rules(admitted, parameters)
    result = schedule(draft.others, admitted.members, room, remaining_s, backfill)
    for vjob, verdict in result.verdicts:
        _record(draft, vjob, verdict, room, result.reservation, parameters)
    return draft.decision(name, room.placement)


def _record(
    draft: Draft,
    vjob: VJob,
    verdict: Verdict,
    room: RoomNow,
    head: Reservation[VJob] | None,
    parameters: Parameters,
) -> None:
    match verdict:
        case Verdict.STARTS:
            draft.runs(vjob, fits(vjob))
        case Verdict.ENDS_IN_TIME | Verdict.FITS_EXTRA if head is not None:
            draft.runs(vjob, backfilled(vjob, verdict, head))
        case Verdict.HEAD if head is not None:
            draft.stays_out(vjob, reserved(head, room.lack(head.head, _BESIDE), parameters))
        case Verdict.BEHIND if head is not None:
            words = f"waits behind {head.head.name}, which needs {needs(head.head)} and does not fit yet"
            draft.stays_out(vjob, Reason(ReasonCode.BEHIND_HEAD, words, {"head": head.head.name}))
        case Verdict.WOULD_DELAY if head is not None:
            draft.stays_out(vjob, would_delay(vjob, head))
        case _:
            draft.stays_out(vjob, room.lack(vjob, _BESIDE))


def backfilled(vjob: VJob, verdict: Verdict, head: Reservation[VJob]) -> Reason:
    """The reason: it starts, for it does not delay the head."""
    end_s = remaining_s(vjob)
    if verdict is Verdict.ENDS_IN_TIME and head.shadow_s < math.inf:
        words = f"ends in at most {seconds(end_s)}, and {head.head.name} cannot start before {seconds(head.shadow_s)}"
    elif verdict is Verdict.ENDS_IN_TIME:
        words = f"ends in at most {seconds(end_s)}, and {head.head.name} waits for vjobs without a time limit"
    else:
        words = f"fits beside {head.head.name} too, when that starts"
    return Reason(ReasonCode.BACKFILLED, f"does not delay the head of the queue: {words}", _numbers(head))


def reserved(head: Reservation[VJob], lack: Reason, parameters: Parameters) -> Reason:
    """The reason: it is the head of the queue, and waits for its reservation; ``lack``: why it has no room now."""
    if not parameters.explains:
        return lack
    if head.shadow_s == math.inf:
        if head.later is None:
            return Reason(lack.code, f"{lack.sentence}; it does not fit on the empty nodes either", lack.numbers)
        return Reason(
            lack.code, f"{lack.sentence}; too many of them have no time limit to reserve a start", lack.numbers
        )
    words = f"{lack.sentence}; {starts_within(head.shadow_s)}"
    return Reason(_reserved_code(lack), words, {**lack.numbers, "shadow_s": head.shadow_s})


def would_delay(vjob: VJob, head: Reservation[VJob]) -> Reason:
    """The reason: it fits now, and would be in the head's way when that can start."""
    end_s = remaining_s(vjob)
    ends = "has no time limit" if end_s == math.inf else f"may run for {seconds(end_s)}"
    when = "when it can" if head.shadow_s == math.inf else f"in {seconds(head.shadow_s)}"
    words = f"fits now, but {ends} and leaves no room for {head.head.name} to start {when}"
    return Reason(ReasonCode.WOULD_DELAY_HEAD, words, _numbers(head))


def _numbers(head: Reservation[VJob]) -> Numbers:
    """The vjob for which one behind the head makes way, and the time; no time if it is unknown."""
    known: Numbers = {} if head.shadow_s == math.inf else {"shadow_s": head.shadow_s}
    return {"head": head.head.name, **known}
