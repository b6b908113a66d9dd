"""Keys: the ed25519 keys that the engine makes, of vjobs and of the ssh servers of VMs."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


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
