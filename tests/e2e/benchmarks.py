"""The benchmarks on a minicluster run, on sizes too small to measure: see unit/contrib/test_benchmarks.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.cluster import Cluster
from unit.contrib.test_benchmarks import LIVE, prints_a_table_and_a_ratio

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("letter", LIVE)
def test_each_benchmark_prints_a_table_and_a_ratio(
    letter: str,
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RMSPLUGIN_E2E_DIR", str(cluster.directory))  # what is up already is of the kind that l wants
    prints_a_table_and_a_ratio(letter, capsys, tmp_path)
