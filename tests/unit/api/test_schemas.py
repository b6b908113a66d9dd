"""JSON Schema of answers: made from their types, with the texts of their docstrings."""

from __future__ import annotations

import inspect
from typing import Any, Literal, NotRequired, TypedDict, get_args

import pytest
from jsonschema import Draft202012Validator
from unit.api_forms import faults_of

from rmsplugin.api import answers
from rmsplugin.api.schemas import components_of, schema_of, texts_of
from rmsplugin.engine.ledger.rows import Outcome
from rmsplugin.model.vjob import VJobState


class Inner(TypedDict):
    """Something inside.

    Attributes:
        word: one of two.
    """

    word: Literal["a", "b"]


class Outer(TypedDict):
    """Something of a test.

    Attributes:
        number: of a
            kind.
        inner: the inner ones.
        by_name: by name.
        maybe: left out at times.
    """

    number: float | None
    inner: list[Inner]
    by_name: dict[str, int]
    maybe: NotRequired[Inner | None]


def test_a_type_and_its_docstring_make_a_schema() -> None:
    assert components_of([Outer])["Outer"] == {
        "type": "object",
        "description": "Something of a test.",
        "properties": {
            "number": {"description": "of a kind.", "type": ["number", "null"]},
            "inner": {
                "description": "the inner ones.",
                "type": "array",
                "items": {"$ref": "#/components/schemas/Inner"},
            },
            "by_name": {
                "description": "by name.",
                "type": "object",
                "additionalProperties": {"type": "integer"},
            },
            "maybe": {
                "description": "left out at times.",
                "anyOf": [{"$ref": "#/components/schemas/Inner"}, {"type": "null"}],
            },
        },
        "required": ["by_name", "inner", "number"],
    }
    assert components_of([Outer])["Inner"]["properties"]["word"] == {
        "description": "one of two.",
        "type": "string",
        "enum": ["a", "b"],
    }


@pytest.mark.parametrize("form", [set[int], bytes, dict[int, str]])
def test_a_type_that_json_has_not_is_refused(form: object) -> None:
    with pytest.raises(TypeError, match="no answer may have the type"):
        schema_of(form)


FORMS = [form for _, form in inspect.getmembers(answers, inspect.isclass) if form.__module__ == answers.__name__]


@pytest.mark.parametrize("form", [form for form in FORMS if form.__name__ != "_From"], ids=lambda form: form.__name__)
def test_every_key_of_an_answer_is_described_and_no_other(form: Any) -> None:
    (schema,) = (schema for name, schema in components_of([form]).items() if name == form.__name__)
    assert set(texts_of(form)) == set(schema["properties"])
    assert schema["description"].endswith((".", "?"))
    Draft202012Validator.check_schema(schema)


def test_the_words_of_states_are_those_of_the_model() -> None:
    assert set(get_args(answers.VJobWord)) == {str(state) for state in VJobState}
    assert set(get_args(answers.OutcomeWord)) == {str(state) for state in Outcome}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"changed": True, "paused": None}, ""),
        ({"changed": True, "paused": {"since": 1.5, "by": "root"}}, ""),
        ({"changed": True}, "'paused' is a required property"),
        ({"changed": 1, "paused": None}, "1 is not of type 'boolean'"),
        ({"changed": True, "paused": None, "why": ""}, "'why' was unexpected"),
        ({"changed": True, "paused": {"since": 1.5, "by": "root", "why": ""}}, "is not valid under any"),
    ],
)
def test_an_answer_that_differs_from_its_form_is_found(answer: object, fault: str) -> None:
    found = faults_of("POST", "/v1/pause", 200, answer)
    assert (len(found), all(fault in each for each in found)) == (bool(fault), True)


def test_an_answer_that_no_route_describes_and_an_error_with_more_than_a_sentence_are_found() -> None:
    assert faults_of("GET", "/v1/secrets", 200, {}) == ["GET /v1/secrets is answered, and no route describes it"]
    assert faults_of("GET", "/v1/secrets", 404, {"error": "no such request"}) == []
    assert len(faults_of("GET", "/v1/nodes", 409, {"error": "refused", "trace": "line 7"})) == 1
