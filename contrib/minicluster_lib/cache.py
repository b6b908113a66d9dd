"""Cache: what takes long to make and depends on package versions only."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory that holds made images and databases."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "rmsplugin"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """While one minicluster makes the entry of this name, others that come up beside it wait, and find it made."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends with the process, however that ends
        yield


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each package; packages that are not installed are left out."""
    result = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\\n", *packages],
        capture_output=True,
        text=True,
    )
    rows = (line.split() for line in result.stdout.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}


def package_key(packages: Iterable[str]) -> str:
    """Return a short name for these packages at their installed versions."""
    text = repr(sorted(package_versions(packages).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
