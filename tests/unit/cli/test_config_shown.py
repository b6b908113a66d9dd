"""`rmsplugin config show`: what the engine runs with, beside what its file says now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.cli.json_documents import document_of, told
from unit.served import Served

from rmsplugin.cli.main import main
from rmsplugin.engine.context.durations import MeasuredDuration
from rmsplugin.settings import load

Says = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rmsplugin.toml"


@pytest.fixture
def served(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    running = served.context.settings
    file.write_text(toml_of(running.model_dump(mode="json", exclude_defaults=True)))
    assert load(file) == running, "the file says what the engine runs with"
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(file))
    yield served
    served.close()


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Says:
    def says(*words: str, status: int = 0) -> str:
        assert main(["config", "show", *words]) == status
        return capsys.readouterr().out

    return says


def toml_of(values: dict[str, object], table: str = "") -> str:
    """Settings as they are written."""
    lines = [f"[{table}]"] if table else []
    inner = {key: value for key, value in values.items() if isinstance(value, dict)}
    lines += [
        f"{key} = {_toml_value(value)}" for key, value in values.items() if key not in inner and value is not None
    ]
    parts = [toml_of(value, f"{table}.{key}" if table else key) for key, value in inner.items()]
    return "\n".join([*lines, *parts])


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml_value(each)}" for key, each in value.items() if each is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def test_each_value_is_told_by_its_key(served: Served, says: Says) -> None:
    rows = dict(line.split("|")[:2] for line in says("--parsable2", "--noheader").splitlines())
    engine = served.context.settings.engine
    assert rows["engine.cycle_s"] == str(engine.cycle_s) and rows["engine.socket"] == str(engine.socket)
    assert rows["decision.policy"] == served.context.settings.decision.policy


def test_what_the_file_says_otherwise_is_beside_it(served: Served, says: Says, file: Path) -> None:
    assert says("--differing", "--noheader") == ""
    file.write_text(file.read_text().replace("[engine]", "[tokens]\nsaves = 7\n[engine]"))
    was = served.context.settings.tokens.saves
    assert says("--differing", "--noheader").split() == ["tokens.saves", str(was), "7", "-"]
    [row] = document_of(says("tokens.saves", "--json"))["config"]
    assert row == {"key": "tokens.saves", "value": was, "file": 7, "differs": True, "measured": None}


def test_what_was_measured_is_shown_with_since_when(served: Served, says: Says) -> None:
    values = {"suspend_s": 40.0, "suspend_s_per_mib": 0.01}
    served.context.durations.measured = {"suspend": MeasuredDuration("suspend", values, 16, 1_763_700_000.0)}
    served.world.context.durations.measured = served.context.durations.measured
    [row] = document_of(says("durations.suspend_s", "--json"))["config"]
    assert (row["value"], row["measured"]) == (40.0, {"value": 40.0, "count": 16, "since": 1_763_700_000.0})
    assert not row["differs"], "the file says what it said"
    assert "16 times, since 2025-11-2" in says("durations.suspend_s")
    assert "since" not in says("durations.run_s")


def test_sections_are_chosen_and_one_that_there_is_not_is_named(served: Served, says: Says) -> None:
    shown = says("tokens", "engine.cycle_s", "--noheader")
    assert {line.split(".")[0] for line in shown.splitlines()} == {"tokens", "engine"}
    document = document_of(says("engine.cycle_s", "nonsense", "--json", status=1))
    assert len(document["config"]) == 1 and told(document, "errors") == ["no setting nonsense"]


def test_a_file_that_is_wrong_now_hides_no_value(served: Served, says: Says, file: Path) -> None:
    file.write_text(file.read_text() + "\n[nonsense]\na = 1\n")
    document = document_of(says("engine", "--json"))
    assert document["config"] and not any(row["differs"] for row in document["config"])
    assert "nonsense" in told(document, "warnings")[0]
