"""Failures in a row: how long the next attempt waits, and when a node rests; and how several errors are told as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fresh_ledger import laid_down

from rmsplugin.assessment.back_off import pause_s
from rmsplugin.engine.execute.task import combined, sentence_of
from rmsplugin.engine.ledger.failures import FailureCode, node_rest_s
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.errors import LostStateError, NoSpaceError, OperationFailedError, RmspluginError, UnavailableError
from rmsplugin.model.vjob import Geometry, VJobState

NOW = 1000.0


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = NOW

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


def vjob(job_id: int, state: VJobState = VJobState.WAITING) -> VJobRow:
    return VJobRow(job_id, str(job_id), "alice", 2001, "vjob", Geometry(1, 1, 64), state, "", 1.0, 1.0)


def test_pauses_double_from_one_second_to_five_minutes() -> None:
    assert [pause_s(n) for n in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert [pause_s(n, 60.0) for n in (6, 7, 10_000)] == [32, 60, 60]


def test_a_node_rests_from_the_third_failure_on() -> None:
    assert [node_rest_s(n) for n in (0, 1, 2, 3, 4, 5, 6, 10_000)] == [0, 0, 0, 60, 120, 240, 300, 300]


def test_each_kind_of_each_vjob_counts_for_itself_until_it_goes_well(ledger: Ledger, clock: Clock) -> None:
    failures = ledger.failures
    failures.vjob_failed(1, "start", "first")
    failures.vjob_failed(1, "stop", "other")
    failures.vjob_failed(2, "start", "other")
    clock.now += 10
    failures.vjob_failed(1, "start", "second")
    known = failures.of_vjobs()
    assert {key: (each.failures, each.not_before, each.error) for key, each in known.items()} == {
        (1, "start"): (2, NOW + 12, "second"),
        (1, "stop"): (1, NOW + 1, "other"),
        (2, "start"): (1, NOW + 1, "other"),
    }
    failures.vjob_done(1, "start")
    assert failures.of_vjob(1, "start") is None
    assert set(failures.of_vjobs()) == {(1, "stop"), (2, "start")}


def test_a_failure_is_found_by_its_code_and_by_nothing_that_its_error_says(ledger: Ledger) -> None:
    failures = ledger.failures
    for job_id, code in ((1, FailureCode.OTHER), (2, FailureCode.NOT_STARTED)):
        ledger.add_vjob(replace(vjob(job_id), user=f"user{job_id}"))
        failures.vjob_failed(job_id, "start", "Slurm does not start it: said by somebody", code=code)
    assert not failures.any_of_user("user1", "start", FailureCode.NOT_STARTED)
    assert failures.any_of_user("user2", "start", FailureCode.NOT_STARTED)
    assert not failures.any_of_user("user2", "stop", FailureCode.NOT_STARTED)
    known = failures.of_vjob(2, "start")
    assert known is not None and known.code is FailureCode.NOT_STARTED


def test_a_node_rests_by_kind_until_its_time_is_over_or_something_goes_well(ledger: Ledger, clock: Clock) -> None:
    failures = ledger.failures
    assert failures.node_failed("n1", "run", "alice", "a") is None
    assert failures.node_failed("n1", "run", "bob", "b") is None
    assert failures.node_failed("n2", "run", "bob", "b") is None
    clock.now += 5
    rest = failures.node_failed("n1", "run", "alice", "c")
    assert rest is not None
    assert (rest.node, rest.kind, rest.failures, rest.until, rest.error) == ("n1", "run", 3, NOW + 65, "c")
    assert failures.resting() == {"run": {"n1"}}
    clock.now += 60
    assert failures.resting() == {}
    rest = failures.node_failed("n1", "run", "alice", "d")
    assert rest is not None, "the first attempt after its rest counts on"
    assert rest.until == clock.now + 120
    assert failures.node_done("n1", "run")
    assert not failures.node_done("n1", "run")
    assert failures.resting() == {}


def test_what_a_vjob_itself_may_be_to_blame_for_counts_once_for_each_user(ledger: Ledger) -> None:
    failures = ledger.failures
    for _ in range(10):
        assert failures.node_failed("n1", "run", "alice", "guest", once=True) is None
    assert failures.node_failed("n1", "run", "bob", "guest", once=True) is None
    assert failures.node_failed("n1", "run", "carol", "guest", once=True) is not None


def test_counts_outlive_the_engine_and_go_with_their_vjobs(tmp_path: Path, ledger: Ledger, clock: Clock) -> None:
    ledger.add_vjob(vjob(1, VJobState.TERMINATED))
    ledger.add_vjob(vjob(2, VJobState.TERMINATED))
    for job_id in (1, 2):
        ledger.failures.vjob_failed(job_id, "stop", "no")
    ledger.failures.node_failed("n1", "run", "alice", "no")
    ledger.renew_vjob(vjob(2))
    again = Ledger(tmp_path / "ledger.sqlite", clock=clock)
    assert set(again.failures.of_vjobs()) == {(1, "stop")}
    again.prune(before=NOW + 1)
    assert again.failures.of_vjobs() == {}
    assert again.failures.node_done("n1", "run") is False
    assert again._rows("select * from node_failures") == []
    again.close()


def test_of_several_errors_all_are_told_the_same_ones_once() -> None:
    space = NoSpaceError("no space on n1")
    errors: dict[str, RmspluginError] = {"a-0": space, "a-1": UnavailableError("n2 is silent"), "a-2": space}
    assert sentence_of(errors) == "a-0, a-2: no space on n1; a-1: n2 is silent"
    assert str(combined(errors)) == sentence_of(errors)
    many: dict[str, RmspluginError] = {f"a-{n}": OperationFailedError(f"error {n}") for n in range(11)}
    assert sentence_of(many).endswith("a-7: error 7; and 3 more errors")


def test_several_errors_are_a_loss_if_one_of_them_is() -> None:
    silent, lost = UnavailableError("silent"), LostStateError("lost")
    assert combined({"a-0": silent}) is silent
    assert type(combined({"a-0": silent, "a-1": lost})) is LostStateError
    assert type(combined({"a-0": silent, "a-1": silent})) is UnavailableError
    assert type(combined({"a-0": silent, "a-1": NoSpaceError("full")})) is OperationFailedError
