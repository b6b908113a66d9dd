"""The directory that controllers share: it has a name of its own, and is the engine's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmsplugin.engine.shared_dir import identity_of
from rmsplugin.errors import SettingsError


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "shared"
    path.mkdir(mode=0o700)
    return path


def test_a_directory_gets_its_name_once(shared: Path, tmp_path: Path) -> None:
    name = identity_of(shared)
    assert len(name) == 32 and identity_of(shared) == name
    assert [path.name for path in shared.iterdir()] == ["identity"]
    other = tmp_path / "not mounted"
    other.mkdir(mode=0o700)
    assert identity_of(other) != name


def test_of_two_controllers_that_name_it_at_the_same_moment_one_wins(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    others = []

    def late_link(*names: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        others.append(identity_of(shared))
        link(*names)

    monkeypatch.setattr(os, "link", late_link)
    assert identity_of(shared) == others[0]


def test_a_directory_that_is_not_there_or_open_to_others_is_refused(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"No such file or directory. Is it mounted\?"):
        identity_of(tmp_path / "none")
    shared.chmod(0o750)
    with pytest.raises(SettingsError, match=r"has to be a directory of engine\.user alone"):
        identity_of(shared)
    (tmp_path / "file").touch(mode=0o600)
    with pytest.raises(SettingsError, match="has to be a directory"):
        identity_of(tmp_path / "file")


def test_a_name_that_is_none_is_refused(shared: Path) -> None:
    (shared / "identity").write_bytes(b"\xff\xfe /../")
    with pytest.raises(SettingsError, match="holds no name of a shared directory"):
        identity_of(shared)
