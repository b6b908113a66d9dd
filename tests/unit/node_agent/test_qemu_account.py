"""What the node's agent says of QEMU's account: asked of the kernel, as that account."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from others import open_directory

from rmsplugin.adapters.platform.libvirt.on_node.account import configured_account, is_closed, not_passed

#: Every Debian has these.
USER, GROUP = "nobody", "daemon"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take on an account")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may pass: pytest's own are for nobody else."""
    with open_directory() as directory:
        yield directory


def conf(place: Path, *lines: str) -> Path:
    path = place / "qemu.conf"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@as_root
@pytest.mark.parametrize(("group", "mode", "passed"), [
    (GROUP, 0o750, True),
    (GROUP, 0o710, True),
    (GROUP, 0o700, False),
    ("root", 0o750, False),
    ("root", 0o751, True),
])  # fmt: skip
def test_a_directory_is_passed_by_whoever_has_its_group(place: Path, group: str, mode: int, passed: bool) -> None:
    account = configured_account(conf(place, f'user = "{USER}"', f'group = "{GROUP}"'))
    above = place / "above"
    (above / "vm").mkdir(parents=True)
    os.chown(above, 0, grp.getgrnam(group).gr_gid)
    above.chmod(mode)
    assert not_passed(above / "vm", account) == ("" if passed else str(above))


@as_root
@pytest.mark.parametrize(("group", "mode", "closed"), [
    (GROUP, 0o660, False),
    (GROUP, 0o640, True),
    ("root", 0o660, True),
    ("root", 0o666, False),
])  # fmt: skip
def test_a_device_is_closed_to_whoever_may_not_both_read_and_write_it(
    place: Path, group: str, mode: int, closed: bool
) -> None:
    account = configured_account(conf(place, f'user = "{USER}"', f'group = "{GROUP}"'))
    device = place / "kvm"
    assert is_closed(device, account) is False, "it is not there"
    device.touch()
    os.chown(device, 0, grp.getgrnam(group).gr_gid)
    device.chmod(mode)
    assert is_closed(device, account) is closed


@as_root
@pytest.mark.parametrize(("lines", "uid", "gid"), [
    (('user = "nobody"',), 65534, 65534),
    (('user = "+65534"', 'group = "1"'), 65534, 1),
    (('#user = "daemon"', "user = 'root' # ours", 'user = "daemon"'), 0, 0),
])  # fmt: skip
def test_libvirts_settings_say_whom_qemu_runs_as(place: Path, lines: tuple[str, ...], uid: int, gid: int) -> None:
    account = configured_account(conf(place, *lines))
    assert account is not None
    assert (account.uid, account.gid) == (uid, gid)


@pytest.mark.parametrize("lines", [('user = "nobody-of-this-name"',), ('user = "root"', 'group = "+none"')])
def test_an_account_that_is_not_there_is_not_known(place: Path, lines: tuple[str, ...]) -> None:
    assert configured_account(conf(place, *lines)) is None
    device = place / "kvm"
    device.touch(0o600)
    assert is_closed(device, None) is None
