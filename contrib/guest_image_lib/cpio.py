"""Cpio: write an initial file system (newc format) whose bytes depend on its content only.

Owners are root, times are zero, entries are sorted: two builds from the same packages are the same file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO


class CpioWriter:
    """Writes one newc archive."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inode = 0

    def add(
        self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0), *, group: int = 0
    ) -> None:
        """Add one entry; content is a file's bytes or a symbolic link's target."""
        self._inode += 1
        encoded = name.encode() + b"\0"
        fields = (self._inode, mode, 0, group, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
        self._file.write(b"070701" + b"".join(b"%08x" % value for value in fields))
        self._write_padded(encoded, 110)
        self._write_padded(content, 0)

    def _write_padded(self, data: bytes, before: int) -> None:
        self._file.write(data + b"\0" * (-(before + len(data)) % 4))

    def add_tree(self, root: Path, private: Mapping[str, tuple[int, int]] | None = None) -> None:
        """Add a directory and all below it. Only the x bits of the files' modes and sticky bits are kept.

        Args:
            root: the directory. It is in the archive, too: without that, anybody may write in the guest's /.
            private: mode and group of what not everybody may read, by name.
        """
        private = private or {}
        self.add(".", stat.S_IFDIR | 0o755)
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            mode = path.lstat().st_mode
            if name in private:
                only, group = private[name]
                content = path.read_bytes() if stat.S_ISREG(mode) else b""
                self.add(name, stat.S_IFMT(mode) | only, content, group=group)
            elif stat.S_ISLNK(mode):
                self.add(name, stat.S_IFLNK | 0o777, os.readlink(path).encode())
            elif stat.S_ISDIR(mode):
                self.add(name, stat.S_IFDIR | (0o1777 if mode & stat.S_ISVTX else 0o755))
            elif stat.S_ISREG(mode):
                self.add(name, stat.S_IFREG | (0o755 if mode & 0o100 else 0o644), path.read_bytes())

    def close(self) -> None:
        """Write the end of the archive."""
        self.add("TRAILER!!!", 0)
        self._file.flush()
