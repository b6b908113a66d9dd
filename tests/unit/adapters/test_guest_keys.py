"""Keys of guests, in the forms that their ssh servers and clients read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from rmsplugin.adapters.guests.keys import dropbear_key, generate_keypair
from rmsplugin.errors import RefusedError


def test_dropbears_form_of_a_key_is_that_which_dropbear_itself_makes(tmp_path: Path) -> None:
    private = generate_keypair().private_openssh
    openssh, converted = tmp_path / "openssh", tmp_path / "dropbear"
    openssh.write_text(private)
    command = ["dropbearconvert", "openssh", "dropbear", str(openssh), str(converted)]
    subprocess.run(command, check=True, capture_output=True)
    assert dropbear_key(private) == converted.read_bytes()


def test_what_is_no_ed25519_key_is_not_given_to_a_guest() -> None:
    other = generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    for text in (other.decode(), "no key"):
        with pytest.raises(RefusedError):
            dropbear_key(text)
