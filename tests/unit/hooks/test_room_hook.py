"""What a room's prolog and epilog do on its node: look whether it is fit, and leave no VM behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin import hook, room_hook
from rmsplugin.adapters.platform.libvirt.on_node import account, rooms

SLEEPER = "import time; time.sleep(60)"


class FakeClient:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, body: Any = None, *, timeout_s: float) -> dict[str, Any]:
        self.told.append((method, path, body))
        return {}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a process with a command line, as QEMU's account would; only such ones are in ``tmp_path``/proc."""
    (tmp_path / "proc").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([name, "-c", SLEEPER, *words], executable=sys.executable)
        started.append(process)
        (tmp_path / "proc" / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        while name.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            assert process.poll() is None
        return process

    # A patch of its own: processes are ended when those of a test are undone.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(account, "runs_vms", lambda uid: uid == os.getuid())
        yield begin
    for process in started:
        process.kill()
        process.wait()


def test_the_epilog_ends_vms_of_ours_and_nothing_else(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = start("/usr/bin/qemu-system-x86_64", "-name", "guest=vjob12-0,debug-threads=on")
    others = [
        start("/usr/bin/qemu-system-x86_64", "-name", "guest=webserver,debug-threads=on"),
        start("/usr/bin/qemu-system-x86_64", "-name", "guest=vjob12-0-copy,debug-threads=on"),
        start("vim", "guest=vjob12-0"),
    ]
    # A child that was killed is a zombie with an empty command line until it is reaped, as init does on a node.
    client = FakeClient()
    room_hook.run("epilog", {}, "7", "n1", client, tmp_path / "proc")  # type: ignore[arg-type]
    assert ours.wait(timeout=PATIENCE_S) == -9
    assert [process.poll() for process in others] == [None, None, None]
    body = {"hook": "epilog", "node": "n1", "problem": "", "ended": ["vjob12-0"]}
    assert client.told == [("POST", "/v1/rooms/7/report", body)]


@pytest.mark.parametrize(
    ("runs", "configured", "is_vm"),
    [
        ("root", "", True),
        ("qemu", "", True),
        ("alice", "", False),
        ("sub", "", False),
        ("vms", "", False),
        ("vms", "vms", True),
        ("qemu", "vms", True),
        ("alice", "vms", False),
        ("sub", "+100005", True),
    ],
)
def test_only_processes_of_accounts_of_vms_are_vms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str, configured: str, is_vm: bool
) -> None:
    """Any user can start a program with the command line of a VM; a user's containers have accounts without names."""
    uids = {"root": 0, "qemu": 107, "vms": 108, "alice": 2001}
    monkeypatch.setattr("pwd.getpwnam", lambda name: SimpleNamespace(pw_uid=uids[name]))
    names = {uid: name for name, uid in uids.items()}
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name=names[uid]))
    monkeypatch.setattr("rmsplugin.adapters.platform.libvirt.on_node.account.configured", lambda key, path: configured)
    process = tmp_path / "77"
    process.mkdir()
    (process / "cmdline").write_bytes(b"/usr/bin/qemu-system-x86_64\0-name\0guest=vjob12-0,debug-threads=on\0")
    uid = uids.get(runs, 100005)
    # A set-uid program of root's that a user has started has the user's account first.
    (process / "status").write_text(f"Name:\tqemu\nUid:\t{uid}\t0\t0\t0\nGid:\t0\t0\t0\t0\n")
    assert rooms.running_vms(tmp_path) == ({"vjob12-0": [77]} if is_vm else {})


@pytest.mark.parametrize(("noted", "is_vm"), [("77", True), ("78", False), (None, False)])
def test_what_libvirt_has_noted_is_a_vm_whatever_its_account_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: str | None, is_vm: bool
) -> None:
    """The settings may have got another account since it was started, or the directory of accounts is down."""
    monkeypatch.setattr(rooms, "NOTES", tmp_path)
    monkeypatch.setattr(account, "runs_vms", lambda uid: False)
    process = tmp_path / "proc/77"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"/usr/bin/qemu-system-x86_64\0-name\0guest=vjob12-0,debug-threads=on\0")
    (process / "status").write_text("Name:\tqemu\nUid:\t108\t108\t108\t108\n")
    if noted is not None:
        (tmp_path / "vjob12-0.pid").write_text(noted)
    assert rooms.running_vms(process.parent) == ({"vjob12-0": [77]} if is_vm else {})


def test_a_vm_that_cannot_be_ended_is_told_as_a_problem(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("qemu-system-x86_64", "-name", "guest=vjob3-1")
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    monkeypatch.setattr(room_hook, "_KILLED_WITHIN_S", 0.1)
    client = FakeClient()
    room_hook.run("epilog", {}, "7", "n1", client, tmp_path / "proc")  # type: ignore[arg-type]
    assert client.told[0][2]["problem"] == "vjob3-1 could not be ended"


def test_the_prolog_tells_that_the_store_is_not_there(tmp_path: Path) -> None:
    client = FakeClient()
    settings = {"nodes": {"store": str(tmp_path / "gone")}}
    room_hook.run("prolog", settings, "7", "n1", client, tmp_path)  # type: ignore[arg-type]
    assert client.told[0][2]["problem"] == f"the store {tmp_path}/gone is not there: is it mounted?"


def test_the_prolog_tells_that_libvirt_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "virsh").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "virsh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "libvirt does not answer" in room_hook.unfit({"nodes": {"store": str(tmp_path)}})
    (tmp_path / "virsh").write_text("#!/bin/sh\nexit 0\n")
    assert room_hook.unfit({"nodes": {"store": str(tmp_path)}}) == ""


@pytest.mark.parametrize(
    ("partition", "user", "is_room"),
    [("vmhosts", "slurm", True), ("vmhosts", "root", False), ("plain", "slurm", False), ("vjob", "slurm", False)],
)
def test_only_the_engines_own_jobs_in_a_hosts_partition_are_rooms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: str, user: str, is_room: bool
) -> None:
    path = tmp_path / "rmsplugin.toml"
    path.write_text('[slurm]\npartitions = ["vjob"]\n[partition.vjob]\nhosts = "vmhosts"\n')
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(room_hook, "run", lambda *words: asked.append(words[:1] + words[2:4]))
    environment = {
        "RMSPLUGIN_CONFIG": str(path),
        "SLURM_JOB_PARTITION": partition,
        "SLURM_JOB_USER": user,
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "n1",
    }
    hook.run("epilog", environment)
    assert asked == ([("epilog", "7", "n1")] if is_room else [])
