"""The locks that keep two minicluster commands, and two runs of try-release, out of one directory."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import minicluster_lib.cli
import minicluster_lib.layout
import pytest
import try_release_lib.root

Lock = Callable[[Path], AbstractContextManager[None]]
REFUSED = (minicluster_lib.layout.RefusedError, try_release_lib.root.RefusedError)


def of_a_root(directory: Path) -> AbstractContextManager[None]:
    return try_release_lib.root.Place(directory, "bookworm").lock()


@pytest.fixture(params=[minicluster_lib.cli._lock, of_a_root], ids=["minicluster", "try-release"])
def lock(request: pytest.FixtureRequest) -> Lock:
    found: Lock = request.param
    return found


def test_one_after_the_other_gets_it_and_no_second_one_meanwhile(lock: Lock, tmp_path: Path) -> None:
    for _ in range(2):
        with lock(tmp_path / "d"), pytest.raises(REFUSED), lock(tmp_path / "d"):
            pytest.fail("two have it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("third", [False, True], ids=["no third", "a third"])
def test_a_file_that_the_one_before_has_removed_is_no_lock(
    lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third: bool
) -> None:
    """It was opened before that, and locked after it; a third one has made a file anew."""
    take = fcntl.flock

    def late(file: int, how: int) -> None:
        (tmp_path / ".d.lock").unlink()
        if third:
            (tmp_path / ".d.lock").touch()
        take(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(REFUSED), lock(tmp_path / "d"):
        pytest.fail("it has nothing that keeps others off")
