"""Values that are made at once are those that Python's own constructor makes."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.adapters.platform.base import VMInfo, VMStatistics
from rmsplugin.adapters.rms.base import RmsJob, RmsNode
from rmsplugin.assessment.facts import VMFacts
from rmsplugin.decision.cpu_demand import CpuDemand, CpuSample
from rmsplugin.decision.memory_demand import MemoryDemand, MemorySample
from rmsplugin.decision.result import Reason
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.decide.telling import Told
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.rooms import HostUse, Room
from rmsplugin.model.elements import VM, Node, VJob
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.priority import Standing
from rmsplugin.model.resources import Resources
from rmsplugin.packing.item import Item

_CLASSES = [
    *(Resources, VM, Node, VJob, Item, VMFacts, Reason, Waiting, Told, Standing, VJobRow, Room, HostUse),
    *(CpuSample, CpuDemand, MemorySample, MemoryDemand, VMInfo, VMStatistics, RmsJob, RmsNode),
]


def _set_one_by_one(own: Any, words: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The value as the constructor of a frozen dataclass makes it: each field by a call."""
    found = object.__new__(own)
    given_words = dict(zip((each.name for each in fields(own)), words, strict=False)) | named
    for each in fields(own):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        object.__setattr__(found, each.name, given_words.get(each.name, default))
    return found


@st.composite
def _arguments(draw: st.DrawFn, own: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a constructor: some by their places, some by their names, some left out."""
    names = [each.name for each in fields(own)]
    needed = sum(each.default is MISSING and each.default_factory is MISSING for each in fields(own))
    by_place = draw(st.integers(0, len(names)))
    named = [
        name for number, name in enumerate(names) if number >= by_place and (number < needed or draw(st.booleans()))
    ]
    draw_value = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.tuples(st.integers()))
    return tuple(draw(draw_value) for _ in range(by_place)), {name: draw(draw_value) for name in named}


@pytest.mark.parametrize("own", _CLASSES, ids=lambda own: own.__name__)
@given(data=st.data())
def test_a_value_is_that_of_pythons_constructor(own: Any, data: st.DataObject):
    words, named = data.draw(_arguments(own))
    made, expected = own(*words, **named), _set_one_by_one(own, words, named)

    assert type(made) is own
    assert [getattr(made, each.name) for each in fields(own)] == [getattr(expected, each.name) for each in fields(own)]
    assert made == expected and repr(made) == repr(expected)


@pytest.mark.parametrize("own", _CLASSES, ids=lambda own: own.__name__)
def test_it_stays_frozen_and_its_constructor_takes_what_it_took(own: Any):
    names = [each.name for each in fields(own)]
    made = own(*names)

    with pytest.raises(FrozenInstanceError):
        setattr(made, names[0], "another")
    with pytest.raises(AttributeError):
        made.__dict__  # noqa: B018  it has slots alone
    assert list(inspect.signature(own).parameters) == names
    with pytest.raises(TypeError):
        own(*names, "one more")
    with pytest.raises(TypeError):
        own(*names[:-1], another=1)
    assert replace(made, **{names[0]: "another"}) == own("another", *names[1:])
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("own", _CLASSES, ids=lambda own: own.__name__)
def test_there_are_no_subclasses(own: Any):
    with pytest.raises(TypeError, match="no subclasses"):
        type("Sub", (own,), {"__slots__": ()})


def test_a_default_that_is_made_anew_is_of_each_value_alone():
    @made_at_once
    @dataclass(frozen=True, slots=True)
    class Basket:
        name: str
        things: list[str] = field(default_factory=list)

    one, other = Basket("one"), Basket("other")
    one.things.append("apple")
    assert other.things == []
    assert Basket("given", ["pear"]).things == ["pear"]


def _with_more(cls: type) -> type:
    cls.__post_init__ = lambda self: None  # type: ignore[attr-defined]
    return cls


@pytest.mark.parametrize(
    "unsuitable",
    [
        lambda: dataclass(slots=True)(type("Open", (), {"__annotations__": {"a": int}})),
        lambda: dataclass(frozen=True)(type("WithDict", (), {"__annotations__": {"a": int}})),
        lambda: dataclass(frozen=True, slots=True, kw_only=True)(type("Named", (), {"__annotations__": {"a": int}})),
        lambda: dataclass(frozen=True, slots=True)(_with_more(type("After", (), {"__annotations__": {"a": int}}))),
    ],
)
def test_a_class_that_needs_more_is_refused(unsuitable: Any):
    with pytest.raises(TypeError, match="no frozen dataclass with slots and plain fields"):
        made_at_once(unsuitable())
