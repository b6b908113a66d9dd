"""Several miniclusters may go down at once: the groups of one are found while those of others vanish."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from minicluster_lib import control_groups

_COME_AND_GO = """
import sys
from pathlib import Path
others = [Path(sys.argv[1]) / "others" / str(number) for number in range(20)]
print(flush=True)
while True:
    for each in others:
        each.mkdir(parents=True)
    for each in others:
        each.rmdir()
"""


@pytest.fixture
def hierarchy(tmp_path: Path) -> Iterator[Path]:
    """A hierarchy in which groups come and go."""
    command = [sys.executable, "-c", _COME_AND_GO, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as others:
        assert others.stdout is not None
        assert others.stdout.read(1) == b"\n"
        yield tmp_path
        assert others.poll() is None
        others.kill()


def test_groups_are_found_and_removed_while_others_vanish(hierarchy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "hierarchies", lambda *_: {hierarchy: "memory"})
    directory = Path("/a/minicluster")
    top = hierarchy / "caller" / f"{control_groups._name(directory)}n1"
    (top / "job" / "step").mkdir(parents=True)
    for _ in range(300):
        assert control_groups.of(directory) == [top]
    control_groups.remove(directory)
    assert list((hierarchy / "caller").iterdir()) == []
