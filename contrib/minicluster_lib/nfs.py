"""NFS: user-space servers. From the head's, guests mount /home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minicluster_lib import hosts
from minicluster_lib.cache import package_versions
from minicluster_lib.layout import Cluster, Host
from minicluster_lib.waiting import wait_until

NFS_PORT = 2049
_LISTENS = "0A"  # in /proc/net/tcp
MOUNT_OPTIONS = f"vers=4.2,proto=tcp,port={NFS_PORT},hard"

# Since release 5 the server wants to ask for memory as a disk's driver does, and ends where it may not (in containers).
_MAY_NOT_FLUSH = "    allow_set_io_flusher_fail = true;\n"

# Hosts have the files without the server, which is not told what they do with them: it keeps neither attributes nor
# names.
_GANESHA_CONF = """\
NFS_CORE_PARAM {{
    Protocols = 4;
    NFS_Port = {nfs_port};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Bind_addr = {address};
{more}}}
NFSV4 {{
    Minor_Versions = 1, 2;
    Only_Numeric_Owners = true;
    Delegations = false;
}}
MDCACHE {{
    Dir_Chunk = 0;
}}
{exports}LOG {{
    Default_Log_Level = EVENT;
}}
"""

_EXPORT = """\
EXPORT {{
    Export_Id = {number};
    Path = {path};
    Pseudo = {path};
    Access_Type = RW;
    Squash = {squash};
    SecType = sys;
    PrivilegedPort = true;
    Protocols = 4;
    Transports = TCP;
    Attr_Expiration_Time = 0;
    FSAL {{
        Name = VFS;
    }}
}}
"""


def install_configuration(cluster: Cluster) -> None:
    """Write the head's /etc/ganesha."""
    configure(cluster.head, ["/home"], root_too=False)


def configure(host: Host, paths: Sequence[str], *, root_too: bool) -> None:
    """Write a host's /etc/ganesha.

    Args:
        host: where the server is to run.
        paths: the directories that it exports.
        root_too: whether root is root there, too, and not nobody.
    """
    directory = host.path("etc/ganesha")
    directory.mkdir(exist_ok=True)
    squash = "No_Root_Squash" if root_too else "Root_Squash"
    exports = [_EXPORT.format(number=number, path=path, squash=squash) for number, path in enumerate(paths, 1)]
    version = package_versions(["nfs-ganesha"]).get("nfs-ganesha", "")
    more = "" if version.startswith(("3.", "4.")) else _MAY_NOT_FLUSH
    text = _GANESHA_CONF.format(address=host.address, nfs_port=NFS_PORT, more=more, exports="".join(exports))
    (directory / "ganesha.conf").write_text(text)


def start(cluster: Cluster, host: Host) -> None:
    """Start a host's NFS server, and the port mapper without which it does not start; clients do not need that one."""
    hosts.run(cluster, host, ["install", "-d", "-o", "_rpc", "/run/rpcbind"])
    hosts.start_daemon(host, "rpcbind", ["/usr/sbin/rpcbind", "-f", "-w"])
    hosts.run(cluster, host, ["mkdir", "-p", "/run/ganesha", "/var/lib/nfs/ganesha"])
    hosts.start_daemon(
        host,
        "nfs",
        [
            "/usr/bin/ganesha.nfsd",
            "-F",
            "-L",
            "/var/log/nfs.log",
            "-f",
            "/etc/ganesha/ganesha.conf",
            "-p",
            "/run/ganesha/ganesha.pid",
        ],
    )


def wait_until_ready(cluster: Cluster) -> None:
    """Wait until the NFS server listens: without it no guest has its user's files."""

    def answers() -> bool:
        for name in ("tcp", "tcp6"):
            table = Path(f"/proc/{cluster.init_pids[cluster.head.name]}/net/{name}")
            rows = [line.split()[1:4] for line in table.read_text().splitlines()] if table.exists() else []
            if any(local.endswith(f":{NFS_PORT:04X}") and state == _LISTENS for local, _, state in rows):
                return True
        return False

    wait_until(answers, 60, "the NFS server (see: minicluster logs head nfs)")
