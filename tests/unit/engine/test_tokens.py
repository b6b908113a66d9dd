"""How many steps may be under way at the same time."""

from __future__ import annotations

import pytest

from rmsplugin.engine.execute.tokens import Use, are_free, use_of
from rmsplugin.engine.ledger.rows import OperationKind, Step, StepState
from rmsplugin.settings.deciding import Tokens

K = OperationKind
LIMITS = Tokens(boots=8, saves=4, restores=4, migrations=2, transfers=6)


def step(kind: OperationKind, **hosts: str) -> Step:
    return Step(1, 1, "1", kind, hosts, "", StepState.PLANNED, 0, "", 0.0, 0.0)


def test_a_suspend_uses_the_nodes_that_its_vms_leave_and_a_resume_those_that_they_come_to() -> None:
    assert use_of(step(K.SUSPEND), {"a": "n1", "b": "n1"}) == Use(K.SUSPEND, {"n1": 2}, {})
    assert use_of(step(K.RESUME, a="n2"), {}) == Use(K.RESUME, {}, {"n2": 1})


def test_a_migration_uses_both_of_its_nodes_and_none_of_vms_that_stay() -> None:
    assert use_of(step(K.MIGRATE, a="n2"), {"a": "n1", "b": "n3"}) == Use(K.MIGRATE, {"n1": 1}, {"n2": 1})


@pytest.mark.parametrize(("there", "free"), [(2, True), (3, False)])
def test_each_node_has_its_tokens(there: int, free: bool) -> None:
    under_way = [Use(K.SUSPEND, {"n1": there}, {})]
    assert are_free(LIMITS, under_way, Use(K.SUSPEND, {"n1": 2}, {})) is free
    assert are_free(LIMITS, under_way, Use(K.SUSPEND, {"n2": 2}, {}))
    assert are_free(LIMITS, under_way, Use(K.RESUME, {}, {"n1": 3}))


def test_migrations_from_and_to_a_node_are_counted_apart() -> None:
    under_way = [Use(K.MIGRATE, {"n1": 2}, {"n2": 2})]
    assert not are_free(LIMITS, under_way, Use(K.MIGRATE, {"n3": 1}, {"n2": 1}))
    assert not are_free(LIMITS, under_way, Use(K.MIGRATE, {"n1": 1}, {"n3": 1}))
    assert are_free(LIMITS, under_way, Use(K.MIGRATE, {"n2": 1}, {"n1": 1}))


def test_a_vjob_with_more_vms_than_there_are_tokens_takes_them_all() -> None:
    large = Use(K.SUSPEND, {"n1": 9}, {})
    assert are_free(LIMITS, [], large)
    assert not are_free(LIMITS, [Use(K.SUSPEND, {"n1": 1}, {})], large)
    assert not are_free(LIMITS, [large], Use(K.SUSPEND, {"n1": 1}, {}))


def test_the_cluster_has_tokens_for_what_moves_memory_and_boots_take_none_of_them() -> None:
    under_way = [Use(K.SUSPEND, {"n1": 3}, {}), Use(K.MIGRATE, {"n2": 1}, {"n3": 1}), Use(K.START, {}, {"n4": 8})]
    assert are_free(LIMITS, under_way, Use(K.RESUME, {}, {"n5": 2}))
    assert not are_free(LIMITS, under_way, Use(K.RESUME, {}, {"n5": 3}))
    assert are_free(LIMITS, under_way, Use(K.START, {}, {"n5": 8}))


def test_pauses_and_their_ends_wait_for_nobody_and_take_nothing() -> None:
    full = [Use(K.SUSPEND, {"n1": 4}, {}), Use(K.RESUME, {}, {"n1": 4})]
    for kind in (K.PAUSE, K.UNPAUSE):
        use = use_of(step(kind, a="n1"), {"a": "n1"})
        assert are_free(LIMITS, full, use)
        assert are_free(LIMITS, [use], Use(K.SUSPEND, {"n1": 9}, {}))
