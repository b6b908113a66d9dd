"""What a node lets a container have: images and directories of its own settings, and homes of their owners."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmsplugin.adapters.platform.node_base import NodeSettings, WantedVM
from rmsplugin.adapters.platform.podman.on_node import container
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vm_names import TAP_PREFIX

REFERENCE = "localhost/guest:1"
UID = 12345


def allowed(path: str, *targets: str, reference: str = REFERENCE) -> bool:
    settings = SimpleNamespace(references=frozenset({REFERENCE}), mount_targets=targets)
    vm = WantedVM("vjob7-0", "u", 1, 64, reference, ((path, True),), False)
    try:
        container.require_allowed(vm, cast(NodeSettings, settings))
    except OperationFailedError:
        return False
    return True


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
    odd = tmp_path / "with,comma"  # which would be an option for podman
    odd.mkdir()
    os.chown(odd, UID, UID)
    homes[UID] = str(odd)
    assert not allowed(str(odd), "{home}")


def test_what_a_node_filters_has_the_name_that_its_filter_knows() -> None:
    filtered, free = (container.interface_of("vjob7-0", each) for each in (True, False))
    assert filtered.startswith(TAP_PREFIX) and not free.startswith(TAP_PREFIX)
    assert len(filtered) == len(free) == 15
