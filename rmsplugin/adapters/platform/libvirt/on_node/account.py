"""QEMU account: the account under which libvirt runs QEMU on this node, and its rights."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmsplugin.adapters.platform.libvirt.on_node.qemu_conf import QEMU_CONF, configured

KVM = Path("/dev/kvm")

#: The accounts of Debian's packages, and of others'; a libvirt that was built without one runs QEMU as root.
_USUAL = ("libvirt-qemu", "qemu")
_TIMEOUT_S = 20


class QEMUAccount(NamedTuple):
    """The account under which QEMU runs."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    def may(self, how: str, path: Path) -> bool:
        """Ask the kernel as that account does: modes, groups and access lists count. ``how``: options of test(1)."""
        words = [word for each in how for word in (f"-{each}", str(path), "-a")][:-1]
        asked = subprocess.run(
            ["/usr/bin/test", *words],
            user=self.uid,
            group=self.gid,
            extra_groups=self.groups,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
        return asked.returncode == 0


def seen(vm_dir: Path) -> dict[str, object]:
    """The node's facts about it."""
    account = configured_account()
    return {"hidden_vm_dir": not_passed(vm_dir, account), "kvm_closed": is_closed(KVM, account)}


def configured_account(qemu_conf: Path = QEMU_CONF) -> QEMUAccount | None:
    """The account that libvirt's settings name for QEMU; None: it is unknown, or only root may take on an account."""
    if os.geteuid() != 0:
        return None
    try:
        user = _user(configured("user", qemu_conf))
        if user is None:
            return None
        group = configured("group", qemu_conf)
        gid = _number(group, lambda name: grp.getgrnam(name).gr_gid) if group else user.pw_gid
    except KeyError:
        return None
    return QEMUAccount(user.pw_uid, gid, tuple(os.getgrouplist(user.pw_name, gid)))


def runs_vms(uid: int, qemu_conf: Path = QEMU_CONF) -> bool:
    """Whether processes of this account may be VMs of libvirt: root's, those of QEMU's account, and of usual ones.

    The usual ones count beside the configured one: VMs go on under the account under which they were started.
    """
    if uid == 0:
        return True
    trusted = {configured("user", qemu_conf), *_USUAL} - {""}
    try:
        if pwd.getpwuid(uid).pw_name in trusted:
            return True
    except KeyError:
        pass  # it may be configured by its number
    return any(_uid(name) == uid for name in trusted)


def not_passed(directory: Path, account: QEMUAccount | None) -> str:
    """The first directory on the way to ``directory`` that the account may not pass; "" if it may pass all.

    For an unknown account: the first directory that not every account may pass.
    """
    # The agent itself gives the directory its mode.
    for each in reversed(directory.parents):
        try:
            mode = each.stat().st_mode
        except OSError:
            break  # another check reports that it is missing
        if not (mode & 0o001 or (account and account.may("x", each))):
            return str(each)
    return ""


def is_closed(device: Path, account: QEMUAccount | None) -> bool | None:
    """Whether the device exists and the account may not open it; None: the account is unknown."""
    if account is None:
        return None
    return device.exists() and not account.may("rw", device)


def _uid(name: str) -> int | None:
    """The number of an account; None: there is none."""
    try:
        return _number(name, lambda given: pwd.getpwnam(given).pw_uid)
    except KeyError:
        return None


def _user(name: str) -> pwd.struct_passwd | None:
    if name:
        return pwd.getpwuid(_number(name, lambda given: pwd.getpwnam(given).pw_uid))
    known = {each.pw_name: each for each in pwd.getpwall() if each.pw_name in _USUAL}
    return next((known[usual] for usual in _USUAL if usual in known), None)


def _number(name: str, find: Callable[[str], int]) -> int:
    """The number of an account or a group, which libvirt takes by name, then by number; with ``+``, by number alone."""
    try:
        return find(name)
    except KeyError:
        digits = name.removeprefix("+")
        if not digits.isdecimal():
            raise
        return int(digits)
