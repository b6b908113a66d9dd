"""Libvirt: one libvirtd for each node, reached by TLS with client certificates only."""

from __future__ import annotations

import os
import secrets
import shutil
import uuid
from pathlib import Path

from minicluster_lib import control_groups, hosts
from minicluster_lib.cache import cache_directory
from minicluster_lib.files import write
from minicluster_lib.layout import ENGINE_NAME, LIBVIRT_TLS_PORT, QEMU_ACCOUNT, REPOSITORY, VENV, Cluster, Host
from minicluster_lib.waiting import wait_until

_LIBVIRTD_CONF = """\
listen_tls = 1
listen_tcp = 0
tls_port = "{port}"
listen_addr = "{address}"
key_file = "/etc/pki/libvirt/private/serverkey.pem"
cert_file = "/etc/pki/libvirt/servercert.pem"
ca_file = "/etc/pki/CA/cacert.pem"
tls_no_verify_certificate = 0
tls_allowed_dn_list = ["CN={engine}"]
auth_tls = "none"
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_group = "root"
unix_sock_ro_perms = "0700"
unix_sock_rw_perms = "0700"
host_uuid = "{host_uuid}"
max_clients = 200
max_client_requests = 50
min_workers = 4
max_workers = 30
log_outputs = "2:stderr"
"""

_QEMU_CONF = """\
user = "{account}"
group = "{account}"
security_driver = "none"
cgroup_controllers = [{controllers}]
namespaces = []
stdio_handler = "file"
migrate_tls_x509_cert_dir = "/etc/pki/qemu"
migrate_tls_x509_verify = 1
default_tls_x509_cert_dir = "/etc/pki/qemu"
default_tls_x509_verify = 1
auto_dump_path = "/var/lib/libvirt/qemu/dump"
save_image_format = "{save_format}"
snapshot_image_format = "{save_format}"
"""

#: Where libvirtd keeps what it has learnt of each QEMU.
_CAPABILITIES = "var/cache/libvirt/qemu/capabilities"

#: Debian's file names the formats that its libvirt knows: zstd since Debian 13.
_DEBIANS_QEMU_CONF = Path("/etc/libvirt/qemu.conf")


def install_configuration(cluster: Cluster) -> None:
    """Write the nodes' /etc/libvirt."""
    for node in cluster.node_hosts:
        directory = node.path("etc/libvirt")
        (directory / "libvirtd.conf").write_text(
            _LIBVIRTD_CONF.format(
                port=LIBVIRT_TLS_PORT, address=node.address, engine=ENGINE_NAME, host_uuid=uuid.uuid4()
            )
        )
        controllers = ", ".join(f'"{name}"' for name in control_groups.CONTROLLERS if control_groups.hierarchies())
        (directory / "qemu.conf").write_text(
            _QEMU_CONF.format(account=QEMU_ACCOUNT, save_format=_save_format(), controllers=controllers)
        )
        (directory / "libvirt.conf").write_text("")
        (directory / "hooks").mkdir(exist_ok=True)
        hook = (REPOSITORY / "hooks/qemu").read_text().replace("/usr/bin/rmsplugin-node", f"{VENV}/bin/rmsplugin-node")
        write(directory / "hooks/qemu", hook.encode(), mode=0o755)
        copy_capabilities(_known_capabilities(), node.path(_CAPABILITIES))


def keep_capabilities(cluster: Cluster) -> None:
    """Keep what the nodes' libvirtds have learnt of each QEMU, for those of the next clusters.

    To learn it they start each QEMU that there is, with and without KVM, which takes 2 s of CPU time. libvirtd itself
    looks whether what it finds is of this QEMU, this libvirt and this kernel, and learns it anew if not.
    """
    copy_capabilities(cluster.node_hosts[0].path(_CAPABILITIES), _known_capabilities())


def copy_capabilities(source: Path, target: Path) -> None:
    """Copy the files that are not the same there; who reads one beside this sees the old or the new one, whole."""
    for file in sorted(source.glob("*.xml")):
        content = file.read_bytes()
        known = target / file.name
        if not known.exists() or known.read_bytes() != content:
            target.mkdir(parents=True, exist_ok=True)
            new = known.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
            new.write_bytes(content)
            shutil.copystat(file, new)
            new.rename(known)


def _known_capabilities() -> Path:
    return cache_directory() / "libvirt-capabilities"


def _save_format() -> str:
    """The fastest compression of saved states that this libvirt knows."""
    return "zstd" if '"zstd"' in _DEBIANS_QEMU_CONF.read_text() else "lzop"


def start(node: Host) -> None:
    """Start a node's libvirtd, which is started again when it crashes, as by Debian's unit.

    Debian 12's may crash when the compression of a state fails, for its thread writes the program's words to a buffer
    that is no longer there (qemuMigrationSrcToFile of libvirt 9.0). QEMU goes on.
    """
    hosts.start_daemon(node, "libvirtd", ["/usr/sbin/libvirtd", "--listen"], restart_on_crash=True)


def wait_until_ready(cluster: Cluster, node: Host) -> None:
    """Wait until a node's libvirtd answers over TLS, as the engine asks it."""
    uri = f"qemu+tls://{node.name}/system?pkipath=/etc/rmsplugin/pki"

    def answers() -> bool:
        command = ["virsh", "-c", uri, "domcapabilities"]
        return hosts.run(cluster, cluster.head, command, user="slurm", check=False).returncode == 0

    wait_until(answers, 60, f"libvirtd on {node.name}")
