"""Placement rules that count VMs of several groups: managers, and engines of groups, end before they do anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from contract.engine_processes import EngineProcess, ManagerProcess, write_settings
from patience import PATIENCE_S

GROUPS = """
[group.rack1]
hosts = "n[1-2]"
[group.rack2]
hosts = "n[3-4]"
[rule.matlab]
"""
#: A rule that ties groups, and what is said of it.
TIES = [
    ('kind = "capacity"\nnodes = "n[2-3]"\nmost = 4', "name nodes of one group only, with a rule for each group"),
    ('kind = "online"\nmost = 3', "name nodes of one group in nodes"),
    ('kind = "gather"\nnames = ["db*"]', 'say per = "vjob"'),
]
KEPT = 'kind = "capacity"\nnodes = "n[1-2]"\nmost = 4'


def settings_with(directory: Path, rule: str) -> Path:
    (directory / "shared").mkdir(mode=0o700)
    cluster = f'coordination = "zookeeper"\nservers = ["127.0.0.1:1"]\nshared_dir = "{directory}/shared"'
    path = write_settings(directory, cluster)
    path.write_text(path.read_text() + GROUPS + rule + "\n")
    return path


@pytest.mark.parametrize("group", ["", "rack1"], ids=["manager", "engine"])
@pytest.mark.parametrize(("rule", "words"), TIES)
def test_a_rule_that_ties_groups_is_refused_and_nothing_is_changed(
    tmp_path: Path, rule: str, words: str, group: str
) -> None:
    settings = settings_with(tmp_path, rule)
    process = (EngineProcess if group else ManagerProcess)("refused", settings, group=group)
    try:
        assert process.process.wait(PATIENCE_S) == 2
    finally:
        process.end()
    said = process.said()
    assert "rule.matlab" in said and words in said and "Traceback" not in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "state").exists()
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_rule_over_nodes_of_one_group_does_not_keep_a_manager_from_starting(tmp_path: Path) -> None:
    manager = ManagerProcess("kept", settings_with(tmp_path, KEPT))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "state").exists():
            assert manager.process.poll() != 2, manager.said()
            assert time.monotonic() < deadline, manager.said()
            time.sleep(0.02)
    finally:
        manager.end()
    assert "rule.matlab" not in manager.said()
