"""Files: one with its owner and its mode, from its first moment on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def write(path: Path, content: bytes, *, mode: int = 0o644, owner: str = "root", group: str = "") -> None:
    """Write a file that never, not even for a moment, has more than its mode or another owner than root and owner.

    ``group``: the owner's, unless it is named.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    shutil.chown(path, owner, group or owner)
    path.chmod(mode)
