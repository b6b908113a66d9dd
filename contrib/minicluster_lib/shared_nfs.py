"""Shared by NFS: what two controllers share comes from a server on the last node, over the cluster's network.

Each controller mounts it where the files of this machine are otherwise, in a mount namespace of its own: by its kernel,
or by a client in user space (``nfs_client``) where the kernel knows no NFS. A controller that is cut off is so from its
shared directory, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from minicluster_lib import controllers, hosts, nfs
from minicluster_lib.layout import REPOSITORY, Cluster, Host, RefusedError
from minicluster_lib.nfs_client.fuse import DEVICE, TYPE
from minicluster_lib.waiting import wait_until

PATHS = (controllers.SHARED, controllers.SLURM_STATE)
_TYPES = ("nfs4", TYPE)


def kernel_has_nfs() -> bool:
    """Whether this machine's kernel is a client of NFS 4 itself."""
    return any(line.split()[-1:] == ["nfs4"] for line in Path("/proc/filesystems").read_text().splitlines())


def check() -> None:
    """Refuse a machine that has no client."""
    if not kernel_has_nfs() and not os.access(DEVICE, os.R_OK | os.W_OK):
        raise RefusedError(f"{DEVICE} can't be opened, and the kernel knows no NFS: --shared nfs needs one of them")


def install_configuration(cluster: Cluster) -> None:
    """Write what the server exports. Nothing without it."""
    if (server := cluster.file_server) is not None:
        nfs.configure(server, PATHS, root_too=True)


def start(cluster: Cluster) -> None:
    """Start the server, and the clients, which mount as soon as it answers. Nothing without it."""
    if (server := cluster.file_server) is None:
        return
    nfs.start(cluster, server)
    for host in _clients(cluster):
        for path in PATHS:
            if not kernel_has_nfs():
                _start_client(host, server, path)


def _clients(cluster: Cluster) -> list[Host]:
    return [cluster.head, *([cluster.second] if cluster.second is not None else [])]


def _start_client(host: Host, server: Host, path: str) -> None:
    hosts.start_daemon(
        host,
        f"nfs-{path.rpartition('/')[2]}",
        [sys.executable, "-m", "minicluster_lib.nfs_client", f"{server.address}:{path}", path],
        environment={"PYTHONPATH": str(REPOSITORY / "contrib"), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def wait_until_mounted(cluster: Cluster) -> None:
    """Wait until each controller has all of it. Nothing without a server."""
    if (server := cluster.file_server) is None:
        return
    for host in _clients(cluster):
        for path in PATHS:
            wait_until(
                lambda host=host, path=path: _mounted(cluster, host, server, path),  # type: ignore[misc]
                60,
                f"{path} by NFS on {host.name} (see: minicluster logs {host.name})",
            )


def _mounted(cluster: Cluster, host: Host, server: Host, path: str) -> bool:
    mounts = Path(f"/proc/{cluster.init_pids[host.name]}/mounts").read_text().splitlines()
    if any(line.split()[1:3] == [path, kind] for line in mounts for kind in _TYPES):
        return True
    if kernel_has_nfs():
        words = ["mount", "-t", "nfs4", "-o", nfs.MOUNT_OPTIONS, f"{server.address}:{path}", path]
        return hosts.run(cluster, host, words, check=False).returncode == 0
    return False
