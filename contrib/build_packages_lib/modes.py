"""Modes: what those of a package's files and directories are, whatever the umask of who builds it."""

from __future__ import annotations

import stat
from pathlib import Path

from build_packages_lib.tools import BuildError

#: What the node agent makes, by mode; root's.
NODE_DIRECTORIES = {"var/lib/rmsplugin/store": 0o700, "var/lib/rmsplugin/vm": 0o711}


def set_modes(tree: Path) -> None:
    """Give all of a tree the modes of a package. Those of the checkout tell only which files are programs.

    Raises:
        BuildError: something is there that no package may have.
    """
    for path in (tree, *tree.rglob("*")):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o7000 or not (path.is_dir() or path.is_file()):
            raise BuildError(f"{path} has a mode or kind that nothing in a package may have")
        if path.is_dir():
            path.chmod(NODE_DIRECTORIES.get(str(path.relative_to(tree)), 0o755))
        else:
            path.chmod(0o755 if mode & 0o100 else 0o644)
