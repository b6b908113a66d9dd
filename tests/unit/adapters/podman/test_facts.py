"""What a node tells of podman, runc and CRIU where one of these programs does not end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.podman.on_node import facts, program
from rmsplugin.adapters.platform.podman.on_node.vms import ContainersOnNode

_SOUND = {
    "podman": 'case "$*" in *--version) echo podman version 5.4.2 ;; *) echo sha256:0123 ;; esac',
    "runc": "echo runc version 1.1.15+ds",
    "criu": 'case "$*" in --version) echo Version: 4.2.1 ;; *) echo no userfaultfd >&2; exit 1 ;; esac',
}
_HANGS = f"exec {shutil.which('sleep')} 1000"
IMAGES = ("localhost/one:1", "localhost/two:1")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the three programs, each of which answers."""
    for name, text in _SOUND.items():
        write(tmp_path / name, text)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program, "_PATH", str(tmp_path))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that hangs is given up soon."""
    monkeypatch.setattr(facts, "_EACH_S", 0.3)


def test_programs_that_answer_are_told_of(programs: Path) -> None:
    found = facts.seen(IMAGES)
    assert (found["podman"], found["runc"], found["criu"]) == ("5.4.2", "1.1.15", "4.2.1")
    assert found["criu_check"] == "no userfaultfd" and found["silent"] == []
    assert found["images"] == dict.fromkeys(IMAGES, "0123")


def test_a_check_of_criu_that_does_not_end_is_given_up_and_told(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(programs / "criu", f"[ $1 = check ] || {{ echo Version: 4.2.1; exit; }}\n{_HANGS}")
    brief(monkeypatch)
    found = facts.seen(IMAGES)
    assert (found["criu"], found["criu_check"], found["silent"]) == ("4.2.1", "", ["criu check"])


def test_a_podman_that_does_not_end_is_asked_once_for_each_thing(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(programs / "podman", f"echo asked >>{programs}/asked\n{_HANGS}")
    brief(monkeypatch)
    found = facts.seen(IMAGES)
    assert found["silent"] == ["podman --version", "podman images"] and found["runc"] == "1.1.15"
    assert found["images"] == dict.fromkeys(IMAGES, "")
    assert (programs / "asked").read_text().count("asked") <= 2


def test_programs_that_are_not_there_are_not_silent(programs: Path) -> None:
    for name in _SOUND:
        (programs / name).unlink()
    found = facts.seen(IMAGES)
    assert [found[name] for name in _SOUND] == ["", "", ""] and found["silent"] == []


def test_all_looks_together_are_shorter_than_a_call() -> None:
    """`NodeAgents` gives a call 30 s, in which a node tells other facts too."""
    assert facts._ALL_S + facts._EACH_S < 30


def test_a_silent_program_is_no_missing_one(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(programs / "runc", _HANGS)
    monkeypatch.setattr("rmsplugin.adapters.platform.podman.on_node.vms._VERSION_S", 0.3)
    assert ContainersOnNode().host()["hypervisor"] == "podman 5.4.2, runc silent, criu 4.2.1"
