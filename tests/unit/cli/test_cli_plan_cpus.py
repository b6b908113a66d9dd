"""`rmsplugin plan --cpu-in-plan`: who comes waits for its CPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.cli.json_documents import document_of

from rmsplugin.cli.main import main

#: One node of one CPU, with memory for both; the head of the queue sleeps, and the last one runs.
INSTANCE = {
    "nodes": [{"name": "n1", "cpu": 1, "memory_mib": 4096}],
    "vjobs": [
        {"name": "head", "state": "waiting", "vms": [{"name": "head-0", "cpu": 1, "memory_mib": 512}]},
        {"name": "last", "state": "running", "vms": [{"name": "last-0", "cpu": 1, "memory_mib": 512, "host": "n1"}]},
    ],
}


@pytest.mark.parametrize(
    ("options", "pools"),
    [((), [["suspend", "run"]]), (("--cpu-in-plan",), [["suspend"], ["run"]])],
)
def test_who_makes_way_goes_first_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    pools: list[list[str]],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("i.json").write_text(json.dumps(INSTANCE))
    assert main(["plan", "--instance", "i.json", "--json", *options]) == 0
    answer = document_of(capsys.readouterr().out)
    assert [[action["action"] for action in pool] for pool in answer["plan"]["pools"]] == pools


def test_it_is_not_for_the_live_cluster_whose_settings_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--live", "--cpu-in-plan"])
    assert ended.value.code == 2
    assert "--cpu-in-plan is for --instance" in capsys.readouterr().err
