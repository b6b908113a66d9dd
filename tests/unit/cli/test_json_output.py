"""--json: every command's document has the form that docs/json-output.json describes, failures included."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of, document_of, told
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin import __version__
from rmsplugin.api.binding import Engine
from rmsplugin.cli.json_forms import FORMS
from rmsplugin.cli.main import build_parser, main
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


class Says:
    """What a command prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        assert main([*words, "--json"]) == status
        return self._capsys.readouterr().out


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Says:
    return Says(capsys)


def _with_json(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands that have --json."""
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for action in inner:
        for name, command in action.choices.items():
            yield from _with_json(command, (*words, name))
    if "--json" in parser._option_string_actions:
        what = [each for each in parser._actions if each.dest == "what" and each not in inner]
        yield from [(*words, choice) for each in what for choice in each.choices or ()] or [words]


def test_each_command_with_json_has_a_form() -> None:
    assert set(_with_json(build_parser())) == set(FORMS)


@pytest.mark.parametrize("words", ["vjobs", "vms", "nodes", "events", "status", "cycles", "schedule", "states"])
def test_an_answer_comes_with_who_made_it(served: Served, says: Says, words: str) -> None:
    served.world.running()
    document = document_of(says(*words.split()))
    assert document["meta"] == {"version": 1, "rmsplugin": __version__, "command": words.split()}
    assert (document["errors"], document["warnings"]) == ([], [])


def test_what_is_shown_or_done_has_its_form(served: Served, says: Says) -> None:
    job = served.world.running()
    for words in (
        *(("show", "vjob", str(job)), ("show", "vm", f"vjob{job}-0"), ("show", "node", "n1"), ("usage", str(job))),
        *(("decisions", str(job)), ("pause",), ("unpause",), ("confirm",)),
    ):
        assert answer_of(says(*words)), words
    assert answer_of(says("suspend", str(job)))["state"] == "done"


def test_what_is_missing_is_named_beside_what_is_there(served: Served, says: Says) -> None:
    job = served.world.running()
    document = document_of(says("nodes", "n1", "n77", status=1))
    assert [row["name"] for row in document["nodes"]] == ["n1"]
    assert told(document, "errors") == ["n77 is no node that may host VMs"]
    document = document_of(says("vjobs", str(job), "999", status=1))
    assert [row["job_id"] for row in document["vjobs"]] == [job] and len(told(document, "errors")) == 1


def test_ended_vjobs_that_are_not_shown_are_a_warning(served: Served, says: Says) -> None:
    for _ in range(2):
        job = served.world.running()
        served.world.rms.finish(job)
        served.world.until(job, VJobState.TERMINATED)
    document = document_of(says("vjobs", "--all", "--limit", "1"))
    assert told(document, "warnings") == ["only the newest 1 ended vjobs are shown; see --limit"]


def test_a_group_that_does_not_answer_is_a_warning_on_both_ways_and_once(
    served: Served, says: Says, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served.world.running()
    ask = Engine._ask

    def without_one(self: Engine, *words: Any) -> dict[str, Any]:
        return {**ask(self, *words), "silent": ["west", "north"]}

    monkeypatch.setattr(Engine, "_ask", without_one)
    missing = [f"the engine of group {each} does not answer: its part is missing" for each in ("west", "north")]
    for words in (("vjobs",), ("nodes",), ("show", "node", "n1")):
        assert main([*words, "--json"]) == 0
        out, error = capsys.readouterr()
        assert told(document_of(out), "warnings") == missing
        assert error.splitlines() == [f"rmsplugin: {sentence}" for sentence in missing]


def test_a_command_that_failed_prints_one_document_that_says_why(served: Served, says: Says) -> None:
    document = document_of(says("decisions", "999", status=1))
    assert list(document) == ["meta", "errors", "warnings"]
    assert told(document, "errors") == ["no vjob 999"]


def test_an_engine_that_is_not_there_is_an_error_in_the_document(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=tmp_path / "none.sock"))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    assert len(told(document_of(says("status", status=1)), "errors")) == 1


def test_wrong_usage_prints_no_document(says: Says, tmp_path: Path) -> None:
    assert says("pack", "--instance", str(tmp_path / "none.json"), status=2) == ""
