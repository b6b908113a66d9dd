"""Site files: a guest's settings from the engine's host: time zone, language, names of hosts."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from rmsplugin.settings.guests import Guest

_ZONES = "usr/share/zoneinfo"
_LANG = re.compile(r"\s*(?:export\s+)?LANG=[\"']?([A-Za-z0-9_.@-]+)[\"']?\s*")
#: Of systemd-resolved: it has the name servers themselves, if /etc/resolv.conf names the one on this host.
_BEHIND_STUB = "run/systemd/resolve/resolv.conf"
_LARGEST = 65536


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """The site's settings for a guest; for empty ones the image's settings stay."""

    timezone: str = ""  # its name, as in Europe/Prague
    localtime: bytes = b""  # the zone itself (TZif), for images that lack its name
    locale: str = ""
    resolv_conf: str = ""
    hosts: str = ""
    tmp_size: str = ""
    shm_size: str = ""


def read_site_files(guest: Guest, root: Path = Path("/")) -> SiteFiles:
    """Read the files of this host that the settings select; unreadable ones give empty values.

    Args:
        guest: the settings.
        root: the root directory of the host's files.
    """
    zone, content = _time_zone(guest.timezone, root)
    return SiteFiles(
        timezone=zone,
        localtime=content,
        locale=guest.locale or _language(root),
        resolv_conf=_resolv_conf(guest.resolv_conf, root),
        hosts=_hosts(guest.hosts, root),
        tmp_size=guest.tmp_size,
        shm_size=guest.shm_size,
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return b""


def _text(path: Path) -> str:
    return _read(path).decode("utf-8", "replace")


def _time_zone(name: str, root: Path) -> tuple[str, bytes]:
    if name:
        return name, _read(root / _ZONES / name)
    localtime = root / "etc/localtime"
    try:
        target = os.readlink(localtime)
    except OSError:
        target = ""
    _, found, name = target.partition(f"{_ZONES}/")
    # An absolute link leads out of a root that is not "/".
    return (name, _read(root / _ZONES / name)) if found else ("", _read(localtime))


def _language(root: Path) -> str:
    for path in ("etc/default/locale", "etc/locale.conf"):
        for line in _text(root / path).splitlines():
            if match := _LANG.fullmatch(line):
                return match[1]
    return ""


def _resolv_conf(choice: str, root: Path) -> str:
    if choice == "image":
        return ""
    if choice != "host":
        return _text(Path(choice))
    lines = _text(root / "etc/resolv.conf").splitlines()
    if any(_is_name_server(line, here=True) for line in lines):
        lines = _text(root / _BEHIND_STUB).splitlines() or lines
    kept = [line for line in lines if line.strip() and line[0] not in "#;" and not _is_name_server(line, here=True)]
    # Without any server only `search` is left, which is useless.
    return "".join(f"{line}\n" for line in kept) if any(_is_name_server(line) for line in kept) else ""


def _is_name_server(line: str, *, here: bool = False) -> bool:
    """Whether the line names a server; ``here``: one that is this host's alone."""
    words = line.split()
    if len(words) < 2 or words[0] != "nameserver":
        return False
    return not here or _is_own(words[1])


def _is_own(address: str) -> bool:
    """Whether an address means its own host, or its own link, wherever it is used."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    return parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified


def _hosts(choice: str, root: Path) -> str:
    if choice == "image":
        return ""
    text = _text(root / "etc/hosts" if choice == "host" else Path(choice))
    kept = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) >= 2 and not _is_own(words[0]):
            kept.append(" ".join(words))
    return "".join(f"{line}\n" for line in kept)
