"""The ledger: transitions, operations, upgrades from older schemas, and what survives a kill -9."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils
from fresh_ledger import laid_down
from sqlite_utils import Migrations

from rmsplugin.engine.ledger import migrations as schema
from rmsplugin.engine.ledger.failures import FailureCode
from rmsplugin.engine.ledger.ledger import Ledger, Subject
from rmsplugin.engine.ledger.rows import OperationKind, Outcome, VJobRow, VMRow
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.model import vm_phase
from rmsplugin.model.vjob import TRANSITIONS, Geometry, IllegalTransitionError, VJobState
from rmsplugin.model.vm_phase import IllegalPhaseError, VMPhase


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    opened = Ledger(laid_down(tmp_path / "ledger.sqlite"), clock=clock)
    yield opened
    opened.close()


def vjob(job_id: int = 12, **changes: object) -> VJobRow:
    values: dict[str, object] = {
        "job_id": job_id,
        "display_id": str(job_id),
        "user": "alice",
        "uid": 2001,
        "partition": "vjob",
        "geometry": Geometry(2, 1, 512),
        "state": VJobState.WAITING,
        "reason": "new",
        "submitted": 100.0,
        "state_since": 100.0,
        "private_key": "SECRET",
    }
    return VJobRow(**{**values, **changes})  # type: ignore[arg-type]


#: The places and the phase of a VM that is in its saved state, of which its host has nothing.
SAVED = {"phase": VMPhase.SAVED, "host": "", "image_node": "n2", "image_bytes": 5, "image_blake2b": "d"}


def vm(job_id: int = 12, index: int = 0, **changes: object) -> VMRow:
    values: dict[str, object] = {
        "name": f"vjob{job_id}-{index}",
        "job_id": job_id,
        "idx": index,
        "uuid": "u",
        "mac": "m",
        "address": "10.0.0.10",
        "host": "n1",
        "memory_mib": 512,
    }
    return VMRow(**{**values, **changes})  # type: ignore[arg-type]


def test_the_file_is_for_its_owner_only(tmp_path: Path, ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_secrets_do_not_show_in_messages(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    assert ledger.vjob(12).private_key == "SECRET"
    assert "SECRET" not in repr(ledger.vjob(12))


def test_rows_come_back_as_they_went_in(ledger: Ledger) -> None:
    row = vjob(display_id="10_2", script_started=True, losses=3, restarts=1, public_key="p")
    ledger.add_vjob(row)
    machines = [vm(touched=("n1", "n2"), booted_on="n1", **SAVED), vm(index=1)]
    ledger.set_vms(12, machines)
    assert ledger.vjob(12) == row
    assert ledger.find_vjob("10_2") == ledger.find_vjob("12") == row
    assert ledger.vms(12) == machines


def test_what_is_known_stays_at_the_second_sight(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    ledger.add_vjob(vjob(submitted=999.0))
    assert ledger.vjob(12).submitted == 100.0


def test_what_is_not_there_is_said(ledger: Ledger) -> None:
    for ask in (lambda: ledger.vjob(1), lambda: ledger.find_vjob("1_2"), lambda: ledger.operation(1)):
        with pytest.raises(NotFoundError):
            ask()


def test_vjobs_come_in_order_of_first_submission_and_ended_ones_when_asked_for(ledger: Ledger) -> None:
    ledger.add_vjob(vjob(3, submitted=5.0))
    ledger.add_vjob(vjob(2, submitted=9.0))
    ledger.add_vjob(vjob(1, submitted=1.0, state=VJobState.TERMINATED))
    assert [row.job_id for row in ledger.vjobs()] == [3, 2]
    assert [row.job_id for row in ledger.vjobs(ended=True)] == [1, 3, 2]


@pytest.mark.parametrize("source", VJobState)
@pytest.mark.parametrize("target", VJobState)
def test_only_the_moves_of_the_life_cycle_are_made(
    ledger: Ledger, clock: Clock, source: VJobState, target: VJobState
) -> None:
    ledger.add_vjob(vjob(state=source))
    clock.now = 2000.0
    if source is target:
        assert ledger.transition(12, target, "again").state_since == 100.0
    elif (source, target) in TRANSITIONS:
        row = ledger.transition(12, target, "because", losses=7)
        assert (row.state, row.reason, row.state_since, row.losses) == (target, "because", 2000.0, 7)
        (event,) = ledger.events()
        assert (event.vjob, event.kind, event.message, event.time) == ("12", f"vjob-{target}", "because", 2000.0)
    else:
        with pytest.raises(IllegalTransitionError):
            ledger.transition(12, target, "because", losses=7)
        assert ledger.vjob(12) == vjob(state=source)
        assert ledger.events() == []


def test_a_state_changes_by_transition_only(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    with pytest.raises(AssertionError):
        ledger.update_vjob(12, state="running")
    ledger.update_vjob(12, script_started=True)
    assert ledger.vjob(12).script_started


def test_live_vms_are_those_of_now_after_a_change_in_a_transaction_and_after_one_that_is_undone(ledger: Ledger) -> None:
    def hosts() -> list[str]:
        return [row.host for row in ledger.live_vms()]

    ledger.add_vjob(vjob())
    ledger.set_vms(12, [vm()])
    assert hosts() == []
    ledger.transition(12, VJobState.STARTING, "it fits")
    assert hosts() == ["n1"]
    ledger.enter_phase("vjob12-0", VMPhase.PLACED, host="n2")
    assert hosts() == ["n2"]
    with pytest.raises(KeyError), ledger.transaction():
        ledger.enter_phase("vjob12-0", VMPhase.PLACED, host="n3")
        assert hosts() == ["n3"]
        raise KeyError
    assert hosts() == ["n2"]


def test_a_change_of_what_is_not_there_is_refused(ledger: Ledger) -> None:
    with pytest.raises(NotFoundError, match="vms"):
        ledger.update_vm("vjob12-0", centi_cpus=1)
    with pytest.raises(NotFoundError, match="no VM vjob12-0"):
        ledger.enter_phase("vjob12-0", VMPhase.PLACED)


def test_live_vms_are_those_of_live_vjobs(ledger: Ledger) -> None:
    for job_id, state in enumerate(VJobState, start=1):
        ledger.add_vjob(vjob(job_id, state=state))
        ledger.set_vms(job_id, [vm(job_id)])
    live = {row.job_id for row in ledger.live_vms()}
    assert live == {job_id for job_id, state in enumerate(VJobState, start=1) if state.is_live}


PLACES_OF = {
    "host": "n1",
    "destination": "n3",
    "image_node": "n2",
    "image_bytes": 5,
    "image_blake2b": "d",
}


def in_phase(ledger: Ledger, phase: VMPhase) -> VMRow:
    """A VM in ``phase``, with the places that belong to it, which came there by edges of the table only."""
    ways: dict[VMPhase, list[VMPhase]] = {VMPhase.PLACED: []}
    while phase not in ways:
        for source, target in vm_phase.TRANSITIONS:
            if source in ways and target not in ways:
                ways[target] = [*ways[source], target]
    ledger.set_vms(12, [vm()])
    for each in ways[phase]:
        ledger.enter_phase("vjob12-0", each, **places_of(each))
    return ledger.vms(12)[0]


def places_of(phase: VMPhase) -> dict[str, object]:
    return {name: place for name, place in PLACES_OF.items() if name in vm_phase.HAS[phase]}


@pytest.mark.parametrize("source", VMPhase)
@pytest.mark.parametrize("target", VMPhase)
def test_a_vm_takes_only_the_steps_of_the_table_of_its_phases(ledger: Ledger, source: VMPhase, target: VMPhase) -> None:
    ledger.add_vjob(vjob())
    before = in_phase(ledger, source)
    assert before.phase is source
    if source is target or (source, target) in vm_phase.TRANSITIONS:
        assert ledger.enter_phase(before.name, target, **places_of(target)).phase is target
        return
    with pytest.raises(IllegalPhaseError, match=f"vjob12-0 is {source} and cannot become {target}"):
        ledger.enter_phase(before.name, target, **places_of(target))
    assert ledger.vms(12) == [before]


@pytest.mark.parametrize("phase", VMPhase)
def test_a_vm_has_the_places_of_its_phase_and_no_others(ledger: Ledger, phase: VMPhase) -> None:
    ledger.add_vjob(vjob())
    row = in_phase(ledger, phase)
    assert {name: getattr(row, name) for name in PLACES_OF if getattr(row, name)} == places_of(phase)
    assert ledger.enter_phase(row.name, phase, **PLACES_OF) == row, "a place of another phase was kept"
    for place in vm_phase.HAS[phase] - {"image_bytes"}:
        with pytest.raises(IllegalPhaseError, match=f"cannot be {phase} without {place}"):
            ledger.enter_phase(row.name, phase, **{place: ""})
    assert ledger.vms(12) == [row]


@pytest.mark.parametrize("phase", VMPhase)
def test_a_vm_begins_in_the_phases_that_the_table_says(ledger: Ledger, phase: VMPhase) -> None:
    ledger.add_vjob(vjob())
    row = vm(phase=phase, **{"host": "", **places_of(phase)})
    if (None, phase) in vm_phase.TRANSITIONS:
        ledger.set_vms(12, [row])
        assert ledger.vms(12) == [row]
        return
    with pytest.raises(IllegalPhaseError, match=f"vjob12-0 is new and cannot become {phase}"):
        ledger.set_vms(12, [row])


@pytest.mark.parametrize("column", ["phase", "booted_on", *vm_phase.PLACES])
def test_places_of_a_vm_change_with_its_phase_only(ledger: Ledger, column: str) -> None:
    ledger.add_vjob(vjob())
    ledger.set_vms(12, [vm()])
    with pytest.raises(AssertionError, match="enter_phase"):
        ledger.update_vm("vjob12-0", **{column: "n2"})


def test_the_node_where_a_vm_was_booted_may_have_something_of_it_and_does_not_change(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    ledger.set_vms(12, [vm()])
    ledger.enter_phase("vjob12-0", VMPhase.BOOTING)
    ledger.enter_phase("vjob12-0", VMPhase.LIVE)
    row = ledger.enter_phase("vjob12-0", VMPhase.LIVE, host="n2")
    assert (row.touched, row.booted_on, row.host) == (("n1",), "n1", "n2")


def test_a_node_is_touched_once(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    ledger.set_vms(12, [vm()])
    for node in ("n1", "n2", "n1"):
        ledger.touch("vjob12-0", node)
    assert ledger.vms()[0].touched == ("n1", "n2")


def test_one_operation_at_a_time_for_each_vjob(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    ledger.add_vjob(vjob(13))
    first = ledger.begin_operation(12, OperationKind.SUSPEND, "alice", {"to": "n2"})
    assert (first.arguments, first.state, first.requested_by) == ({"to": "n2"}, Outcome.RUNNING, "alice")
    with pytest.raises(RefusedError, match="vjob 12 is busy: suspend"):
        ledger.begin_operation(12, OperationKind.RESUME, "alice")
    ledger.begin_operation(13, OperationKind.STOP, "engine")
    ledger.end_operation(first.id, "no room")
    assert ledger.operation(first.id).state is Outcome.FAILED
    ledger.begin_operation(12, OperationKind.RESUME, "alice")
    assert [operation.kind for operation in ledger.running_operations()] == [OperationKind.STOP, OperationKind.RESUME]


def test_actions_end_with_their_operation(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    operation = ledger.begin_operation(12, OperationKind.SUSPEND, "alice")
    done = ledger.begin_action(operation.id, "suspend", "vjob12-0", "n1")
    ledger.action_progress(done, 50, 100)
    ledger.end_action(done)
    ledger.begin_action(operation.id, "suspend", "vjob12-1", "n1")
    ledger.end_operation(operation.id)
    first, second = ledger.actions(operation.id)
    assert (first.state, first.bytes_done, first.bytes_total) == (Outcome.DONE, 50, 100)
    assert (second.state, second.error) == (Outcome.FAILED, "interrupted")


def test_events_are_the_newest_oldest_first(ledger: Ledger) -> None:
    for number in range(5):
        ledger.event("note", f"m{number}", vjob="12" if number % 2 else "")
    assert [event.message for event in ledger.events(limit=2)] == ["m3", "m4"]
    assert [event.message for event in ledger.events(since=3)] == ["m3", "m4"]
    assert [event.message for event in ledger.events(vjob="12")] == ["m1", "m3"]


def test_a_subscriber_is_told_once_of_all_that_a_transaction_changed(ledger: Ledger) -> None:
    told: list[frozenset[Subject]] = []
    ledger.subscribe(told.append)
    ledger.add_vjob(vjob(12))
    operation = ledger.begin_operation(12, OperationKind.START, "engine")
    with ledger.transaction():
        ledger.transition(12, VJobState.STARTING, "there is room")
        ledger.add_vjob(vjob(13))
        ledger.end_operation(operation.id)
    ledger.event("note", "nothing changed")
    assert told == [
        frozenset({("vjob", 12)}),
        frozenset({("vjob", 12), ("vjob", 13), ("operation", operation.id)}),
    ]


def test_a_subscriber_sees_what_it_is_told_of(ledger: Ledger) -> None:
    seen: list[VJobState] = []
    ledger.add_vjob(vjob(12))
    ledger.subscribe(lambda changed: seen.append(ledger.vjob(12).state))
    with ledger.transaction():
        ledger.transition(12, VJobState.STARTING, "there is room")
    assert seen == [VJobState.STARTING]


def test_many_threads_write_at_once(ledger: Ledger) -> None:
    def write() -> None:
        for _ in range(50):
            ledger.event("note", "m")

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.events()) == 400


# -- upgrades ------------------------------------------------------------------------------------------------------


def old_ledger(path: Path, steps: int) -> None:
    """Make a ledger of an older version: its first ``steps`` migrations, and a vjob written as it wrote them."""
    older = Migrations(schema.migrations.name)
    for migration in schema.migrations.pending(sqlite_utils.Database(memory=True))[:steps]:
        older(name=migration.name)(migration.fn)
    db = sqlite_utils.Database(path)
    older.apply(db)
    columns = [column for column in db.table("vjobs").columns if column.notnull or column.is_pk]
    values: dict[str, object] = {column.name: 0 if column.type in ("INTEGER", "REAL") else "" for column in columns}
    values |= {"job_id": 12, "display_id": "12", "geometry": str(Geometry(1, 1, 64)), "state": "sleeping"}
    db.table("vjobs").insert(values)
    db.close()


def pending() -> list[Any]:
    return list(schema.migrations.pending(sqlite_utils.Database(memory=True)))


def steps() -> int:
    return len(pending())


@pytest.mark.parametrize("version", range(1, steps() + 1))
def test_every_older_ledger_is_upgraded_and_keeps_its_rows(tmp_path: Path, version: int) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    old_ledger(old, version)
    upgraded, fresh = Ledger(old), Ledger(new)
    try:
        assert upgraded.vjob(12).state is VJobState.SLEEPING
        assert upgraded.transition(12, VJobState.RESUMING, "on").state is VJobState.RESUMING
    finally:
        upgraded.close()
        fresh.close()
    assert columns_of(old) == columns_of(new)


def test_no_question_of_a_cycle_or_request_goes_through_all_that_was_ever_done(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    asked: list[str] = []
    ledger._db.conn.set_trace_callback(asked.append)
    started = ledger.begin_operation(12, OperationKind.START, "engine")
    ledger.end_action(ledger.begin_action(started.id, "run", "vjob12-0", destination="n1"))
    ledger.end_operation(started.id)
    for ask in (ledger.has_slept, ledger.starts, ledger.relocations, ledger.has_begun, ledger.handed.take_out):
        ask(12)
    ledger.last_arrival("vjob12-0", "n1")
    ledger.room_reports.clean_epilog("n1")
    ledger.running_operations()
    ledger.plans.running()
    ledger.plans.open_steps()
    ledger.plans.step_is_needless(started.id, "ended")
    ledger.prune(1e9)
    ledger._db.conn.set_trace_callback(None)
    tables = "operations|actions|steps|plans where state|room_reports where node"
    statements = [each for each in asked if re.match(f"(select|update|delete) .*({tables})", each)]
    assert len(statements) > 20
    plans = {each: [row[3] for row in ledger._db.execute(f"explain query plan {each}")] for each in statements}
    # An index has the few operations that run. Plans are pruned at night.
    allowed = ("SCAN operations USING INDEX operations_running", "SCAN plans")
    scanned = {
        each: plan for each, plan in plans.items() if any("SCAN" in step and step not in allowed for step in plan)
    }
    assert scanned == {}
    assert [each for each, plan in plans.items() if "SCAN plans" in plan and "delete" not in each] == []


def test_failures_of_an_older_release_have_the_code_that_their_error_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    old_ledger(path, [each.name for each in pending()].index("m020_codes_of_failures"))
    with closing(sqlite3.connect(path)) as db, db:
        for kind, error in (("start", "Slurm does not start it: Licenses"), ("resume", "no answer")):
            db.execute(
                "insert into vjob_failures (job_id, kind, failures, not_before, error) values (12, ?, 1, 0, ?)",
                [kind, error],
            )
    ledger = Ledger(path)
    found = {kind: failure.code for (_, kind), failure in ledger.failures.of_vjobs().items()}
    ledger.close()
    assert found == {"start": FailureCode.NOT_STARTED, "resume": FailureCode.OTHER}


def test_vms_of_an_older_release_are_as_large_as_what_was_requested_also_those_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old_ledger(path, [each.name for each in pending()].index("m012_memory_and_usage"))
    db = sqlite_utils.Database(path)
    columns = [column for column in db.table("vms").columns if column.notnull or column.is_pk]
    row: dict[str, object] = {column.name: 0 if column.type == "INTEGER" else "" for column in columns}
    row |= {"name": "vjob12-0", "job_id": 12, "touched": "[]"}
    db.table("vms").insert(row)
    columns = [column for column in db.table("asides").columns if column.notnull]
    aside: dict[str, object] = {column.name: 0 if column.type in ("INTEGER", "REAL") else "" for column in columns}
    everything = {column.name: row.get(column.name) for column in db.table("vms").columns}
    db.table("asides").insert({**aside, "job_id": 12, "vms": json.dumps([everything])})
    db.close()
    upgraded = Ledger(path)
    try:
        assert [vm.memory_mib for vm in upgraded.vms()] == [64]
        assert [vm.memory_mib for aside in upgraded.set_aside.of_vjob(12) for vm in aside.vms] == [64]
    finally:
        upgraded.close()


#: State of the vjob, the places of its VM as an older release left them, and the phase that they told.
OLD_PHASES = [
    ("starting", {"host": "n1"}, VMPhase.PLACED),
    ("starting", {"host": "n1", "touched": '["n1"]'}, VMPhase.BOOTING),
    ("running", {"host": "n2", "touched": '["n1", "n2"]'}, VMPhase.LIVE),
    ("running", {"host": "n1", "touched": '["n1"]', "destination": "n3"}, VMPhase.MIGRATING),
    ("suspending", {"host": "n1", "touched": '["n1"]'}, VMPhase.LIVE),
    ("suspending", {"host": "n1", "touched": '["n1"]', "image_node": "n1"}, VMPhase.SEALING),
    ("suspending", {"host": "n1", "touched": '["n1"]', "image_node": "n1", "image_blake2b": "d"}, VMPhase.SEALED),
    ("suspending", {"host": "n1", "touched": '["n1"]', "image_blake2b": "d"}, VMPhase.LIVE),
    ("sleeping", {"touched": '["n1"]', "image_node": "n1", "image_blake2b": "d"}, VMPhase.SAVED),
    ("sleeping", {"touched": '["n1"]', "image_node": "n1", "image_blake2b": "d", "destination": "n3"}, VMPhase.MOVING),
    ("resuming", {"host": "n2", "touched": '["n1"]', "image_node": "n1", "image_blake2b": "d"}, VMPhase.RESTORING),
    ("resuming", {"host": "n2", "touched": '["n1"]'}, VMPhase.LIVE),
    ("stopping", {"host": "n2", "touched": '["n1"]', "image_node": "n1", "image_blake2b": "d"}, VMPhase.SEALED),
    ("stopping", {"touched": '["n1"]'}, VMPhase.LOST),
]


@pytest.mark.parametrize(("state", "places", "phase"), OLD_PHASES)
def test_vms_of_an_older_release_are_in_the_phase_that_their_places_told(
    tmp_path: Path, state: str, places: dict[str, str], phase: VMPhase
) -> None:
    path = tmp_path / "old.sqlite"
    old_ledger(path, [each.name for each in pending()].index("m022_phases_of_vms"))
    row = old_row("vms", path) | {"name": "vjob12-0", "job_id": 12, "touched": "[]", **places}
    aside = old_row("asides", path) | {"job_id": 12, "vms": json.dumps([row])}
    with closing(sqlite_utils.Database(path)) as db:
        db.execute("update vjobs set state = ?", [state])
        db.table("vms").insert(row)
        db.table("asides").insert(aside)
    upgraded = Ledger(path)
    try:
        [found] = upgraded.vms()
        [[put_aside]] = [each.vms for each in upgraded.set_aside.of_vjob(12)]
        # Its row is one that this release could have written, and goes on from there.
        assert upgraded.enter_phase("vjob12-0", phase) == found
    finally:
        upgraded.close()
    assert (found.phase, found.booted_on) == (phase, json.loads(row["touched"])[0] if found.touched else "")
    assert all(getattr(found, place) == places[place] for place in vm_phase.HAS[phase] - {"image_bytes"})
    assert put_aside.phase.in_file == phase.in_file


def old_row(table: str, path: Path) -> dict[str, Any]:
    """A row of an older ledger in which everything is empty or 0."""
    with closing(sqlite_utils.Database(path)) as db:
        columns = [column for column in db.table(table).columns if column.notnull or column.is_pk]
    numbers = ("INTEGER", "REAL")
    return {column.name: 0 if column.type in numbers else "" for column in columns if column.name != "id"}


def test_samples_by_the_minute_are_of_its_end_after_an_upgrade(tmp_path: Path) -> None:
    """They were seen in that minute: none becomes older than the run that it is of."""
    path = tmp_path / "old.sqlite"
    old_ledger(path, 8)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("insert into samples values ('vjob12-0', ?, 50, null)", [(120,), (180,)])
    upgraded = Ledger(path)
    try:
        assert [sample.time for sample in upgraded.samples.of("vjob12-0")] == [179, 239]
    finally:
        upgraded.close()


def columns_of(path: Path) -> dict[str, list[str]]:
    db = sqlite_utils.Database(path)
    found = {name: sorted(column.name for column in db.table(name).columns) for name in db.table_names()}
    db.close()
    return found


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = Ledger(path)
    first.add_vjob(vjob())
    first.close()
    second = Ledger(path)
    assert second.vjob(12) == vjob()
    second.close()


# -- crashes -------------------------------------------------------------------------------------------------------

_WRITER = """
import sys
from pathlib import Path
from rmsplugin.engine.ledger.failures import FailureCode
from rmsplugin.engine.ledger.ledger import Ledger, Subject
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState
ledger = Ledger(Path(sys.argv[1]))
while True:
    for target in (VJobState.STARTING, VJobState.WAITING):
        operation = ledger.begin_operation(12, OperationKind.START, "engine")
        ledger.begin_action(operation.id, "run", "vjob12-0", destination="n1")
        row = ledger.transition(12, target, "r", losses=ledger.vjob(12).losses + 1)
        ledger.end_operation(operation.id)
        print(row.losses, flush=True)  # committed from here on
