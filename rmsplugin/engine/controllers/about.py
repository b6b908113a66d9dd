"""About: what an engine says of its host, so that others see whether it could lead in their place."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from rmsplugin import __version__
from rmsplugin.engine.ledger.ledger_file import newest_step
from rmsplugin.settings import Settings

#: Settings of one engine; all others are the same on all controllers.
_OWN = {"listen", "state_dir", "socket"}


def about(settings: Settings) -> dict[str, str]:
    """What this host's engine says. No secret: the ensemble tells it to everybody who reaches it."""
    return {
        "host": socket.gethostname(),
        "url": own_url(settings),
        "version": __version__,
        "ledger": newest_step(),
        "settings": digest_of(settings),
        "agent_key": fingerprint(settings.nodes.agent_key),
    }


def own_url(settings: Settings) -> str:
    """The address of `engine.url` that is this host's, as far as names and numbers tell; empty if none is."""
    host, names = settings.engine.listen.rpartition(":")[0].strip("[]"), {socket.gethostname(), socket.getfqdn()}
    own = {host, *names, *(name.partition(".")[0] for name in names)}
    return next((url for url in settings.engine.url.split() if urlsplit(url).hostname in own), "")


def digest_of(settings: Settings) -> str:
    """A digest of the settings that all controllers have alike."""
    values = settings.model_dump(mode="json")
    values["engine"] = {key: value for key, value in values["engine"].items() if key not in _OWN}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def fingerprint(private: Path) -> str:
    """The fingerprint of the public half of a private ssh key, as `ssh-keygen -l` shows it; empty if there is none."""
    try:
        key = serialization.load_ssh_private_key(private.read_bytes(), None)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return ""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
