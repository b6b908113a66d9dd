"""contrib/quickstart: two of them do not use one directory, and none takes down what is another's."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from minicluster_lib import cli, teardown
from minicluster_lib.layout import MEMBER_VARIABLE, RefusedError

REPOSITORY = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

#: In place of what checks and installs on this machine: nothing of that is what is tested here.
_LIB = """\
refuse() { echo "$program: $*" >&2; exit 2; }
give_up() { echo "$program: $*" >&2; exit 1; }
check_distribution() { :; }
check_root() { :; }
check_namespaces() { :; }
install_everything() { :; }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the real quickstart, and a minicluster that notes what it is told and ends as it is told."""
    contrib = tmp_path / "checkout/contrib"
    contrib.mkdir(parents=True)
    (contrib / "lib.sh").write_text(_LIB)
    (contrib / "quickstart").write_bytes((REPOSITORY / "contrib/quickstart").read_bytes())
    told, status = tmp_path / "told", tmp_path / "status"
    status.write_text("0")
    (contrib / "minicluster").write_text(f'#!/bin/sh\necho "$1" >>{told}\n[ "$1" != up ] || exit "$(cat {status})"\n')
    python = tmp_path / "checkout/.venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    for program in (contrib / "minicluster", contrib / "quickstart", python):
        program.chmod(0o755)
    return tmp_path


def quickstart(checkout: Path) -> subprocess.CompletedProcess[str]:
    words = [checkout / "checkout/contrib/quickstart", "--down-after", "--dir", checkout / "cluster"]
    return subprocess.run(words, capture_output=True, text=True)


def told(checkout: Path) -> list[str]:
    """What the minicluster was told."""
    path = checkout / "told"
    return path.read_text().split() if path.exists() else []


def test_a_quickstart_takes_down_what_it_brought_up(checkout: Path) -> None:
    assert quickstart(checkout).returncode == 0
    assert told(checkout) == ["up", "down"]


def test_one_that_finds_another_at_work_in_its_directory_does_nothing(checkout: Path) -> None:
    with (checkout / ".cluster.quickstart.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = quickstart(checkout)
    assert done.returncode == 2
    assert "another quickstart is at work in" in done.stderr
    assert told(checkout) == []
    assert quickstart(checkout).returncode == 0


def test_one_whose_minicluster_is_refused_takes_nothing_down(checkout: Path) -> None:
    (checkout / "status").write_text("2")
    assert quickstart(checkout).returncode == 2
    assert told(checkout) == ["up"]


def test_one_whose_minicluster_did_not_come_up_takes_it_down(checkout: Path) -> None:
    (checkout / "status").write_text("1")
    assert quickstart(checkout).returncode == 1
    assert told(checkout) == ["up", "down"]


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Path]:
    """The directory of a minicluster of which a process runs, and whose files are in another root."""
    directory = tmp_path / "elsewhere"
    environment = {**os.environ, MEMBER_VARIABLE: str(directory)}
    process = subprocess.Popen(["sleep", "600"], env=environment)
    yield directory
    process.kill()
    process.wait()


def test_a_minicluster_of_another_root_is_not_ended_by_an_up(
    member: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RefusedError, match="one of another root"):
        teardown.check_ours(member)
    monkeypatch.setattr("sys.argv", ["minicluster", "up", "--dir", str(member)])
    monkeypatch.setattr("minicluster_lib.requirements.check", lambda **_: None)
    monkeypatch.setattr(cli, "bring_up", lambda *_: pytest.fail("a cluster is made"))
    assert cli.main() == 2
    assert "one of another root" in capsys.readouterr().err
    assert len(teardown.members(member)) == 1


def test_what_an_up_that_was_killed_has_left_is_its_own(member: Path) -> None:
    member.mkdir()
    (member / teardown.MARKER).touch()
    teardown.check_ours(member)
