"""Where tests of the engine have their files: in memory, for a ledger syncs at each step, which costs CPU on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_ledger import in_memory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Instead of pytest's own."""
    with in_memory() as path:
        yield path
