"""Remembered: what apt said, for as long as all that it reads is as it was.

Each minicluster that comes up asks for the image, and apt takes 1.5 s of CPU time to read its lists.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

#: Lists, settings, and what is installed.
APT_READS = ("etc/apt", "etc/apt/*", "etc/apt/*/*", "var/lib/apt/lists", "var/lib/apt/lists/*", "var/lib/dpkg/status")

Versions = list[tuple[str, str]]


def stamp(question: object, root: Path = Path("/"), reads: Iterable[str] = APT_READS) -> str:
    """A digest that changes when the question does, or a file or directory that apt reads for its answer."""
    digest = hashlib.sha256(repr(question).encode())
    for pattern in reads:
        for path in sorted(root.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                digest.update(repr((str(path), found.st_mtime_ns, found.st_size, found.st_ino)).encode())
    return digest.hexdigest()


def answer(file: Path, stamped: str, ask: Callable[[], Versions]) -> Versions:
    """The answer in the file if it has this stamp, and otherwise the one that asking gives, which is kept there.

    Args:
        file: where the last answer is; it may be missing or broken.
        stamped: what ``stamp`` says now.
        ask: gives packages and their versions.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(file.read_text())
        if known["stamp"] == stamped:
            return [(str(package), str(version)) for package, version in known["versions"]]
    versions = ask()
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
    new.write_text(json.dumps({"stamp": stamped, "versions": versions}))
    new.rename(file)
    return versions
