"""One world for all scenarios that need no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster with the engine on it; whatever happens there, no hypervisor is asked for what must not be."""
    world = World(tmp_path)
    yield world
    assert world.hypervisor.violations == []
    world.close()
