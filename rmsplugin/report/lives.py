"""Lives: the times in which each job waited, ran and slept, derived from the operations on it; whole columns at once.

A job waits from its first submission until all its VMs answer, and again after a loss. It sleeps from the beginning of
a suspend, or pause, to the end of a resume, or of the pause. It ends when the engine begins to clean up after it. So
wait, run and sleep together are its completion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmsplugin.report.columns import (
    DONE,
    FAILED,
    PAUSE,
    RESTART,
    RESUME,
    START,
    STOP,
    SUSPEND,
    UNPAUSE,
    Codes,
    Flags,
    Floats,
    Ints,
    Jobs,
    Operations,
    last_of_each,
)

#: States of a job, as codes.
STATES = ("waiting", "running", "sleeping", "ended")
WAITING, RUNNING, SLEEPING, ENDED = range(len(STATES))


@dataclass(frozen=True, slots=True)
class Lives:
    """The course of each job. Times are seconds since the epoch; NaN where there is none.

    Attributes:
        start: when it first ran.
        end: when it ended.
        ran: whether it has run; ended: whether it ran and has ended.
        completion_s: from submission to end; NaN for a job that has not ended or never ran.
        wait_s, run_s, asleep_s: the time in each state until its end, or that of the report's time.
        work_s: its run time since its last loss: the run time on a cluster that loses nothing.
        state: its state at the end of the report's time; ENDED, too, if it never ran.
        suspends, resumes: the successful ones, pauses and their ends among them; a job that is saved after a pause has
            made way once.
        row, span_state, begin, until: the spans of time in one state, by row and time, without those after an end.
        first: where the spans of each row begin, and one more at the end.
    """

    start: Floats
    end: Floats
    ran: Flags
    ended: Flags
    completion_s: Floats
    wait_s: Floats
    run_s: Floats
    asleep_s: Floats
    work_s: Floats
    state: Codes
    suspends: Ints
    resumes: Ints
    row: Ints
    span_state: Codes
    begin: Floats
    until: Floats
    first: Ints


def lives_of(jobs: Jobs, operations: Operations, until: float) -> Lives:
    """Derive the lives of jobs until then; later operations are not looked at."""
    row, time, state = _changes(jobs, operations, until)
    last = last_of_each(row)
    following = np.where(last, until, np.append(time[1:], until)[: len(time)])
    spent_s = np.where(state == ENDED, 0.0, following - time)
    count = len(jobs)
    start = _first(row[state == RUNNING], time[state == RUNNING], count)
    end = _first(row[state == ENDED], time[state == ENDED], count)
    ran = ~np.isnan(start)
    ended = ran & ~np.isnan(end)
    spans = state != ENDED
    return Lives(
        start=start,
        end=end,
        ran=ran,
        ended=ended,
        completion_s=np.where(ended, end - jobs.submit, np.nan),
        wait_s=_total(row, spent_s, state == WAITING, count),
        run_s=_total(row, spent_s, state == RUNNING, count),
        asleep_s=_total(row, spent_s, state == SLEEPING, count),
        work_s=_since_last_loss(row, time, state, spent_s, count),
        state=state[last].astype(np.int32),
        suspends=_went_well(operations, _makes_way(operations), until, count),
        resumes=_went_well(operations, (operations.kind == RESUME) | (operations.kind == UNPAUSE), until, count),
        row=row[spans],
        span_state=state[spans].astype(np.int32),
        begin=time[spans],
        until=following[spans],
        first=np.searchsorted(row[spans], np.arange(count + 1)),
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of states.

    Attributes:
        row, time: the job, and the time.
        state: the new one.
        order: of changes of one instant, the one with the larger order is the later.
    """

    row: Ints
    time: Floats
    state: Codes
    order: Ints

    @staticmethod
    def to(state: int, row: Ints, time: Floats, order: Ints) -> _Changes:
        return _Changes(row, time, np.full(len(row), state, dtype=np.int32), order)


def _changes(jobs: Jobs, operations: Operations, until: float) -> tuple[Ints, Floats, Codes]:
    """Row, time and new state of each change of a state, by row and time."""
    every = np.arange(len(jobs), dtype=np.int64)
    first, last = np.full(len(jobs), -1), np.full(len(jobs), 2 * len(operations.row))
    parts = [
        _Changes.to(WAITING, every, jobs.submit, first),
        *_of_operations(jobs, operations),
        *_ends(jobs, operations, last),
    ]
    row, time, state, order = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "time", "state", "order")
    )
    places = np.lexsort((order, time, row))
    places = places[time[places] < until]
    row, time, state = row[places], time[places], state[places]
    changed = np.append(True, (row[1:] != row[:-1]) | (state[1:] != state[:-1]))[: len(row)]
    return row[changed], time[changed], state[changed]


