"""NFS: the head's user-space NFS server, from which guests mount /home."""

from __future__ import annotations

from minicluster_lib import hosts
from minicluster_lib.layout import HEAD_ADDRESS, Cluster

NFS_PORT = 2049
MOUNT_PORT = 20048
MOUNT_OPTIONS = (
    f"vers=3,nolock,proto=tcp,port={NFS_PORT},mountproto=tcp,mountport={MOUNT_PORT},addr={HEAD_ADDRESS}"
    f",mountaddr={HEAD_ADDRESS},hard"
)

_GANESHA_CONF = f"""\
NFS_CORE_PARAM {{
    Protocols = 3;
    NFS_Port = {NFS_PORT};
    MNT_Port = {MOUNT_PORT};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Bind_addr = {HEAD_ADDRESS};
}}
EXPORT {{
    Export_Id = 1;
    Path = /home;
    Pseudo = /home;
    Access_Type = RW;
    Squash = Root_Squash;
    SecType = sys;
    PrivilegedPort = true;
    Protocols = 3;
    Transports = TCP;
    FSAL {{
        Name = VFS;
    }}
}}
LOG {{
    Default_Log_Level = EVENT;
}}
"""


def install_configuration(cluster: Cluster) -> None:
    """Write the head's /etc/ganesha."""
    directory = cluster.head.path("etc/ganesha")
    directory.mkdir(exist_ok=True)
    (directory / "ganesha.conf").write_text(_GANESHA_CONF)


def start(cluster: Cluster) -> None:
    """Start the NFS server, and the port mapper without which it does not start; guests do not need that one."""
    head = cluster.head
    hosts.run(cluster, head, ["install", "-d", "-o", "_rpc", "/run/rpcbind"])
    hosts.start_daemon(head, "rpcbind", ["/usr/sbin/rpcbind", "-f", "-w"])
    hosts.run(cluster, head, ["mkdir", "-p", "/run/ganesha", "/var/lib/nfs/ganesha"])
    hosts.start_daemon(
        head,
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
