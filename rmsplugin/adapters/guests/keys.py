"""Keys: ed25519 keys by the engine, of vjobs and of the ssh servers of VMs."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rmsplugin.errors import RefusedError


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An ed25519 key of ours: of a vjob, or of a VM's ssh server."""

    private_openssh: str = field(repr=False)
    public: str


def generate_keypair() -> KeyPair:
    """Make an ed25519 key pair; ``public`` is ``ssh-ed25519 AAAA...`` without a comment."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())


def public_of(private_openssh: str) -> str:
    """The public half of a private key of ours, as of ``KeyPair``. Raises ValueError."""
    key = serialization.load_ssh_private_key(private_openssh.encode(), None).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def dropbear_key(private_openssh: str) -> bytes:
    """The same private ed25519 key in Dropbear's form; an emulated guest would take 0.2 s to make it from OpenSSH's.

    Raises:
        RefusedError: it is not an ed25519 key in OpenSSH's form.
    """
    try:
        key = serialization.load_ssh_private_key(private_openssh.encode(), None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RefusedError(f"a key that Dropbear is to get cannot be read: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise RefusedError("a key that Dropbear is to get is not an ed25519 key")
    private = key.private_bytes(
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return _string(b"ssh-ed25519") + _string(private + public)


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content
