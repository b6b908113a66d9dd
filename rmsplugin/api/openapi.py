"""OpenAPI: the document that describes the API to other programs, made from ``rmsplugin.api.routes``."""

from __future__ import annotations

from typing import Any

from rmsplugin import __version__
from rmsplugin.api.answers import Failure, OpenApi
from rmsplugin.api.routes import ROUTES, Key, Media, Route, Tag
from rmsplugin.api.schemas import components_of, schema_of

_DESCRIPTION = """\
The engine of rmsplugin, on its Unix socket (`engine.socket` of the settings) and by TCP (`engine.listen`).

On the socket the kernel tells who the caller is; requests and answers are plain JSON. By TCP both are sealed by MUNGE
(docs/protocols.md, section 2): general HTTP clients can use the socket only, and `rmsplugin.api.client` can use both.

Within `/v1` requests, optional keys and keys of answers are added; none leaves, and none changes its meaning. Callers
have to take no notice of keys of answers that they do not know. Times are seconds since the epoch. An error has one
sentence for a person."""

_ERRORS = {
    "400": "The request does not have the form that is described here.",
    "401": "By TCP: no valid MUNGE credential; the answer is not sealed.",
    "403": "The caller may not do this, or not from this host.",
    "404": "The vjob, operation, ... does not exist.",
    "409": "Refused as things are now, or it could not be done.",
    "429": "The caller has too many requests or connections open; later there may be room.",
    "500": "A fault of the engine; its log has it.",
    "503": "The engine cannot answer now; later it may.",
}


def document() -> OpenApi:
    """The document, of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rmsplugin",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": tag.name.lower(), "description": tag.value} for tag in Tag],
        "paths": paths,
        "components": {
            "schemas": components_of([*(route.answer for route in ROUTES), Failure]),
            "responses": {
                f"Error{status}": _response(text, {"$ref": "#/components/schemas/Failure"})
                for status, text in _ERRORS.items()
            },
            "securitySchemes": {
                "munge": {
                    "type": "http",
                    "scheme": "Munge",
                    "description": "by TCP: a credential of method, path, digest of the body and a nonce",
                }
            },
        },
        "security": [{}, {"munge": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag.name.lower()],
        "summary": route.what,
        "description": f"For: {route.who.value}. By TCP from: {route.door.value}.",
        "parameters": [
            *(_parameter("path", key) for key in route.variables),
            *(_parameter("query", key) for key in route.query),
        ],
        "responses": {
            "200": _answer(route),
            **{status: {"$ref": f"#/components/responses/Error{status}"} for status in _ERRORS},
        },
    }
    if route.body:
        found["requestBody"] = {
            "required": any(key.required for key in route.body),
            "content": {"application/json": {"schema": body_schema(route)}},
        }
    return found


def body_schema(route: Route) -> dict[str, Any]:
    """The schema of the body of a request. A key that it does not have is refused."""
    return {
        "type": "object",
        "properties": {key.name: {**key.schema, "description": key.what} for key in route.body},
        "required": [key.name for key in route.body if key.required],
        "additionalProperties": False,
    }


def _parameter(where: str, key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "in": where,
        "required": key.required,
        "description": key.what,
        "schema": dict(key.schema),
    }


def _answer(route: Route) -> dict[str, Any]:
    found = _response("The answer.", schema_of(route.answer))
    if route.media is not Media.JSON:
        found["content"][route.media.value] = {"schema": {"type": "string"}}
    return found


def _response(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
