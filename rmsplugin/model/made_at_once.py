"""Made at once: frozen dataclasses of which a cycle makes ten thousands are made in a fraction of the time.

Python sets each field of a frozen dataclass by a call (``object.__setattr__``). Here a value is an object of a class
that is not frozen until all of its fields are set, each by one instruction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

Value = TypeVar("Value", bound=type[Any])

#: Stands for a field that was not given, and whose default is made anew for each value.
_NOT_GIVEN = object()


def made_at_once(own: Value) -> Value:
    """Replace the constructor of a frozen dataclass with slots by an equal one that is faster; a decorator.

    Such a class has no subclasses.

    Raises:
        TypeError: the class has something that this constructor does not do.
    """
    its_fields = fields(own)
    names = tuple(each.name for each in its_fields)
    is_frozen = own.__dataclass_params__.frozen and vars(own).get("__slots__") == names
    if not is_frozen or hasattr(own, "__post_init__") or any(not each.init or each.kw_only for each in its_fields):
        raise TypeError(f"{own.__name__} is no frozen dataclass with slots and plain fields")
    known: dict[str, Any] = {
        "own": own,
        "open_class": type(own.__name__, own.__bases__, {"__slots__": names}),
        # What ``value.__class__ = other`` does, where the class of the value forbids the words.
        "become": vars(object)["__class__"].__set__,
        "not_given": _NOT_GIVEN,
    }
    known |= {f"default_of_{each.name}": each.default for each in its_fields}
    known |= {f"make_{each.name}": each.default_factory for each in its_fields}
    exec(_constructor(its_fields), known)  # as dataclasses makes its own
    before, made = own.__init__, known["__init__"]
    for what in ("__annotations__", "__doc__", "__module__", "__qualname__"):
        setattr(made, what, getattr(before, what))
    own.__init__ = made
    setattr(own, "__init_subclass__", classmethod(_refuse))  # noqa: B010  mypy knows no such assignment
    return own


def _constructor(its_fields: Iterable[Field[Any]]) -> str:
    """The text of the constructor."""
    return "\n    ".join(
        [
            f"def __init__(self, {', '.join(_parameter(each) for each in its_fields)}):",
            "become(self, open_class)",
            *(f"self.{each.name} = {_value(each)}" for each in its_fields),
            "self.__class__ = own",
        ]
    )


def _parameter(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return f"{field.name}=not_given"
    return field.name if field.default is MISSING else f"{field.name}=default_of_{field.name}"


def _value(field: Field[Any]) -> str:
    if field.default_factory is MISSING:
        return field.name
    return f"make_{field.name}() if {field.name} is not_given else {field.name}"


def _refuse(own: Any, /, **_: object) -> None:
    raise TypeError(f"{own.__name__}: a class that is made at once has no subclasses")
