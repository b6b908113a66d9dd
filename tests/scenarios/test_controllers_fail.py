"""Engines on two hosts under faults: no two act, no vjob is lost or runs twice."""

from __future__ import annotations

import json

import examples
import pytest
from scenarios.engine_process import SESSION_S
from scenarios.faults import live
from scenarios.faulty_day import _CALLS, FAULTS, course_of
from scenarios.random_day import Event

#: One course for each fault. `contrib/run-campaign faults` lives others. In 17 the next engine is stopped as it begins
#: to lead, while the one before stands still: that course had no end, for the one that stood still decided.
SEEDS = range(len(FAULTS), 2 * len(FAULTS)) if examples.whole else (12, 13, 14, 15, 17)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_course_of_faults_no_two_engines_act_and_every_vjob_runs_once(seed: int) -> None:
    day, wrong = live(seed, course_of(seed))
    assert not wrong, "\n".join([wrong, *day.happened])


def test_what_a_node_does_that_has_not_heard_of_the_next_engine_breaks_nothing() -> None:
    day, wrong = live(121, course_of(121))
    assert not wrong, "\n".join([wrong, *day.happened])
    assert day.judged().unheard, "a stopped engine's configuration of a VM was taken by a node that was cut off"


def test_a_node_that_is_booted_anew_does_nothing_for_an_engine_that_was_stopped_and_has_lost() -> None:
    """It knows no engine, and the one that was stopped is the first that it hears."""
    course = [
        Event(event.after_s, "boot_unheard", event.dice) if event.kind == "stop_unheard" else event
        for event in course_of(121)
    ]
    day, wrong = live(121, course)
    assert not wrong, "\n".join([wrong, *day.happened])
    assert day.judged().unheard == 0 and not day.world.booted_when_stopped


def test_an_engine_stands_still_while_the_ensemble_has_no_quorum_and_goes_on_in_its_turn() -> None:
    course = course_of(seed := 256)
    at = [event.kind for event in course].index("lose_quorum")
    for_23_s = [*course[:at], Event(0.0, "lose_quorum", (0, 3, 0, 0)), *course[at + 1 : at + 3]]
    day, wrong = live(seed, for_23_s)
    assert not wrong, "\n".join([wrong, *day.happened])
    found = day.judged()
    assert day.world.stood_still_s and found.turns == 1
    assert SESSION_S < found.gap_s < 23.0, "nobody might act meanwhile, and nobody waits afterwards"


@pytest.mark.parametrize(("first", "call"), [(13, "resume"), (12, "open_gate"), (17, "suspend")])
def test_what_an_engine_was_about_to_ask_slurm_for_when_it_was_stopped_is_not_asked(first: int, call: str) -> None:
    """The next one leads, and acts on the same vjob, before it goes on: without the command's own look it is late.

    Not each course has the call in time: the first one that has it is enough.
    """
    for seed in range(first, first + 12):
        if refused := stopped_before(seed, call):
            break
    assert refused == [call]


def stopped_before(seed: int, call: str) -> list[str]:
    """What was refused at Slurm in a course in which the engine is stopped right before such a call."""
    course = course_of(seed)
    at = next(number for number, event in enumerate(course) if event.kind in FAULTS)
    course = [event for event in course if event.kind not in FAULTS]
    course.insert(at, Event(0.0, "stop_in_call", (_CALLS.index(call), 4, 0, 0)))
    day, wrong = live(seed, course)
    assert not wrong, "\n".join([wrong, *day.happened])
    acts = [json.loads(line) for line in day.world.journal.lines()]
    return [act["what"] for act in acts if act.get("outcome") == "refused" and act["where"] == "rms"]
