"""The minicluster's hosts have /dev/kvm only where QEMU's account may use it."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest
from minicluster_lib import kvm
from minicluster_lib.layout import QEMU_ACCOUNT

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give files away")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    found = tmp_path / "kvm"
    found.touch()
    return found


@pytest.mark.parametrize(
    ("owner", "group", "mode", "usable"),
    [
        ("root", "root", 0o660, False),
        ("root", "root", 0o666, True),
        ("root", QEMU_ACCOUNT, 0o660, True),
        ("root", QEMU_ACCOUNT, 0o606, False),
        (QEMU_ACCOUNT, "root", 0o600, True),
        (QEMU_ACCOUNT, QEMU_ACCOUNT, 0o066, False),
    ],
)
def test_a_device_counts_where_qemus_account_may_read_and_write_it(
    device: Path, owner: str, group: str, mode: int, usable: bool
) -> None:
    try:
        os.chown(device, pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid)
    except KeyError:
        pytest.skip("libvirt is not installed")
    device.chmod(mode)
    assert kvm.usable(device) is usable


def test_a_device_that_is_not_there_does_not_count(tmp_path: Path) -> None:
    assert not kvm.usable(tmp_path / "kvm")
