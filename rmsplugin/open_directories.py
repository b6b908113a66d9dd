"""Open directories: those above a place, made for all to enter, whatever the umask is; and our programs' own umask."""

from __future__ import annotations

# What runs for each act of libvirt loads this, and no pathlib.
TYPE_CHECKING = False  # see rmsplugin/client.py
if TYPE_CHECKING:
    from pathlib import Path

#: The umask of programs whose files are nobody else's, but for those that they open themselves.
OWN_UMASK = 0o077


def make_above(place: Path) -> None:
    """Make the directories above a place that are not there, with mode 0755.

    Under a umask of 077, which a root's shell may have, ``Path.mkdir`` lets nobody else in, neither QEMU nor libvirt.

    Raises:
        OSError: one cannot be made, or something else has its name.
    """
    missing = [directory for directory in place.parents if not directory.is_dir()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
