"""Quiet hours: when a window has begun, until when, and what the decision makes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from examples import few
from hypothesis import given, settings
from properties.generators import configurations
from unit.queues import Queue, nodes

from rmsplugin.cron import zone_of
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import ReasonCode
from rmsplugin.engine.decide.quiet_hours import QuietHours
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared, prepare
from rmsplugin.proposing.propose import propose
from rmsplugin.proposing.quiet import Quiet, kept_still
from rmsplugin.settings.schedule import Schedule

ZONE = "Europe/Prague"
QUIET = Quiet("quiet hours until 06:00")


def at(text: str, *windows: dict[str, Any]) -> Quiet | None:
    """What is quiet at a time of the zone."""
    hours = QuietHours(Schedule.model_validate({"timezone": ZONE, "quiet": windows}))
    return hours.at(datetime.fromisoformat(text).replace(tzinfo=zone_of(ZONE)).timestamp())


NIGHT = {"begins": "0 22 * * *", "ends": "0 6 * * *"}
WEEKEND = {"begins": "0 18 * * fri", "ends": "0 6 * * mon", "starts": False}
WEEK = {"begins": "0 20 * * sat", "ends": "30 20 * * sun"}
LONG = {"begins": "0 6 * * mon", "ends": "30 5 * * mon"}
LONG_SUNDAY = {"begins": "0 3 * * sun", "ends": "50 2 * * sun"}
WORKDAYS = {"begins": "0 22 * * mon-fri", "ends": "0 6 * * *"}


@pytest.mark.parametrize(
    ("text", "windows", "sentence"),
    [
        ("2026-01-14T21:59:59", [NIGHT], None),
        ("2026-01-14T22:00:00", [NIGHT], "quiet hours until 06:00"),
        ("2026-01-15T05:59:59", [NIGHT], "quiet hours until 06:00"),
        ("2026-01-15T06:00:00", [NIGHT], None),
        ("2026-01-17T12:00:00", [WEEKEND], "quiet hours until Mon 06:00"),
        ("2026-01-18T12:00:00", [WEEKEND, NIGHT], "quiet hours until 06:00"),
        ("2026-01-17T12:00:00", [WORKDAYS], None),
        ("2026-01-17T05:00:00", [WORKDAYS], "quiet hours until 06:00"),
        ("2026-03-29T04:00:00", [NIGHT], "quiet hours until 06:00"),  # that night lacks an hour,
        ("2026-03-29T06:00:00", [NIGHT], None),
        ("2026-10-25T05:59:00", [NIGHT], "quiet hours until 06:00"),  # and that one has one more
        ("2026-10-25T06:00:00", [NIGHT], None),
        # 23.5 hours later, and on the next day: the clock is set in between
        ("2026-03-28T20:00:00", [WEEK], "quiet hours until Sun 20:30"),
        ("2026-03-28T21:00:00", [WEEK], "quiet hours until 20:30"),
        # from Monday to Monday, less half an hour, and the clock is set back in between
        ("2026-10-26T05:15:00", [LONG], "quiet hours until 05:30"),
        ("2026-10-26T05:30:00", [LONG], None),
        # the clock was set forward right before it began, so it showed no 02:05, or 02:30, a week ago
        ("2026-03-29T01:59:59", [LONG_SUNDAY], "quiet hours until 03:50"),  # of the week before; there is no 02:50
        ("2026-04-05T01:59:00", [LONG_SUNDAY], "quiet hours until 02:50"),
        ("2026-04-05T02:05:00", [LONG_SUNDAY], "quiet hours until 02:50"),
        ("2026-04-05T02:30:00", [LONG_SUNDAY], "quiet hours until 02:50"),
        ("2026-04-05T02:50:00", [LONG_SUNDAY], None),
        ("2026-01-14T23:00:00", [], None),
    ],
)
def test_a_window_lasts_to_its_end(text: str, windows: list[dict[str, Any]], sentence: str | None) -> None:
    found = at(text, *windows)
    assert (found and found.sentence) == sentence


def test_nothing_starts_if_one_of_the_windows_says_so() -> None:
    assert [found.starts for found in (at("2026-01-17T12:00", WEEKEND), at("2026-01-14T23:00", NIGHT)) if found] == [
        False,
        True,
    ]
    both = at("2026-01-17T23:00", WEEKEND, NIGHT)
    assert both is not None and not both.starts


def test_a_clock_that_is_set_back_is_followed() -> None:
    hours = QuietHours(Schedule.model_validate({"timezone": ZONE, "quiet": [NIGHT]}))

    def quiet(text: str) -> bool:
        return hours.at(datetime.fromisoformat(text).replace(tzinfo=zone_of(ZONE)).timestamp()) is not None

    asked = ["2026-01-14T23:00", "2026-01-14T20:00", "2026-01-15T07:00", "2026-01-15T05:00"]
    assert [quiet(text) for text in asked] == [True, False, False, True]


def prepared(source: Configuration, quiet: Quiet | None, policy: str = "rjsp") -> Prepared:
    parameters = ProposalParameters(policy, search=Search(time_limit_s=3600, deterministic_limit=0.02), quiet=quiet)
    return prepare(source, parameters, propose)


def decided(source: Configuration, quiet: Quiet | None, policy: str = "rjsp") -> dict[str, str]:
    found = prepared(source, quiet, policy)
    assert found.proposal is not None, found.fault
    return {name: str(state) for name, state in found.proposal.decision.states.items()}


def test_nobody_makes_way_and_both_are_told() -> None:
    source = Queue(*nodes(1)).add("head").add("runs", "n1").configuration
    assert decided(source, None) == {"head": "running", "runs": "sleeping"}
    found = prepared(source, QUIET).proposal
    assert found is not None and list(found.plan.actions()) == []
    reasons = found.decision.reasons
    assert reasons["head"].sentence.endswith("; quiet hours until 06:00: nobody makes way")
    assert reasons["runs"].code is ReasonCode.QUIET
    assert reasons["runs"].sentence == "quiet hours until 06:00: it runs, and stays where it is"


def test_nobody_moves_to_make_room_but_whoever_finds_some_starts() -> None:
    halves = Queue(*nodes(2, cpus=2)).add("a", "n1").add("b", "n2").add("wide", cpus=2).add("small")
    assert decided(halves.configuration, None)["wide"] == "running"
    found = decided(halves.configuration, QUIET)
    assert found == {"a": "running", "b": "running", "wide": "waiting", "small": "running"}


def test_the_vms_of_one_on_several_nodes_do_not_change_places() -> None:
    source = Queue(*nodes(2, cpus=2)).add("pair", "n1", "n2", cpus=1).add("wide", cpus=2).configuration
    found = prepared(source, QUIET)
    assert found.proposal is not None and list(found.proposal.plan.actions()) == []


def test_without_starts_nobody_starts_or_is_resumed() -> None:
    source = Queue(*nodes(3)).add("new").add("asleep", "zz:n1").add("runs", "n2").configuration
    assert decided(source, QUIET) == {"new": "running", "asleep": "running", "runs": "running"}
    found = prepared(source, Quiet(QUIET.sentence, starts=False)).proposal
    assert found is not None and list(found.plan.actions()) == []
    assert found.decision.reasons["new"].sentence == "quiet hours until 06:00: no vjob starts, or is resumed"


def test_who_has_to_leave_a_node_leaves_it() -> None:
    up, (draining,) = nodes(1), nodes(2, state=NodeState.DRAINING)[1:]
    source = Queue(*up, draining).add("leaves", "n2").configuration
    found = prepared(source, QUIET).proposal
    assert found is not None and [str(action.kind) for action in found.plan.actions()] == ["migrate"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("starts", [True, False])
@given(source=configurations())
@settings(max_examples=few(25), deadline=None)
def test_no_plan_acts_on_one_that_can_stay(policy: str, starts: bool, source: Configuration) -> None:
    still = kept_still(source, {})
    found = prepared(source, Quiet(QUIET.sentence, starts), policy)
    if found.proposal is None:
        return
    touched = {source.vjob_by_vm[action.vm.name].name for action in found.proposal.plan.actions()}
    assert not touched & still
    assert {found.proposal.decision.states[name] for name in still} <= {VJobState.RUNNING}
    if not starts:
        begun = [vjob for vjob in source.vjobs if vjob.name in touched and vjob.target is None and not vjob.lost]
        assert {source.state(vjob) for vjob in begun} <= {VJobState.RUNNING, VJobState.TERMINATED}