"""


def test_a_kill_in_the_middle_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    opened = Ledger(path)
    opened.add_vjob(vjob())
    opened.close()
    for delay_s in (0.0, 0.01, 0.03, 0.07):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        os.kill(process.pid, signal.SIGKILL)
        promised = [int(line) for line in process.communicate()[0].splitlines() if line.strip()]
        opened = Ledger(path)
        row = opened.vjob(12)
        events = [event for event in opened.events(limit=10**6) if event.kind.startswith("vjob-")]
        # A transition is whole or not at all: state, counter and event come together.
        assert len(events) == row.losses
        assert row.losses >= max(promised, default=1)
        assert events[-1].kind == f"vjob-{row.state}"
        # What was under way is found again, and at most one operation was.
        under_way = opened.running_operations()
        assert len(under_way) <= 1
        for operation in under_way:
            opened.end_operation(operation.id, "killed")
        if row.state is VJobState.STARTING:
            opened.transition(12, VJobState.WAITING, "r", losses=row.losses + 1)
        opened.close()


_HALF_WAY = """
import sys, time
from pathlib import Path
from rmsplugin.engine.ledger.failures import FailureCode
from rmsplugin.engine.ledger.ledger import Ledger, Subject
from rmsplugin.model.vjob import VJobState
def linger(*arguments, **more):
    print("half way", flush=True)
    time.sleep(60)
