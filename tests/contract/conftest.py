"""What the contract suites of the real adapters run on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.rms_worlds import GRACE_S, MINICLUSTER, RealWorld, World, open_world
from minicluster_lib import podman


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
    options = [
        "--no-engine",
        "--power-saving",
        "--nodes",
        "2",
        "--grace-s",
        str(GRACE_S),
        "--dir",
        str(directory),
        "--owner",
        str(os.getpid()),
    ]
    try:
        subprocess.run([MINICLUSTER, "up", *options], check=True)
        yield directory
    finally:
        down = subprocess.run([MINICLUSTER, "down", "--dir", str(directory)], capture_output=True, text=True)
        assert down.returncode == 0, down.stderr


@pytest.fixture(scope="session")
def minicluster_of_containers() -> Iterator[Path]:
    """As ``minicluster``, with podman in libvirt's place; RMSPLUGIN_TEST_CONTAINERS names one that is up already."""
    kept = os.environ.get("RMSPLUGIN_TEST_CONTAINERS")
    if kept:
        yield Path(kept)
        return
    if os.getuid() != 0:
        pytest.skip("needs root, to bring up a minicluster")
    if why := podman.reason_against():
        pytest.skip(why)
    directory = Path("/var/tmp") / f"rmsplugin-containers-{os.getpid()}"
    options = ["--podman", "--no-engine", "--nodes", "2", "--dir", str(directory), "--owner", str(os.getpid())]
    try:
        subprocess.run([MINICLUSTER, "up", *options], check=True)
        yield directory
    finally:
        down = subprocess.run([MINICLUSTER, "down", "--dir", str(directory)], capture_output=True, text=True)
        assert down.returncode == 0, down.stderr


@pytest.fixture(
    params=[
        "simulated",
        pytest.param("cli", marks=pytest.mark.e2e),
        pytest.param("handed", marks=[pytest.mark.e2e, pytest.mark.long]),
        pytest.param("pyslurm", marks=pytest.mark.e2e),
    ]
)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A Slurm of each kind."""
    opened = open_world(request.param, request)
    yield opened
    if isinstance(opened, RealWorld):
        opened.clean()
