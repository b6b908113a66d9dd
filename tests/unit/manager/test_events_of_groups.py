"""Whoever reads the events of all groups on and on is told each of them, and each once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from unit.manager.managed import Managed
from unit.served import Served

PROGRAM = str(Path(sys.executable).parent / "rmsplugin")


def test_an_event_that_is_recorded_late_is_told_to_who_reads_on(manager: Managed, engines: dict[str, Served]) -> None:
    """The clock of the other group's host is ahead, or this group's engine was asked before it recorded the event."""
    engines["b"].world.pass_time(60.0)
    engines["b"].ledger.event("test", "of b")
    first = manager.ask("GET", "/v1/events?kind=test")[1]
    engines["a"].ledger.event("test", "of a, by its clock earlier")
    then = manager.ask("GET", f"/v1/events?kind=test&after={first['cursor']}")[1]
    assert [each["message"] for each in then["events"]] == ["of a, by its clock earlier"]
    assert manager.ask("GET", f"/v1/events?kind=test&after={then['cursor']}")[1]["events"] == []


def test_events_of_one_instant_in_two_groups_are_each_told_once(manager: Managed, engines: dict[str, Served]) -> None:
    assert engines["a"].world.time == engines["b"].world.time
    engines["a"].ledger.event("test", "of a")
    first = manager.ask("GET", "/v1/events?kind=test")[1]
    engines["b"].ledger.event("test", "of b")
    then = manager.ask("GET", f"/v1/events?kind=test&after={first['cursor']}")[1]
    assert [each["message"] for each in [*first["events"], *then["events"]]] == ["of a", "of b"]


@pytest.mark.parametrize("known", [True, False], ids=["heard before", "silent from the begin on"])
def test_events_of_a_group_that_was_silent_are_told_when_it_answers(
    manager: Managed, engines: dict[str, Served], known: bool
) -> None:
    place, away = Path(engines["b"].socket), Path(engines["b"].socket + ".away")
    engines["b"].ledger.event("test", "of long ago")
    if not known:  # it is told from now on only
        engines["b"].world.pass_time(time.time() + 60.0 - engines["b"].world.time)
    cursor = manager.ask("GET", "/v1/events?kind=test")[1]["cursor"] if known else ""
    place.rename(away)
    after = f"&after={cursor}" if cursor else ""
    engines["b"].ledger.event("test", "while it was silent")
    engines["a"].world.pass_time(time.time() + 120.0 - engines["a"].world.time)
    engines["a"].ledger.event("test", "of a")
    first = manager.ask("GET", f"/v1/events?kind=test{after}")[1]
    assert ([each["message"] for each in first["events"]], first["silent"]) == (["of a"], ["b"])
    away.rename(place)
    then = manager.ask("GET", f"/v1/events?kind=test&after={first['cursor']}")[1]
    assert [each["message"] for each in then["events"]] == ["while it was silent"]


def test_who_reads_on_in_a_ledger_with_lower_numbers_is_told_what_comes(
    manager: Managed, engines: dict[str, Served]
) -> None:
    """A group's ledger was restored, or the group was made anew."""
    cursor = manager.ask("GET", f"/v1/events?after=1,a:{2**40},b:0")[1]["cursor"]
    engines["a"].ledger.event("test", "after that")
    then = manager.ask("GET", f"/v1/events?kind=test&after={cursor}")[1]
    assert [each["message"] for each in then["events"]] == ["after that"]


def test_a_cursor_is_of_its_form_and_of_the_one_who_is_asked(manager: Managed, engines: dict[str, Served]) -> None:
    for wrong in ("x", "1,", "1,a", "1,a:-2", "-1", "1,a:2;b:3"):
        assert manager.ask("GET", f"/v1/events?after={wrong}")[0] == 400
    status, answer = engines["a"].ask("GET", "/v1/events?after=1,a:2")
    assert (status, answer["error"].partition(",")[0]) == (400, "after is the cursor of a manager")


def test_the_command_follows_the_events_of_all_groups(
    manager: Managed, engines: dict[str, Served], tmp_path: Path
) -> None:
    settings = tmp_path / "site.toml"
    settings.write_text(f'[engine]\nsocket = "{manager.socket}"\n[slurm]\n')
    words = ["events", "--follow", "--noheader", "--format=message", "--kind=test"]
    engines["b"].world.pass_time(60.0)
    engines["b"].ledger.event("test", "of b")
    environment = {**os.environ, "RMSPLUGIN_CONFIG": str(settings)}
    following = subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "of b\n"
        engines["a"].ledger.event("test", "of a, by its clock earlier")
        engines["b"].world.pass_time(1.0)
        engines["b"].ledger.event("test", "of b again")
        assert following.stdout.readline() == "of a, by its clock earlier\n"
    finally:
        following.kill()
        following.communicate()
