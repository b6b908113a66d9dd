"""Whoever reads the events of all groups on and on is told each of them, and each once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.manager.managed import Managed
from unit.served import Served

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.parting import own_part
from rmsplugin.errors import RefusedError
from rmsplugin.manager import site_events
from rmsplugin.manager.handing import Handed
from rmsplugin.model.event_cursor import LEAST_TIME, EventCursor

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


def test_of_more_events_than_one_answer_has_the_oldest_come_first_and_none_is_lost(
    manager: Managed, engines: dict[str, Served]
) -> None:
    cursor = manager.ask("GET", "/v1/events")[1]["cursor"]
    for number in range(9):
        # By the clock of its host, each event of b happens before all of a.
        engines["a" if number % 3 else "b"].ledger.event("test", f"number {number}")
        engines["a"].world.pass_time(1.0)
    answers = []
    for _ in range(5):
        answer = manager.ask("GET", f"/v1/events?kind=test&limit=2&after={cursor}")[1]
        cursor = answer["cursor"]
        answers.append([each["message"] for each in answer["events"]])
    assert [len(each) for each in answers] == [2, 2, 2, 2, 1]
    told = [message for answer in answers for message in answer]
    assert told == [f"number {number}" for number in (0, 3, 6, 1, 2, 4, 5, 7, 8)]
    assert manager.ask("GET", f"/v1/events?kind=test&after={cursor}")[1]["events"] == []


def test_events_of_a_group_whose_clock_goes_back_are_told_in_the_order_of_its_ledger() -> None:
    def reply(*events: tuple[int, float]) -> dict[str, Any]:
        return {"events": [{"id": number, "time": at} for number, at in events], "cursor": f"{events[-1][0]}:0123abcd"}

    replies = {"a": reply((1, 50.0), (2, 10.0), (3, 60.0)), "b": reply((7, 20.0), (8, 55.0))}
    cut = site_events.oldest(replies, 3)
    assert [each["id"] for each in cut["a"]["events"]] == [1, 2]
    assert [each["id"] for each in cut["b"]["events"]] == [7]
    assert site_events.told(EventCursor(LEAST_TIME), cut) == f"{LEAST_TIME},a:2:0123abcd,b:7:0123abcd"
    before = EventCursor(LEAST_TIME, groups={"a": EventCursor(0, "0123abcd")})
    assert site_events.told(before, site_events.oldest(replies, 0)) == str(before)
    late = {"a": reply((1, 1.0)), "b": reply((7, 20.0))}
    assert site_events.told(before, site_events.oldest(late, 1)) == f"{LEAST_TIME},a:1:0123abcd"


def test_events_of_another_ledger_of_a_group_are_told_from_its_first_one_on(
    manager: Managed, engines: dict[str, Served]
) -> None:
    """The group was parted anew: its ledger begins with 1 again, and has overtaken the reader."""
    ledger = engines["b"].ledger
    for _ in range(5):
        ledger.event("test", "of before")
    cursor = manager.ask("GET", "/v1/events?kind=test")[1]["cursor"]
    own = time.time() + 60.0 - engines["b"].world.time
    own_part("b", {"a": ("n1",), "b": ("m1",)}, lambda group, address: True)(ledger._db)
    ledger._db.execute("delete from events")
    ledger.event("test", "of long ago")  # a ledger may begin as a copy
    engines["b"].world.pass_time(own)
    for number in range(9):
        ledger.event("test", f"number {number}")
    told = []
    for _ in range(5):
        answer = manager.ask("GET", f"/v1/events?kind=test&limit=3&after={cursor}")[1]
        told += [each["message"] for each in answer["events"]]
        cursor = answer["cursor"]
    assert told == [f"number {number}" for number in range(9)]


@pytest.mark.parametrize("place", [True, False], ids=["a place", "no place"])
def test_an_engine_of_an_older_release_is_asked_by_numbers(
    manager: Managed, engines: dict[str, Served], monkeypatch: pytest.MonkeyPatch, place: bool
) -> None:
    cursor = manager.ask("GET", "/v1/events?kind=test")[1]["cursor"]
    if not place:
        cursor = ",".join(each for each in cursor.split(",") if not each.startswith("b:"))
    hands, targets = manager.entry._hands, list[str]()
    ask = hands.ask

    async def ask_older(group: str, request: Handed, **options: float) -> Any:
        if group != "b":
            return await ask(group, request, **options)
        targets.append(request.target)
        if "&after=" in request.target:
            error = RefusedError("the query has the key 'after', which this request does not have (it has: since)")
            error.status = 400
            raise error
        reply = await ask(group, request, **options)
        del reply["cursor"]
        return reply

    monkeypatch.setattr(hands, "ask", ask_older)
    engines["b"].world.pass_time(time.time() + 60.0 - engines["b"].world.time)
    engines["b"].ledger.event("test", "of b")
    first = manager.ask("GET", f"/v1/events?kind=test&after={cursor}")[1]
    assert [each["message"] for each in first["events"]] == ["of b"]
    assert ("&since=" in targets[1], "&from=" in targets[1]) == (place, not place)
    engines["b"].ledger.event("test", "of b again")
    then = manager.ask("GET", f"/v1/events?kind=test&after={first['cursor']}")[1]
    assert [each["message"] for each in then["events"]] == ["of b again"]


@pytest.mark.parametrize("since_s", [None, 3600.0], ids=["from now on", "since an hour ago"])
def test_a_group_that_was_never_heard_tells_later_what_its_clock_puts_before_the_first_question(
    manager: Managed, engines: dict[str, Served], since_s: float | None
) -> None:
    """The clock of its host is behind; or the reader has asked for what was before."""
    now = time.time()
    for name, behind in (("a", 0.0), ("b", 60.0 if since_s is None else since_s - 60.0)):
        engines[name].world.pass_time(now - behind - engines[name].world.time)
    place, away = Path(engines["b"].socket), Path(engines["b"].socket + ".away")
    place.rename(away)
    since = "" if since_s is None else f"&from={now - since_s:.0f}"
    first = manager.ask("GET", f"/v1/events?kind=test{since}")[1]
    assert first["silent"] == ["b"]
    engines["b"].ledger.event("test", "while it was silent")
    away.rename(place)
    then = manager.ask("GET", f"/v1/events?kind=test&after={first['cursor']}")[1]
    assert [each["message"] for each in then["events"]] == ["while it was silent"]


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
    cursor = manager.ask("GET", f"/v1/events?after=1,a:{2**30},b:0")[1]["cursor"]
    engines["a"].ledger.event("test", "after that")
    then = manager.ask("GET", f"/v1/events?kind=test&after={cursor}")[1]
    assert [each["message"] for each in then["events"]] == ["after that"]


def test_a_cursor_is_of_its_form_and_of_the_one_who_is_asked(manager: Managed, engines: dict[str, Served]) -> None:
    for wrong in ("x", "1,", "1,a", "1,a:-2", "-1", "1,a:2;b:3", "1:x", "1:0123abcd,a:2", "1,a:2:0123"):
        assert manager.ask("GET", f"/v1/events?after={wrong}")[0] == 400
    engines["a"].ledger.event("test", "of a")
    of_managers = manager.ask("GET", "/v1/events")[1]
    of_an_engine = engines["a"].ask("GET", "/v1/events")[1]["cursor"]
    times = (f"since={of_managers['events'][-1]['id']}", f"after={int(time.time() * 1e6)}")
    for place in ("after=1,a:2", f"after={of_managers['cursor']}", *times):
        status, answer = engines["a"].ask("GET", f"/v1/events?{place}")
        assert (status, answer["error"].partition(":")[0]) == (
            409,
            "this place in the events is of managers of groups, and one engine answers here",
        )
    for place in (f"after={of_an_engine}", "after=7", "after=0", "since=7"):
        status, answer = manager.ask("GET", f"/v1/events?{place}")
        assert (status, answer["error"].partition(":")[0]) == (
            409,
            "this place in the events is of one engine, and managers of groups answer here",
        )
    assert manager.ask("GET", "/v1/events?since=0")[0] == 200


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


@pytest.mark.parametrize(("place", "more"), [("7", ()), ("7:0123abcd", ()), ("7:0123abcd", ("--follow",))])
def test_the_command_refuses_a_place_that_one_engine_has_given(
    manager: Managed, tmp_path: Path, place: str, more: tuple[str, ...]
) -> None:
    settings = tmp_path / "site.toml"
    settings.write_text(f'[engine]\nsocket = "{manager.socket}"\n[slurm]\n')
    words = [PROGRAM, "events", "--config", str(settings), "--since", place, *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    said = "rmsplugin events: this place in the events is of one engine, and managers of groups answer here"
    assert (done.stderr[: len(said)], done.stderr.count("\n")) == (said, 1)


def test_the_command_takes_the_number_and_the_cursor_of_managers(
    manager: Managed, engines: dict[str, Served], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "site.toml"
    settings.write_text(f'[engine]\nsocket = "{manager.socket}"\n[slurm]\n')
    engines["a"].world.pass_time(time.time() - engines["a"].world.time)
    engines["a"].ledger.event("test", "the first")
    first = manager.ask("GET", "/v1/events?kind=test")[1]
    for _ in range(3):
        engines["a"].world.pass_time(1.0)
        engines["a"].ledger.event("test", "later")
    words = ["events", "--config", str(settings), "--noheader", "--format=message", "--kind=test"]
    for place in (str(first["events"][0]["id"]), first["cursor"]):
        assert main([*words, "--since", place]) == 0
        assert capsys.readouterr().out == "later\n" * 3
    assert main([*words, "--since", first["cursor"], "-n", "2"]) == 0
    assert capsys.readouterr().err == "rmsplugin events: only the oldest 2 events are shown; see --limit\n"
