"""The forms of answers, as `rmsplugin.api` describes them, and how an answer of a service differs from its form."""

from __future__ import annotations

import copy
import functools
import re
from typing import Any

from jsonschema import Draft202012Validator

from rmsplugin.api.answers import Failure
from rmsplugin.api.routes import ROUTES, Route
from rmsplugin.api.schemas import Schema, components_of, schema_of


def route_of(method: str, path: str) -> Route | None:
    """The route of a request; None: the API has no such request."""
    bare = path.partition("?")[0]
    fitting = [route for route in ROUTES if route.method == method and _pattern(route.path).fullmatch(bare)]
    return min(fitting, key=lambda route: len(route.variables), default=None)


def faults_of(method: str, path: str, status: int, answer: object) -> list[str]:
    """What is wrong with the answer to a request; nothing where its form is as described."""
    route = route_of(method, path)
    if status == 200 and route is None:
        return [f"{method} {path} is answered, and no route describes it"]
    form = route.answer if route is not None and status == 200 else Failure
    return [f"{method} {path}: {error.json_path}: {error.message}" for error in _validator(form).iter_errors(answer)]


@functools.cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))


@functools.cache
def _validator(form: Any) -> Draft202012Validator:
    whole = {**schema_of(form), "components": {"schemas": closed(components_of([form]))}}
    return Draft202012Validator(whole)


def closed(components: dict[str, Schema]) -> dict[str, Schema]:
    """The schemas, which take no key that is not described."""
    components = copy.deepcopy(components)
    for component in components.values():
        component["additionalProperties"] = False
    return components
