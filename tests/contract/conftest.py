"""What the contract suites of the real adapters run on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MINICLUSTER = str(REPOSITORY / "contrib" / "minicluster")


@pytest.fixture(scope="session")
def minicluster() -> Iterator[Path]:
    """Directory of a minicluster that is up. RMSPLUGIN_TEST_MINICLUSTER names one that is up already and is left up."""
    kept = os.environ.get("RMSPLUGIN_TEST_MINICLUSTER")
    if kept:
        yield Path(kept)
        return
    if os.getuid() != 0:
        pytest.skip("needs root, to bring up a minicluster")
    directory = Path("/var/tmp") / f"rmsplugin-contract-{os.getpid()}"
    try:
        subprocess.run([MINICLUSTER, "up", "--no-engine", "--nodes", "2", "--dir", str(directory)], check=True)
        yield directory
    finally:
        subprocess.run([MINICLUSTER, "down", "--dir", str(directory)], check=True)
