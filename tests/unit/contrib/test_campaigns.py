"""contrib/run-campaign: every campaign can be begun."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).resolve().parents[3] / "contrib" / "run-campaign")


NAMES = [
    "mixed",
    "flood",
    "switches",
    "memory",
    "native",
    "slurm-suite",
    "benchmarks",
    "long",
    "instants",
    "examples",
    "day",
    "faults",
    "managers",
    "packages",
    "site",
    "live",
    "fuzz",
]


@pytest.mark.parametrize("name", NAMES)
def test_each_campaign_says_what_it_does(name: str) -> None:
    done = subprocess.run([PROGRAM, name, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: run-campaign {name}" in done.stdout


def test_another_campaign_is_refused() -> None:
    assert subprocess.run([PROGRAM, "peace"], capture_output=True).returncode == 2
