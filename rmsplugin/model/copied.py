"""Copied: a copy of a frozen value of many fields with another value in some of them, for values of which many change.

``dataclasses.replace`` looks at each field, and calls the constructor with words for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def copied(value: T, **changes: object) -> T:
    """The same as ``value``, a dataclass with slots and two fields or more that checks nothing, but for ``changes``."""
    own: Any = type(value)
    values, setters = _fields(own)
    found: T = own.__new__(own)
    for set_field, each in zip(setters, values(value), strict=True):
        set_field(found, each)
    for name, each in changes.items():
        object.__setattr__(found, name, each)
    return found


@cache
def _fields(own: Any) -> tuple[Callable[[object], tuple[Any, ...]], list[Callable[[object, Any], None]]]:
    """What gives the values of all fields, and what sets each of them in a new object."""
    names = [each.name for each in fields(own)]
    return attrgetter(*names), [getattr(own, name).__set__ for name in names]