Ledger._event = linger
Ledger(Path(sys.argv[1])).transition(12, VJobState.STARTING, "room")
"""


def test_a_kill_inside_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    opened = Ledger(path)
    opened.add_vjob(vjob())
    opened.close()
    process = subprocess.Popen([sys.executable, "-c", _HALF_WAY, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half way\n"
    process.kill()
    process.communicate()
    opened = Ledger(path)
    assert opened.vjob(12) == vjob()
    assert opened.transition(12, VJobState.STARTING, "room").state is VJobState.STARTING
    opened.close()


def test_a_transaction_that_fails_half_way_leaves_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise OSError("disk full")

    ledger.add_vjob(vjob())
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_event", fail)
        with pytest.raises(OSError, match="disk full"):
            ledger.transition(12, VJobState.STARTING, "room")
    assert ledger.vjob(12) == vjob()


def test_a_statement_that_fails_leaves_nothing(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    with pytest.raises(Exception, match="no such column"):
        ledger.transition(12, VJobState.STARTING, "room", no_such_column=1)
    assert ledger.vjob(12) == vjob()
    assert ledger.events() == []


def test_pruning_forgets_what_ended_long_ago_and_nothing_else(ledger: Ledger, clock: Clock) -> None:
    for job_id, state in ((1, VJobState.TERMINATED), (2, VJobState.SLEEPING), (3, VJobState.TERMINATED)):
        ledger.add_vjob(vjob(job_id, state=state, state_since=5000.0 if job_id == 3 else 100.0))
        operation = ledger.begin_operation(job_id, OperationKind.STOP, "root")
        ledger.begin_action(operation.id, "stop", f"vjob{job_id}-0")
        ledger.end_operation(operation.id)
    ledger.event("old", "long ago")
    clock.now = 4000.0
    ledger.event("new", "just now")
    assert ledger.prune(2000.0) == 1
    assert [row.job_id for row in ledger.vjobs(ended=True)] == [2, 3]
    assert [event.kind for event in ledger.events()] == ["new"]
    assert [ledger.operation(number).job_id for number in (2, 3)] == [2, 3]
    with pytest.raises(NotFoundError):
        ledger.operation(1)


def test_numbers_of_events_go_on_where_all_were_old(ledger: Ledger, clock: Clock) -> None:
    """Whoever reads on from a number would wait until there are as many again."""
    for number in range(3):
        ledger.event("old", f"number {number}")
    last = ledger.newest_event()
    clock.now += 4000.0
    ledger.prune(clock.now)
    ledger.event("new", "just now")
    assert [event.kind for event in ledger.events(since=last)] == ["new"]


def test_named_vjobs_are_found_in_whatever_state_however_many(ledger: Ledger) -> None:
    for job_id in range(1, 1203):
        ledger.add_vjob(vjob(job_id, state=VJobState.TERMINATED if job_id % 2 else VJobState.WAITING))
    assert set(ledger.vjobs_among(range(1, 2000))) == set(range(1, 1203))
    assert ledger.vjobs_among([]) == {}


def test_vjobs_that_were_read_before_show_every_change_and_nothing_that_was_undone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "kept.sqlite")
    ledger.add_vjob(vjob(1))
    assert [each.state for each in ledger.vjobs()] == [VJobState.WAITING]
    with pytest.raises(ZeroDivisionError), ledger.transaction():
        ledger.transition(1, VJobState.STARTING, "told")
        ledger.add_vjob(vjob(2))
        assert [(each.job_id, each.state) for each in ledger.vjobs()] == [
            (1, VJobState.STARTING),
            (2, VJobState.WAITING),
        ]
        assert set(ledger.vjobs_among([1, 2])) == {1, 2}
        raise ZeroDivisionError
    assert [(each.job_id, each.state) for each in ledger.vjobs()] == [(1, VJobState.WAITING)]
    assert set(ledger.vjobs_among([1, 2])) == {1}
    ledger.update_vjob(1, reason="another")
    assert ledger.vjobs()[0].reason == "another"
    ledger.transition(1, VJobState.TERMINATED, "ended")
    assert ledger.vjobs() == []
    assert set(ledger.vjobs_among([1])) == {1}
    ledger.close()


# What is asked again.


def statements(ledger: Ledger, ask: Callable[[], object]) -> int:
    """The number of statements that the database sees while ``ask`` is called."""
    seen: list[str] = []
    ledger._db.conn.set_trace_callback(seen.append)
    try:
        ask()
    finally:
        ledger._db.conn.set_trace_callback(None)
    return len(seen)


def ask_all(ledger: Ledger) -> tuple[VJobRow, list[VMRow], object]:
    return ledger.vjob(12), ledger.vms(12), ledger.nodes.gone()


def test_what_is_asked_again_is_read_again_only_when_something_has_changed(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    first = ask_all(ledger)
    assert statements(ledger, lambda: ask_all(ledger)) == 0
    assert ask_all(ledger) == first
    ledger.update_vjob(12, reason="another")
    ledger.nodes.set_gone("n1", "root")
    assert ledger.vjob(12).reason == "another"
    assert list(ledger.nodes.gone()) == ["n1"]
    assert statements(ledger, lambda: ask_all(ledger)) == 1, "the VMs were not asked for since the last change"


def test_a_change_that_is_undone_is_seen_by_its_transaction_and_not_after_it(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    assert ledger.vjob(12).reason == "new"
    with pytest.raises(ZeroDivisionError), ledger.transaction():
        ledger.update_vjob(12, reason="undone")
        assert ledger.vjob(12).reason == "undone"
        raise ZeroDivisionError
    assert ledger.vjob(12).reason == "new"


def test_what_was_read_is_the_readers_to_change(ledger: Ledger) -> None:
    ledger.add_vjob(vjob())
    ledger.vms(12).append(None)  # type: ignore[arg-type]
    assert ledger.vms(12) == []
