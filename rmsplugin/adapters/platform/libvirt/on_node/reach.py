"""Reach: whether the libvirt of another node obeys this one, which it must not; for `rmsplugin check`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

_TIMEOUT_S = 12.0

#: It connects in a process of its own: libvirt's connect blocks in C for as long as the other side pleases.
_CONNECT = """
import sys, libvirt
libvirt.registerErrorHandler(lambda context, error: None, None)
try:
    libvirt.open(sys.argv[1]).close()
except libvirt.libvirtError as error:
    sys.exit(str(error))
"""

#: Certificates of a node with their keys; root there may show them as its own to any libvirtd.
_CERTIFICATES = (
    ("/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/private/clientkey.pem"),
    ("/etc/pki/libvirt/servercert.pem", "/etc/pki/libvirt/private/serverkey.pem"),
    ("/etc/pki/qemu/server-cert.pem", "/etc/pki/qemu/server-key.pem"),
)
_AUTHORITY = "/etc/pki/CA/cacert.pem"


def is_open(node: str) -> bool:
    """Whether the node's libvirt obeys this node, by any of the certificates that root has here."""
    return any(_accepts(node, *pair) for pair in _CERTIFICATES if all(map(os.path.exists, pair)))


def _accepts(node: str, certificate: str, key: str) -> bool:
    """Whether the node's libvirt accepts this node's certificate as a client's."""
    with tempfile.TemporaryDirectory() as directory:
        for name, path in (("cacert.pem", _AUTHORITY), ("clientcert.pem", certificate), ("clientkey.pem", key)):
            os.symlink(path, os.path.join(directory, name))
        command = [sys.executable, "-c", _CONNECT, f"qemu+tls://{node}/system?pkipath={directory}"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
