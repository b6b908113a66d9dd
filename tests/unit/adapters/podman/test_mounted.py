"""What a node tells of the directories that containers have of it, and what `rmsplugin check` says of that."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.podman.mounted_checks import judge_mounted
from rmsplugin.adapters.platform.podman.on_node import mounted
from rmsplugin.finding import Finding, Level
from rmsplugin.settings.guests import Mount

HOME = Mount(source="10.0.0.1:/home", target="/home")
SOUND = {"directory": "/home", "wrong": "", "type": "nfs4"}


def seen(tmp_path: Path, *targets: str, table: str = "") -> dict[str, dict[str, str]]:
    text = table or f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n{line('/', 'ext4')}"
    (tmp_path / "mountinfo").write_bytes(os.fsencode(text))
    return mounted.seen(targets, tmp_path / "mountinfo")


def line(place: str, kind: str) -> str:
    return f"20 1 0:1 / {place} rw,nosuid shared:1 - {kind} source rw\n"


def test_a_directory_is_told_with_its_file_system(tmp_path: Path) -> None:
    place = str(tmp_path / "site home")
    os.mkdir(place)
    written = place.replace(" ", r"\040")
    table = line("/", "ext4") + line(written, "autofs") + line(written, "nfs4") + line(f"{written}s", "tmpfs")
    found = mounted_type(tmp_path, place, table)
    assert found == "nfs4"
    assert mounted_type(tmp_path, str(tmp_path), table) == "ext4"


@pytest.mark.parametrize("name", ["h\u00e9", "h\udce9", "h\r\x0c", "h\\n"])
def test_names_of_mounts_in_any_encoding_are_read(tmp_path: Path, name: str) -> None:
    place = f"{tmp_path}/{name}"
    os.mkdir(place)
    written = place.replace("\\", r"\134")
    assert mounted_type(tmp_path, place, line("/", "ext4") + line(written, "nfs4")) == "nfs4"
    assert mounted_type(tmp_path, str(tmp_path), line("/", "ext4") + line(written, "nfs4")) == "ext4"


def mounted_type(tmp_path: Path, place: str, table: str) -> str:
    """As root sees it: whoever runs the test may own the directories above."""
    told = seen(tmp_path, place, table=table)[place]
    assert told["directory"] == place
    return told["type"]


def test_a_directory_that_is_missing_or_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = seen(tmp_path, f"{tmp_path}/none", f"{tmp_path}/file")
    assert found[f"{tmp_path}/none"]["wrong"] == "No such file or directory"
    assert found[f"{tmp_path}/file"]["wrong"] == "Not a directory"


def test_a_directory_that_users_could_exchange_is_told(tmp_path: Path) -> None:
    (tmp_path / "open" / "data").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    [found] = seen(tmp_path, f"{tmp_path}/open/data").values()
    assert found["wrong"] == f"{tmp_path}/open is not root's alone, so others could put another directory there"
    assert found["type"] == ""


def test_a_file_system_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "stat").chmod(0o755)
    monkeypatch.setattr(mounted, "environment", lambda: {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(mounted, "_ANSWER_S", 0.1)
    [found] = seen(tmp_path, str(tmp_path)).values()
    assert found["wrong"] == "its file system has not answered for 0.1 s"


def test_directories_that_hang_are_given_up_all_at_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, never = threading.Barrier(3, timeout=PATIENCE_S), threading.Event()

    def hang(directory: str) -> str:
        asked.wait()  # each is asked before another one has answered
        if directory != "/live":
            never.wait()
        return "Stale file handle"

    monkeypatch.setattr(mounted, "_silence", hang)
    monkeypatch.setattr(mounted, "_ALL_S", 0.5)
    try:
        found = seen(tmp_path, "/dead", "/gone/{user}", "/live")
    finally:
        never.set()
    late = "its file system has not answered for 0.5 s"
    assert {told["directory"]: told["wrong"] for told in found.values()} == {
        "/dead": late,
        "/gone": late,
        "/live": "Stale file handle",
    }


def test_a_process_that_cannot_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounted, "_ANSWER_S", 0.1)
    monkeypatch.setattr(mounted, "_END_S", 0.1)
    monkeypatch.setattr(mounted, "environment", lambda: None)
    program, started, whole = ["sleep", "600"], [], subprocess.Popen

    def start(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(whole(program, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(whole, "kill", lambda process: None)  # as if it hung in the kernel
    try:
        assert mounted._silence("/dead") == "its file system has not answered for 0.1 s"
        assert started[0].poll() is None
    finally:
        started[0].send_signal(signal.SIGKILL)
        started[0].wait()


@pytest.mark.parametrize(
    ("target", "directory"),
    [
        ("/scratch/{user}", "/scratch"),
        ("/data/of-{user}/x", "/data"),
        ("/{user}", ""),
        ("{home}", ""),
        ("{home}/data", ""),
    ],
)
def test_what_is_each_users_own_is_looked_at_above(tmp_path: Path, target: str, directory: str) -> None:
    assert seen(tmp_path, target)[target]["directory"] == directory


def judged(found: dict[str, Any], *mounts: Mount) -> list[Finding]:
    return list(judge_mounted(mounts, "node n1", found))


def test_a_node_with_all_directories_is_in_order() -> None:
    home = Mount(source="10.0.0.1:{home}", target="{home}")
    told = {"/home": SOUND, "{home}": {"directory": "", "wrong": "", "type": ""}}
    [found] = judged(told, HOME, home)
    assert (found.level, found.what) == (Level.OK, "has the directories of 1 mount")
    assert judged({}) == []


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "fuse.nfs", "autofs", "fuse.ceph-fuse", ""])
def test_kinds_that_are_alike_or_come_later_are_in_order(kind: str) -> None:
    assert [each.level for each in judged({"/home": {**SOUND, "type": kind}}, HOME)] == [Level.OK]


def test_the_kind_of_what_is_above_each_users_own_is_not_compared() -> None:
    scratch = Mount(source="10.0.0.1:/scratch/{user}", target="/scratch/{user}")
    told = {scratch.target: {"directory": "/scratch", "wrong": "", "type": "xfs"}}
    assert [each.level for each in judged(told, scratch)] == [Level.OK]


@pytest.mark.parametrize(
    ("told", "level", "says"),
    [
        ({}, Level.ERROR, "its settings name no mount /home"),
        ({"/home": {**SOUND, "wrong": "Stale file handle"}}, Level.ERROR, "mount /home: /home: Stale file handle"),
        ({"/home": {**SOUND, "type": "ext4"}}, Level.WARNING, "/home lies on ext4, and the settings say nfs"),
        ({"/home": {**SOUND, "type": "fuse.glusterfs"}}, Level.WARNING, "/home lies on glusterfs, and the settings"),
    ],
)
def test_what_a_node_lacks_is_told_with_what_to_do(told: dict[str, Any], level: Level, says: str) -> None:
    [found] = judged(told, HOME)
    assert (found.level, found.subject) == (level, "node n1")
    assert says in found.what and found.remedy
