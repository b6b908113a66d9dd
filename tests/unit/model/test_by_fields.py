"""Values that are pickled by their fields come out of a pickle as they went in."""

from __future__ import annotations

import pickle
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.model.by_fields import ByFields
from rmsplugin.model.elements import SHARED, VM, Node, NodeState, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState

DEMAND = Resources(1.5, 512)
VALUES = (
    DEMAND,
    Node("n1", Resources(8, 4096), NodeState.DRAINING),
    VM("a0", DEMAND),
    running_on("n1"),
    sleeping_on(SHARED),
    VJob(
        "a",
        (VM("a0", DEMAND), VM("a1", DEMAND)),
        False,
        VJobState.SLEEPING,
        allowing(frozenset({"n1"}), frozenset({"n2"})),
        *(3, 60.0, 4.0, 5.0, 6.0, 7.0, 8),
        *("somebody", True, True, True, True),
    ),
    Reason(ReasonCode.NO_ROOM, "there is no room", {"cpus": 2}),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_pickled_with_each_of_its_fields(value: object) -> None:
    assert pickle.loads(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)) == value


def test_one_object_stays_one() -> None:
    vms = pickle.loads(pickle.dumps((VM("a", DEMAND), VM("b", DEMAND)), protocol=pickle.HIGHEST_PROTOCOL))
    assert vms[0].demand is vms[1].demand


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_class_is_made_of_its_fields_in_their_order(value: ByFields) -> None:
    kind: Any = type(value)
    assert [each.name for each in fields(kind)] == list(signature(kind).parameters)
