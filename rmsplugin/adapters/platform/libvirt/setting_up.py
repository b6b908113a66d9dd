"""Setting up: where libvirt and QEMU of a VM host look for what they need, as Debian has them."""

from __future__ import annotations

from pathlib import Path

from rmsplugin.adapters.platform.host_files import Certificate, HostFiles

_PKI = Path("/etc/pki")
_ETC = Path("/etc/libvirt")

FILES = HostFiles(
    hook_source=Path("/usr/share/rmsplugin/hooks/qemu"),
    hook=_ETC / "hooks/qemu.d/rmsplugin",
    hook_does="the hook that refuses other VMs",
    values={
        _ETC / "libvirtd.conf": {
            "listen_tls": "1",
            "listen_tcp": "0",
            "tls_no_verify_certificate": "0",
            "tls_allowed_dn_list": '["CN=rmsplugin-engine"]',
        },
        _ETC / "qemu.conf": {
            "migrate_tls_x509_cert_dir": '"/etc/pki/qemu"',
            "migrate_tls_x509_verify": "1",
            "save_image_format": '"lzop"',
            "snapshot_image_format": '"lzop"',
        },
    },
    vm_group="libvirt-qemu",
    private=(_PKI / "libvirt/private",),
    certificates=(
        Certificate(_PKI / "CA/cacert.pem", "authority"),
        Certificate(_PKI / "libvirt/servercert.pem", "certificate"),
        Certificate(_PKI / "libvirt/private/serverkey.pem", "key"),
        Certificate(_PKI / "qemu/ca-cert.pem", "authority"),
        Certificate(_PKI / "qemu/server-cert.pem", "certificate"),
        Certificate(_PKI / "qemu/server-key.pem", "key", for_vms=True),
        Certificate(_PKI / "qemu/client-cert.pem", "certificate"),
        Certificate(_PKI / "qemu/client-key.pem", "key", for_vms=True),
    ),
    start="`systemctl stop libvirtd; systemctl enable --now libvirtd-tls.socket; systemctl start libvirtd`",
)
