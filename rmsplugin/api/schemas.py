"""Schemas: JSON Schema of answers, made from their types and the texts of their docstrings."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

Schema = dict[str, Any]

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
}
_ATTRIBUTE = re.compile(r"    (\w+): (.*)")


def components_of(answers: Iterable[object]) -> dict[str, Schema]:
    """The schemas of these types, and of all types in them, by the names of their classes, sorted.

    Args:
        answers: classes made by TypedDict, or unions of them.

    Raises:
        TypeError: a type that no answer may have.
    """
    found: dict[str, Schema] = {}
    for answer in answers:
        _collect(answer, found)
    return dict(sorted(found.items()))


def schema_of(form: Any) -> Schema:
    """The schema of a type; classes made by TypedDict are named only. Raises TypeError."""
    if is_typeddict(form):
        return {"$ref": f"#/components/schemas/{form.__name__}"}
    if form in _PLAIN:
        return dict(_PLAIN[form])
    origin, arguments = get_origin(form), get_args(form)
    if origin is NotRequired:
        return schema_of(arguments[0])
    if origin is Literal:
        return {"type": _PLAIN[type(arguments[0])]["type"], "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _union([schema_of(each) for each in arguments])
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    raise TypeError(f"no answer may have the type {form}")


def texts_of(form: type) -> dict[str, str]:
    """The text of each key that the docstring of a class describes; it repeats those of its bases."""
    texts: dict[str, str] = {}
    key = ""
    # From Python 3.13 on docstrings come without the indentation of the source.
    for line in inspect.cleandoc(form.__doc__ or "").partition("Attributes:\n")[2].splitlines():
        match = _ATTRIBUTE.match(line)
        if match is not None:
            key = match[1]
            texts[key] = match[2]
        elif line.strip() and key:
            texts[key] += f" {line.strip()}"
    return texts


def _collect(form: Any, found: dict[str, Schema]) -> None:
    if not is_typeddict(form):
        for inner in get_args(form):
            _collect(inner, found)
        return
    if form.__name__ in found:
        return
    hints: Mapping[str, Any] = get_type_hints(form, include_extras=True)
    texts = texts_of(form)
    found[form.__name__] = {
        "type": "object",
        "description": (form.__doc__ or "").partition("\n")[0],
        "properties": {key: {"description": texts.get(key, ""), **schema_of(hint)} for key, hint in hints.items()},
        "required": sorted(
            # Where annotations are texts, a class takes its optional keys for required ones.
            key
            for key, hint in hints.items()
            if key in form.__required_keys__ and get_origin(hint) is not NotRequired
        ),
    }
    for hint in hints.values():
        _collect(hint, found)


def _union(schemas: list[Schema]) -> Schema:
    """One of several; plain types are named together."""
    if all(set(each) == {"type"} for each in schemas):
        return {"type": [each["type"] for each in schemas]}
    return {"anyOf": schemas}
