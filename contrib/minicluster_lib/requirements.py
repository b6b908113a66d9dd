"""Requirements: what this machine must have, and clear words for what it lacks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from minicluster_lib.cache import package_versions
from minicluster_lib.layout import REPOSITORY, RefusedError

PACKAGES_FILE = REPOSITORY / "contrib" / "packages.txt"


def wanted_packages() -> list[str]:
    """Return the Debian packages of contrib/packages.txt."""
    lines = (line.split("#")[0].strip() for line in PACKAGES_FILE.read_text().splitlines())
    return [line for line in lines if line]


def check_root() -> None:
    """Refuse to go on when not root."""
    if os.geteuid() != 0:
        raise RefusedError("this needs root (network and mount namespaces); try: sudo contrib/minicluster ...")


#: A node with containers has none of these; the libraries of a newer CRIU need not fit them either.
_OF_LIBVIRT = frozenset({"libvirt-daemon-system", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86"})


def check(*, libvirt: bool = True) -> None:
    """Refuse to go on when the machine can't host a minicluster, naming the first thing to put right.

    Args:
        libvirt: its guests are VMs of libvirt's.
    """
    check_root()
    _check_distribution()
    _check_namespaces()
    wanted = [name for name in wanted_packages() if libvirt or name not in _OF_LIBVIRT]
    installed = package_versions(wanted)
    missing = [name for name in wanted if name not in installed]
    if missing:
        raise RefusedError(
            "Debian packages are missing; contrib/quickstart installs them, or: "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    if libvirt and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise RefusedError("/dev/net/tun can't be opened: guests need it for their network interfaces")


def _check_distribution() -> None:
    try:
        values = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    except OSError:
        values = {}
    name, version = (values.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))
    if name != "debian" or (version and int(version.split(".")[0]) < 12):
        shown = values.get("PRETTY_NAME", "an unknown system").strip('"')
        raise RefusedError(f"this needs Debian 12 or later; here is {shown}")


def _check_namespaces() -> None:
    result = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "ip", "link", "add", "type", "veth"],
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise RefusedError(
            "network, mount and PID namespaces with virtual Ethernet can't be made here "
            f"(a container without privileges?): {result.stderr.strip()}"
        )
