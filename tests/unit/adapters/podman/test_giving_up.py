"""Giving up a checkpoint: CRIU is waited for, and neither it nor the container hangs for good."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from rmsplugin.adapters.platform.podman.on_node.checkpoint import await_end


@pytest.fixture
def reader() -> Iterator[subprocess.Popen[bytes]]:
    """What CRIU is: a process that ends at some time, or never."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_nothing_is_done_to_a_reader_that_ends(reader: subprocess.Popen[bytes]) -> None:
    looks: list[float] = []

    def children() -> list[int]:
        looks.append(time.monotonic())
        return [reader.pid] if len(looks) < 5 else []

    await_end(children, lambda: pytest.fail("it is let go on"), reads_s=1000, ends_s=1000)
    assert len(looks) == 5 and reader.poll() is None


def test_a_reader_that_waits_for_the_container_has_it_go_on(reader: subprocess.Popen[bytes]) -> None:
    thawed: list[bool] = []
    until = time.monotonic() + 5

    def children() -> list[int]:
        return [] if thawed or time.monotonic() > until else [reader.pid]

    await_end(children, lambda: thawed.append(True), reads_s=0.0, ends_s=1000)
    assert thawed and reader.poll() is None


def test_a_reader_that_never_ends_is_ended(reader: subprocess.Popen[bytes]) -> None:
    await_end(lambda: [reader.pid] if reader.poll() is None else [], lambda: None, reads_s=0.0, ends_s=0.1)
    assert reader.returncode == -9