def _of_operations(jobs: Jobs, operations: Operations) -> Iterator[_Changes]:
    kind, outcome, row = operations.kind, operations.outcome, operations.row
    lives_on = ~_is_over(jobs, operations)
    number = np.arange(len(row))

    def begun(chosen: Flags, state: int) -> _Changes:
        places = np.flatnonzero(chosen & lives_on)
        return _Changes.to(state, row[places], operations.created[places], 2 * number[places])

    def ended(chosen: Flags, state: int) -> _Changes:
        places = np.flatnonzero(chosen & lives_on)
        return _Changes.to(state, row[places], operations.ended[places], 2 * number[places] + 1)

    yield begun((kind == RESTART) | (kind == STOP), WAITING)
    leaves = _makes_way(operations)
    yield begun(leaves, SLEEPING)
    yield ended((kind == START) & (outcome == DONE), RUNNING)
    yield ended(leaves & (outcome == FAILED), RUNNING)
    yield ended(((kind == RESUME) | (kind == UNPAUSE)) & (outcome == DONE), RUNNING)
    # A job that went back to a checkpoint, or took back its state put aside, sleeps until it is resumed.
    last = last_of_each(row)
    wakes = np.append(kind[1:] == RESUME, False)[: len(row)] & ~last
    yield ended((kind == RESTART) & (outcome == DONE) & (wakes | (last & jobs.sleeps[row])), SLEEPING)


def _makes_way(operations: Operations) -> Flags:
    """The operations that make a running job make way: pauses, and saves of jobs that were not paused before."""
    kind, place = operations.kind, np.arange(len(operations.row))
    paused = (kind == PAUSE) & (operations.outcome == DONE)
    # A job stays paused after a failed save, and after a failed end of the pause.
    failed = ((kind == SUSPEND) | (kind == UNPAUSE)) & (operations.outcome == FAILED)
    last_pause = np.maximum.accumulate(np.where(paused, place, -1))
    last_other = np.maximum.accumulate(np.where(paused | failed, -1, place))
    begins = np.searchsorted(operations.row, operations.row)
    before = place - 1  # the change before each
    is_paused = (before >= begins) & (last_pause[before] >= begins) & (last_pause[before] > last_other[before])
    return np.asarray((kind == PAUSE) | ((kind == SUSPEND) & ~is_paused))


def _is_over(jobs: Jobs, operations: Operations) -> Flags:
    """The operations that are stops at the end of a job's life."""
    if not len(operations.row):
        return np.zeros(0, dtype=bool)
    stop = operations.kind == STOP
    other = np.maximum.accumulate(np.where(stop, -1, np.arange(len(stop))))  # the last non-stop before, of any job
    begins = np.searchsorted(operations.row, operations.row)
    ends = np.searchsorted(operations.row, operations.row, side="right") - 1
    over = jobs.terminated | jobs.stopping
    return np.asarray(stop & over[operations.row] & (np.maximum(other[ends], begins - 1) < np.arange(len(stop))))


def _ends(jobs: Jobs, operations: Operations, last: Ints) -> Iterator[_Changes]:
    """The ends of jobs: the first stop of each, for a clean-up may fail and be tried again; or there was none to do."""
    over = np.flatnonzero(_is_over(jobs, operations))
    rows, first = np.unique(operations.row[over], return_index=True)
    yield _Changes.to(ENDED, rows, operations.created[over[first]], 2 * over[first])
    rest = jobs.terminated.copy()
    rest[rows] = False
    yield _Changes.to(ENDED, np.flatnonzero(rest), jobs.since[rest], last[rest])


def _first(row: Ints, time: Floats, count: int) -> Floats:
    found = np.full(count, np.nan)
    rows, places = np.unique(row, return_index=True)
    found[rows] = time[places]
    return found


def _since_last_loss(row: Ints, time: Floats, state: Codes, spent_s: Floats, count: int) -> Floats:
    """The time for which each job has run since it last waited."""
    last_wait = np.full(count, -np.inf)
    waits = state == WAITING
    np.maximum.at(last_wait, row[waits], time[waits])
    return _total(row, spent_s, (state == RUNNING) & (time >= last_wait[row]), count)


def _total(row: Ints, spent_s: Floats, chosen: Flags, count: int) -> Floats:
    return np.bincount(row[chosen], weights=spent_s[chosen], minlength=count).astype(np.float64)


def _went_well(operations: Operations, those: Flags, until: float, count: int) -> Ints:
    chosen = those & (operations.outcome == DONE) & (operations.ended < until)
    return np.bincount(operations.row[chosen], minlength=count).astype(np.int64)
