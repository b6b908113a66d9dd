"""KVM: whether QEMU's account may use it on this machine.

Where only others may open /dev/kvm, libvirt takes what it knows of QEMU for outdated each time that it looks, and asks
QEMU anew: several starts of QEMU for each call. So such a device is left out of the hosts.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from minicluster_lib.layout import QEMU_ACCOUNT

DEVICE = "kvm"


def usable(device: Path = Path("/dev") / DEVICE) -> bool:
    """Whether QEMU's account may read and write the device."""
    try:
        status, account = device.stat(), pwd.getpwnam(QEMU_ACCOUNT)
    except (OSError, KeyError):
        return False
    if status.st_uid == account.pw_uid:
        wanted = stat.S_IRUSR | stat.S_IWUSR
    elif status.st_gid in os.getgrouplist(QEMU_ACCOUNT, account.pw_gid):
        wanted = stat.S_IRGRP | stat.S_IWGRP
    else:
        wanted = stat.S_IROTH | stat.S_IWOTH
    return status.st_mode & wanted == wanted
