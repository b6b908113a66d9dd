"""Apt: where this machine has Debian from, said for another release."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable

DEFAULT_ARCHIVE = "http://deb.debian.org/debian"
DEFAULT_SECURITY = "http://deb.debian.org/debian-security"

_TARGETS = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
#: Settings of apt that say how to reach an archive; the others belong to this machine.
_REACHING = re.compile(r'Acquire::(http|https|ftp|Check-[A-Za-z-]+|Retries|ForceIPv[46]|AllowInsecure\w+)\b.* ".+";')


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # not a Debian
        return ""


def archives(targets: str | None = None) -> tuple[str, str]:
    """Return the URLs of Debian's archive and of its security archive that apt uses here, or Debian's own.

    Args:
        targets: what apt-get indextargets says of each list: ORIGIN|LABEL|URL lines; by default it is asked.
    """
    found: dict[str, str] = {}
    for line in (_output(_TARGETS) if targets is None else targets).splitlines():
        origin, label, url = line.split("|", 2)
        if origin == "Debian":
            found.setdefault(label, url.rstrip("/"))
    return found.get("Debian", DEFAULT_ARCHIVE), found.get("Debian-Security", DEFAULT_SECURITY)


#: Release -> the one from which it takes what CRIU needs, where containers are wanted.
NEWER = {"trixie": "forky"}
_OF_CRIU = "criu libcompel1 libnet9 libnl-3-200 libnl-route-3-200"


def preferences(newer: str) -> str:
    """The content of a file of apt's preferences: of the newer release nothing but CRIU, and what that needs."""
    return f"""\
Package: *
Pin: release n={newer}
Pin-Priority: -1

Package: {_OF_CRIU}
Pin: release n={newer}
Pin-Priority: 990
"""


def sources(release: str, archive: str, security: str, newer: str = "") -> str:
    """The content of a sources.list for the release; ``newer``: another one besides, for ``preferences``."""
    lines = [f"deb {archive} {release} main"]
    if release not in ("sid", "unstable", "testing"):
        lines += [f"deb {archive} {release}-updates main", f"deb {security} {release}-security main"]
    lines += [f"deb {archive} {newer} main"] if newer else []
    return "\n".join(lines) + "\n"


def reaching(dump: str | None = None) -> str:
    """The lines of apt's configuration (by default this machine's) that say how to reach an archive."""
    lines: Iterable[str] = (_output(["apt-config", "dump"]) if dump is None else dump).splitlines()
    # A proxy that is found by a program is found by a program that is not there.
    kept = [line for line in lines if _REACHING.fullmatch(line) and "Auto-Detect" not in line]
    return "".join(f"{line}\n" for line in kept)
