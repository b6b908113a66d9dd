"""What a node lets a container have: images and directories of its own settings, and homes of their owners."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmsplugin.adapters.platform.node_base import NodeSettings, WantedVM
from rmsplugin.adapters.platform.podman.on_node import container, directories
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vm_names import TAP_PREFIX

REFERENCE = "localhost/guest:1"
UID = 12345


def allowed(path: str, *targets: str, reference: str = REFERENCE) -> bool:
    """Whether the settings name it, be it there or not."""
    settings = SimpleNamespace(references=frozenset({REFERENCE}), mount_targets=targets)
    vm = WantedVM("vjob7-0", "u", 1, 64, reference, ((path, True),), False)
    try:
        container.require_allowed(vm, cast(NodeSettings, settings))
    except OperationFailedError as error:
        return not re.search("no (image|mount) of this node's settings", str(error))
    return True


def refusal(path: Path, target: str) -> str:
    """Why a directory that is there is not given to a container; "" if it is."""
    try:
        directories.require_allowed(str(path), [target])
    except OperationFailedError as error:
        return str(error)
    return ""


def test_a_directory_of_the_settings_is_allowed_and_no_other() -> None:
    assert allowed("/home", "/scratch", "/home")
    for path in ("/", "/etc", "/home/", "/home/alice", "/home2", "home", "/home/..", ""):
        assert not allowed(path, "/scratch", "/home"), path
    assert not allowed("/home", "/home", reference="localhost/guest:2")


def test_a_users_directory_is_that_of_any_user_and_nothing_beyond() -> None:
    assert allowed("/scratch/alice", "/scratch/{user}")
    assert allowed("/scratch/alice/x", "/scratch/{user}/x")
    for path in (
        "/scratch",
        "/scratch/",
        "/scratch/alice/y",
        "/scratch/..",
        "/scratch/.ssh",
        "/scratch/a,ro",
        "/scratch/a b",
    ):
        assert not allowed(path, "/scratch/{user}"), path


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give directories away")
def test_a_home_is_that_of_the_account_that_owns_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other, roots = (tmp_path / name for name in ("home", "other", "roots"))
    for directory in (home, other, roots):
        directory.mkdir()
    os.chown(home, UID, UID)
    os.chown(other, UID, UID)
    homes = {UID: str(home), 0: str(roots)}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=homes[uid]))
    assert allowed(str(home), "{home}")
    for path in (other, roots, tmp_path / "nowhere", home / "below"):
        assert not allowed(str(path), "{home}"), path
    assert allowed(f"{home}/work", "{home}/work") and not allowed(f"{other}/work", "{home}/work")
    assert allowed(f"/data{home}{home}", "/data{home}{home}") and not allowed(
        f"/data{home}{other}", "/data{home}{home}"
    )
    odd = tmp_path / "with,comma"  # which would be an option for podman
    odd.mkdir()
    os.chown(odd, UID, UID)
    homes[UID] = str(odd)
    assert not allowed(str(odd), "{home}")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A directory of root's, below others of root's, with one of a user in it."""
    found = tmp_path / "scratch"
    found.mkdir(mode=0o755)
    (found / "alice").mkdir()
    os.chown(found / "alice", UID, UID)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give directories away")
def test_a_directory_that_root_alone_could_exchange_is_given(scratch: Path) -> None:
    assert refusal(scratch / "alice", f"{scratch}/{{user}}") == ""
    assert "No such file" in refusal(scratch / "bob", f"{scratch}/{{user}}")
    (scratch.parent / "moved").symlink_to("scratch")  # as a site does that has moved its homes
    assert refusal(scratch.parent / "moved/alice", f"{scratch.parent}/moved/{{user}}") == ""
    scratch.chmod(0o775)  # group root
    assert refusal(scratch / "alice", f"{scratch}/{{user}}") == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give directories away")
@pytest.mark.parametrize(("mode", "owner", "group"), [(0o1777, 0, 0), (0o777, 0, 0), (0o775, 0, UID), (0o755, UID, 0)])
def test_a_directory_that_its_user_can_exchange_for_any_of_the_node_is_refused(
    scratch: Path, mode: int, owner: int, group: int
) -> None:
    os.chown(scratch, owner, group)
    scratch.chmod(mode)
    for makes in (lambda: None, lambda: os.rename(scratch / "alice", scratch / "gone")):
        makes()
        if not (scratch / "alice").exists():
            (scratch / "alice").symlink_to("/etc")
            os.chown(scratch / "alice", UID, UID, follow_symlinks=False)
        assert f"{scratch} is not root's alone" in refusal(scratch / "alice", f"{scratch}/{{user}}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give directories away")
def test_what_lies_in_a_users_directory_is_refused(scratch: Path) -> None:
    (scratch / "alice" / "work").symlink_to("/etc")
    assert f"{scratch}/alice is not root's alone" in refusal(scratch / "alice/work", f"{scratch}/{{user}}/work")
    (scratch / "link").symlink_to("alice/work")
    assert f"{scratch}/alice is not root's alone" in refusal(scratch / "link", f"{scratch}/link")
    (scratch / "round").symlink_to("round")
    assert "round is not root's alone" in refusal(scratch / "round", f"{scratch}/round")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give directories away")
def test_what_is_roots_in_a_directory_of_all_is_given(scratch: Path) -> None:
    """As /tmp is: nobody but root renames there what is root's."""
    scratch.chmod(0o1777)
    (scratch / "site").mkdir()
    assert refusal(scratch / "site", f"{scratch}/site") == ""


def test_what_a_node_filters_has_the_name_that_its_filter_knows() -> None:
    filtered, free = (container.interface_of("vjob7-0", each) for each in (True, False))
    assert filtered.startswith(TAP_PREFIX) and not free.startswith(TAP_PREFIX)
    assert len(filtered) == len(free) == 15
