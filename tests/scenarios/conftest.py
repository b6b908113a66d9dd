"""What scenarios start from: a directory, and one world for all that need no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_ledger import in_memory
from scenarios.lent_threads import lent_threads
from scenarios.world import World


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Of each test: looks begin no threads."""
    with lent_threads():
        yield


@pytest.fixture
def directory() -> Iterator[Path]:
    """Where a world has its ledger."""
    with in_memory() as path:
        yield path


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    """A cluster with the engine on it; whatever happens there, no hypervisor is asked for what must not be."""
    world = World(directory)
    yield world
    assert world.hypervisor.violations == []
    world.close()
