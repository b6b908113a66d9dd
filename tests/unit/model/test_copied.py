"""A copy with some fields changed is what dataclasses.replace makes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from rmsplugin.model.copied import copied


@dataclass(frozen=True, slots=True)
class Thing:
    """Some fields, one of which is not compared."""

    name: str
    amount: int = 3
    more: tuple[str, ...] = field(default=(), compare=False)


def test_a_copy_is_what_replace_makes() -> None:
    thing = Thing("a", 4, ("x",))
    for changes in ({}, {"amount": 5}, {"name": "b", "more": ("y",)}):
        found, wanted = copied(thing, **changes), replace(thing, **changes)  # type: ignore[arg-type]
        assert (found, found.more) == (wanted, wanted.more)
    assert thing == Thing("a", 4, ("x",))


def test_there_is_no_other_field() -> None:
    with pytest.raises(AttributeError):
        copied(Thing("a"), colour="red")
