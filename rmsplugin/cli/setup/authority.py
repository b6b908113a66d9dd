"""Authority: a certificate authority of the cluster, and what it issues, for libvirt's and QEMU's TLS."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """A certificate authority."""

    def __init__(self, name: str, days: int) -> None:
        """Make a new one; it, and what it issues, is good for so many days."""
        self._days = days
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(ca=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @classmethod
    def kept(cls, certificate: bytes, key: bytes, days: int) -> Authority:
        """One that was made before, of its certificate and private key (PEM).

        Raises:
            ValueError: they are none, or are not of one another.
        """
        found = cls.__new__(cls)
        found._days = days
        found.certificate = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("not a key of ours")
        if private.public_key() != found.certificate.public_key():
            raise ValueError("the key is not that of the certificate")
        found._key, found._name = private, found.certificate.subject
        return found

    def pem(self) -> tuple[bytes, bytes]:
        """Return its certificate and its private key."""
        return self.certificate.public_bytes(serialization.Encoding.PEM), _private(self._key)

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=self._days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def issue(
        self, name: str, addresses: Sequence[str], *, server: bool, others: Sequence[str] = ()
    ) -> tuple[bytes, bytes]:
        """Return the certificate and the private key (PEM) of a host, or of a client that serves nobody.

        Args:
            name: its common name, and of a server one of its names.
            addresses: further IP addresses of a server.
            server: whether it may serve, too.
            others: further names of a server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
        if server:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names: list[x509.GeneralName] = [x509.DNSName(each) for each in dict.fromkeys((name, *others))]
            names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _private(key)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
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


def ssh_key() -> bytes:
    """Return the private half of a new ed25519 SSH key, in OpenSSH's format."""
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def ssh_public(private: bytes, comment: str) -> str:
    """Return the public half of such a key, as a line.

    Raises:
        ValueError: it is no key in OpenSSH's format without a passphrase.
    """
    key = serialization.load_ssh_private_key(private, None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.decode()} {comment}"
