"""The OpenAPI document: it says of each request what the routes say, and follows the rules of OpenAPI 3.1."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rmsplugin.api.openapi import document
from rmsplugin.api.routes import ROUTES, Door, Key, Route, Tag

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT: dict[str, Any] = dict(document())
KEYS = [(route, key) for route in ROUTES for key in (*route.variables, *route.query, *route.body)]


def operation_of(route: Route) -> Any:
    return DOCUMENT["paths"][route.path][route.method.lower()]


def references(value: object) -> list[str]:
    """All `$ref` of a document."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in references(inner)]
    return [found for inner in value for found in references(inner)] if isinstance(value, list) else []


def test_the_document_has_each_route_and_no_other() -> None:
    told = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert told == {(route.method, route.path) for route in ROUTES}
    assert len(ROUTES) == len(told)


def test_the_document_in_the_docs_is_the_one_that_the_routes_make() -> None:
    assert json.loads((ROOT / "docs/openapi.json").read_text()) == DOCUMENT, "run: .venv/bin/python contrib/make-docs"


def test_names_of_requests_are_unique_and_tags_are_declared() -> None:
    names = [operation_of(route)["operationId"] for route in ROUTES]
    assert len(set(names)) == len(names)
    assert {tag for route in ROUTES for tag in operation_of(route)["tags"]} == {tag["name"] for tag in DOCUMENT["tags"]}


def test_whatever_is_referred_to_is_there() -> None:
    found = references(DOCUMENT)
    assert len(found) > 100
    for reference in found:
        assert reference.startswith("#/")
        part: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]


def test_all_of_the_components_are_used() -> None:
    used = set(references(DOCUMENT))
    parts = DOCUMENT["components"]
    assert {f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in parts[kind]} == used


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_path_has_the_variables_that_are_described(route: Route) -> None:
    assert re.findall(r"\{(\w+)\}", route.path) == [key.name for key in route.variables]
    assert all(key.required for key in route.variables)
    assert route.path.startswith("/v1/")
    told = {(each["in"], each["name"], each["required"]) for each in operation_of(route)["parameters"]}
    query = {("query", key.name, key.required) for key in route.query}
    assert told == query | {("path", key.name, True) for key in route.variables}


@pytest.mark.parametrize(("route", "key"), KEYS, ids=lambda each: each.name)
def test_a_key_has_a_schema_and_an_example_that_fits(route: Route, key: Key) -> None:
    Draft202012Validator.check_schema(key.schema)
    for example in key.schema["examples"]:
        Draft202012Validator(key.schema).validate(example)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_request_says_who_may_make_it_and_what_it_is_answered(route: Route) -> None:
    operation = operation_of(route)
    assert operation["description"] == f"For: {route.who.value}. By TCP from: {route.door.value}."
    assert {"200", "400", "403", "404", "409", "429", "503"} <= set(operation["responses"])
    assert ("requestBody" in operation) == bool(route.body)


def test_orders_and_hooks_are_taken_from_the_controller_or_the_host_that_they_are_about() -> None:
    hosts = {tag: {route.door for route in ROUTES if route.tag is tag} for tag in Tag}
    assert hosts[Tag.ORDERS] == {Door.TRUSTED}
    assert hosts[Tag.HOOKS] == {Door.TRUSTED, Door.FRONT, Door.ROOM}
    assert Door.ANY not in hosts[Tag.CONTROL] | hosts[Tag.WRAPPERS]


def test_the_table_of_the_protocols_page_has_each_path() -> None:
    page = (ROOT / "docs/protocols.md").read_text()
    names = {"{id}": "ID", "{number}": "N", "{name}": "NODE"}
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", lambda match: names[match[0]], route.path)
        assert f"{path}`" in page or f"{path}?" in page or f"/{path.rpartition('/')[2]}`" in page, route.path
