"""What commands print with --json: read, compared with the schema in docs/json-output.json, and parted."""

from __future__ import annotations

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator

from rmsplugin.cli.json_forms import json_schema

#: The keys that each document ends in.
END = ("meta", "errors", "warnings")


@functools.cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


def document_of(text: str) -> dict[str, Any]:
    """The document, which has the form of its command."""
    document: dict[str, Any] = json.loads(text)
    assert tuple(document)[-3:] == END
    assert [f"{fault.json_path}: {fault.message}" for fault in _validator().iter_errors(document)] == []
    return document


def answer_of(text: str) -> dict[str, Any]:
    """The same without the keys that each document ends in."""
    return {key: value for key, value in document_of(text).items() if key not in END}


def told(document: dict[str, Any], key: str) -> list[str]:
    """The sentences of ``errors`` or of ``warnings``."""
    return [each["description"] for each in document[key]]
