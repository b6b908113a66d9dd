"""One package: a tree becomes a file .deb, with the control files that dpkg wants."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path
from string import Template

from build_packages_lib.modes import set_modes
from build_packages_lib.tools import REPOSITORY, output_of

#: Who builds it answers for it: a site builds its own.
MAINTAINER = "The administrators of this site <root@localhost>"
DEBIAN = REPOSITORY / "contrib/debian"
#: Scripts of dpkg's, and debconf's questions.
_SCRIPTS = {"preinst": 0o755, "postinst": 0o755, "prerm": 0o755, "postrm": 0o755, "templates": 0o644}


def build(name: str, tree: Path, values: Mapping[str, str], output: Path, compression: list[str]) -> Path:
    """Make the file .deb of a tree.

    Args:
        name: of the package; its control file and scripts are in contrib/debian.
        tree: its files, as on a host. Their owner will be root.
        values: what the control file names with ``$``.
        output: directory of the file.
        compression: dpkg-deb's options for it.

    Returns:
        the file.

    Raises:
        BuildError: dpkg-deb fails, or a file is what no package should have.
    """
    _document(name, tree, values["version"])
    control = tree / "DEBIAN"
    control.mkdir()
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink()) // 1024
    text = Template((DEBIAN / f"{name}.control").read_text()).substitute(values)
    (control / "control").write_text(text.replace("\nDescription:", f"\nInstalled-Size: {size}\nDescription:"))
    (control / "md5sums").write_text("".join(_sums(tree)))
    kept = [f"/{path.relative_to(tree)}\n" for path in sorted((tree / "etc").rglob("*")) if _is_plain(path)]
    if kept:
        (control / "conffiles").write_text("".join(kept))
    for script, mode in _SCRIPTS.items():
        if (source := DEBIAN / f"{name}.{script}").is_file():
            shutil.copy(source, control / script)
            (control / script).chmod(mode)
    file = output / f"{name}_{values['version']}_{values['architecture']}.deb"
    set_modes(tree)
    output_of(["dpkg-deb", "--root-owner-group", *compression, "--build", tree, file])
    return file


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _sums(tree: Path) -> list[str]:
    found = []
    for path in sorted(tree.rglob("*")):
        place = path.relative_to(tree)
        if _is_plain(path) and place.parts[0] not in ("DEBIAN", "etc"):
            found.append(f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {place}\n")
    return found


def _document(name: str, tree: Path, version: str) -> None:
    documents = tree / "usr/share/doc" / name
    documents.mkdir(parents=True, exist_ok=True)
    shutil.copy(DEBIAN / "copyright", documents / "copyright")
    squeeze((REPOSITORY / "docs/CHANGELOG.md").read_bytes(), documents / "changelog.gz")
    when = formatdate(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    entry = f"rmsplugin ({version}) stable; urgency=medium\n\n  * See changelog.gz.\n\n -- {MAINTAINER}  {when}\n"
    squeeze(entry.encode(), documents / "changelog.Debian.gz")


def squeeze(content: bytes, target: Path) -> None:
    """Write a file compressed, the same each time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(content, mtime=0))
