"""hooks/criu: it stops a restored container before it goes on, and leaves its group itself, with CRIU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[3] / "hooks/criu"
GROUP = "/rmsplugin/vjob7-0/libpod-0123"


class Node:
    """A node's control groups and /proc, as files."""

    def __init__(self, root: Path, version: int) -> None:
        self.version = version
        self.proc, self.groups = root / "proc", root / "groups"
        self.top = self.groups if version == 2 else self.groups / "freezer"
        self.file = self.top / GROUP[1:] / ("cgroup.freeze" if version == 2 else "freezer.state")
        self.file.parent.mkdir(parents=True)
        self.file.write_text("")
        (self.proc / "77").mkdir(parents=True)
        lines = [f"6:freezer:{GROUP}", "5:cpu,cpuacct:/elsewhere", "0::/"] if version == 1 else [f"0::{GROUP}"]
        (self.proc / "77/cgroup").write_text("".join(f"{line}\n" for line in lines))
        if version == 2:
            (self.groups / "cgroup.controllers").write_text("cpu memory\n")
        self.hook = root / "hook"
        text = HOOK.read_text().replace("/sys/fs/cgroup", str(self.groups)).replace('"/proc/', f'"{self.proc}/')
        self.hook.write_text(text)

    def runs(self, action: str) -> int:
        environment = {"PATH": os.environ["PATH"], "CRTOOLS_SCRIPT_ACTION": action, "CRTOOLS_INIT_PID": "77"}
        return subprocess.run(["/bin/sh", str(self.hook)], env=environment, capture_output=True).returncode

    @property
    def aside(self) -> Path:
        return self.file.parent.parent / "criu/cgroup.procs"


@pytest.fixture(params=[1, 2])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, request.param)


def test_before_processes_go_on_their_group_is_frozen_and_criu_is_out_of_it(node: Node) -> None:
    assert node.runs("post-restore") == 0
    assert node.file.read_text() == ""
    assert node.aside.read_text().strip() == str(os.getpid()), "the parent of the hook is CRIU"
    assert node.runs("pre-resume") == 0
    assert node.file.read_text().strip() == {1: "FROZEN", 2: "1"}[node.version]


@pytest.mark.parametrize("action", ["pre-dump", "network-lock", "setup-namespaces", "post-resume", ""])
def test_nothing_is_done_at_other_stages(node: Node, action: str) -> None:
    assert node.runs(action) == 0
    assert not node.aside.exists() and node.file.read_text() == ""


def test_a_restore_ends_where_the_container_could_not_be_stopped(node: Node) -> None:
    node.file.unlink()
    assert node.runs("post-restore") != 0
    (node.proc / "77/cgroup").unlink()
    assert node.runs("post-restore") != 0
