"""PKI: a certificate authority for the cluster, and the certificates of its hosts and its engine.

Only `minicluster up` loads it: it takes longer to import than all else.
"""

from __future__ import annotations

import datetime
import ipaddress
import shutil

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minicluster_lib.files import write
from minicluster_lib.layout import ENGINE_NAME, QEMU_ACCOUNT, Cluster


class Authority:
    """A certificate authority that lives in memory: its key is never written."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(ca=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def issue(self, name: str, addresses: list[str], *, server: bool) -> tuple[bytes, bytes]:
        """Return the certificate and the private key (PEM) of a host, or of a client that serves nobody."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
        if server:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names: list[x509.GeneralName] = [x509.DNSName(name)]
            names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        key_encipherment=not ca,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def install_certificates(cluster: Cluster) -> None:
    """Make the certificates of this cluster and put them where libvirt, QEMU and the engine look for them."""
    authority = Authority("minicluster")
    ca = authority.certificate.public_bytes(serialization.Encoding.PEM)
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
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, f"{public.decode()} {comment}"
