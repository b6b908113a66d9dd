"""libvirt's settings of QEMU on this node."""

from __future__ import annotations

from pathlib import Path

QEMU_CONF = Path("/etc/libvirt/qemu.conf")


def configured(wanted: str, qemu_conf: Path = QEMU_CONF) -> str:
    """The value of this key, without quotes; "" if the file does not have the key, or cannot be read."""
    values = lines_of(wanted, qemu_conf)
    return values[0].partition("#")[0].strip().strip("\"'") if values else ""  # libvirt, too, takes the first


def lines_of(wanted: str, qemu_conf: Path = QEMU_CONF) -> list[str]:
    """What follows the equals sign in each line of this key, as it is."""
    try:
        lines = qemu_conf.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [value for key, _, value in (line.partition("=") for line in lines) if key.strip() == wanted]
