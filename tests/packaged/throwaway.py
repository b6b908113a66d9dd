"""Throw-away roots: a file tree, this machine's or another, with a layer above it that takes all that is written."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: Of a site, for what setup makes of them.
SETTINGS = """\
[engine]
listen = "127.0.0.1:6830"
url = "http://127.0.0.1:6830"
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.16.10-10.0.31.250"
prefix_length = 16
[image.default]
kind = "kernel"
kernel = "/var/lib/rmsplugin-images/vmlinuz"
initrd = "/var/lib/rmsplugin-images/initrd.img"
overhead_mib = 96
"""

#: Mounts a layer over $1, with what is written below $2 (empty: in memory), shows the directories $4... in it (each
#: FROM:TO), and runs $3 there. All mounts and processes are in namespaces that end with it.
_ENTER = r"""
set -eu
lower=$1 upper=$2 script=$3
shift 3
mount --make-rprivate /
own=$(mktemp -d)
trap 'umount -l "$own" 2>/dev/null || :; rmdir "$own" 2>/dev/null || :' EXIT
mount -t tmpfs -o mode=755 none "$own"
mkdir "$own/root" "$own/layer"
[ -z "$upper" ] || mount --bind "$upper" "$own/layer"
mkdir "$own/layer/upper" "$own/layer/work"
mount -t overlay -o "lowerdir=$lower,upperdir=$own/layer/upper,workdir=$own/layer/work" none "$own/root"
mount -t proc proc "$own/root/proc"
mount --rbind /dev "$own/root/dev"
mount -t tmpfs none "$own/root/run"
mount -t tmpfs none "$own/root/tmp"
chmod 1777 "$own/root/tmp"
for shown in "$@"; do
    mkdir -p "$own/root${shown#*:}"
    mount --rbind -o ro "${shown%%:*}" "$own/root${shown#*:}"
done
mkdir -p "$own/root/srv/written"
mount --bind "$own/layer/upper" "$own/root/srv/written"
printf '#!/bin/sh\nexit 101\n' >"$own/root/usr/sbin/policy-rc.d"
chmod 755 "$own/root/usr/sbin/policy-rc.d"
rm -f "$own/root/var/lib/man-db/auto-update" # an index of all man pages, anew after each package
chroot "$own/root" sh -eu -c "$script"
"""


def run_in(
    lower: Path,
    script: str,
    shown: Mapping[Path, str],
    upper: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root in a throw-away root; no service can be started there.

    What was written is seen below /srv/written there.

    Args:
        lower: the file tree below, which stays as it is.
        script: for /bin/sh; an error ends it.
        shown: directories that are seen in it, by where.
        upper: an empty directory for what is written; None: in memory.
        variables: for the script, beside PATH and HOME.
        timeout_s: seconds after which it is killed.
    """
    command, environment = command_in(lower, script, shown, upper, variables)
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout_s)


def command_in(
    lower: Path,
    script: str,
    shown: Mapping[Path, str],
    upper: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The command that does so, and its environment; arguments as of ``run_in``. All of it ends with its process."""
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child",
        "--",
        "sh",
        "-c",
        _ENTER,
        "sh",
    ]
    command += [str(lower), "" if upper is None else str(upper), script]
    command += [f"{source}:{target}" for source, target in shown.items()]
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **(variables or {}),
    }
    return command, environment


def news(lower: Path, listed: list[str]) -> dict[str, str]:
    """What was written and is news, by path.

    A directory is written anew when something in it is, so those that were there are left out, as are dpkg's own books
    and logs, and what this module has put there.

    Args:
        lower: the file tree below.
        listed: what ``LIST`` says, run in the root.

    Returns:
        kind, mode and owner (``f 644 root:root``); kind c is a file that was there and is gone.
    """
    found = {}
    for line in listed:
        kind, mode, owner, path = line.split(" ", 3)
        was = lower / path.lstrip("/")
        taken = kind == "c" and path == "/root/.ssh"  # that of a test beside this one, which scripts take away
        if not taken and not _OF_OTHERS.match(path) and not (kind == "d" and was.is_dir() and not was.is_symlink()):
            found[path] = f"{kind} {mode} {owner}"
    return found


#: Lists what was written, but for what lies where it is only shown.
LIST = "(cd /srv/written; find . -mindepth 1 -printf '%y %m %u:%g /%P\\n' | LC_ALL=C sort)"
_OF_OTHERS = re.compile(
    r"/srv(/|$)|/usr/sbin/policy-rc\.d$|/var/(log|cache|lib/(dpkg|apt|man-db|pam|systemd))(/|$)"
    r"|/etc/(ld\.so\.cache$|\.pwd\.lock$)"
    r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"
)


def can_be_made() -> bool:
    """Whether this machine lets us have one."""
    if os.geteuid() != 0:
        return False
    return run_in(Path("/"), "true", {}).returncode == 0
