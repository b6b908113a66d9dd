"""PKI: a certificate authority for the cluster, and the certificates of its hosts and its engine.

Only `minicluster up` loads it: it takes longer to import than all else.
"""

from __future__ import annotations

import shutil

from minicluster_lib.files import write
from minicluster_lib.layout import ENGINE_NAME, QEMU_ACCOUNT, Cluster
from rmsplugin.cli.setup.authority import Authority, ssh_key, ssh_public


def install_certificates(cluster: Cluster) -> None:
    """Make the certificates of this cluster and put them where libvirt, QEMU and the engine look for them."""
    authority = Authority("minicluster", days=30)  # in memory: its key is never written
    ca, _ = authority.pem()
    for host in cluster.node_hosts:
        certificate, key = authority.issue(host.name, [host.address], server=True)
        pki = host.path("etc/pki")
        write(pki / "CA/cacert.pem", ca)
        # No pair for clients: nodes command no other node's libvirt.
        write(pki / "libvirt/servercert.pem", certificate)
        write(pki / "libvirt/private/serverkey.pem", key, mode=0o600)
        for role in ("server", "client"):
            write(pki / f"qemu/{role}-cert.pem", certificate)
            write(pki / f"qemu/{role}-key.pem", key, mode=0o640, group=QEMU_ACCOUNT)
        write(pki / "qemu/ca-cert.pem", ca)
        (pki / "libvirt/private").chmod(0o700)
    certificate, key = authority.issue(ENGINE_NAME, [], server=False)
    engine = cluster.head.path("etc/rmsplugin/pki")
    write(engine / "cacert.pem", ca)
    write(engine / "clientcert.pem", certificate)
    write(engine / "clientkey.pem", key, mode=0o600, owner="slurm")
    shutil.chown(engine, "slurm", "slurm")
    engine.chmod(0o700)


def ssh_key_pair(comment: str) -> tuple[bytes, str]:
    """Return a new ed25519 SSH key: the private half in OpenSSH's format, the public half as one line."""
    private = ssh_key()
    return private, ssh_public(private, comment)
