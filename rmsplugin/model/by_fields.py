"""By fields: the small values of which a configuration has thousands are pickled as a call with their fields.

Dataclasses with slots go through their fields one by one, at both ends of a pipe. That takes twice as long, and no
other thread of the engine has a turn meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any


class ByFields:
    """The base of frozen dataclasses with two fields or more, all of which their constructor takes."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The class, and the values of the fields, in their order."""
        own: Any = type(self)
        return own, _values(own)(self)


@cache
def _values(own: Any) -> Callable[[object], tuple[Any, ...]]:
    found: Callable[[object], tuple[Any, ...]] = attrgetter(*(each.name for each in fields(own)))
    return found
