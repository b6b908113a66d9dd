"""A manager and the engines of its two groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit.manager.managed import Managed, engine, given
from unit.served import ME, Served

from rmsplugin.client import LOOK_S
from rmsplugin.manager import entry, handing, liveness
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.cluster import Cluster

GROUPS = {"a": ("n1", "n2"), "b": ("m1",)}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and lists wait: the engines of these tests are threads of one process, and one may take all of it."""
    longer = PATIENCE_S / 10
    for module in (handing, liveness):
        monkeypatch.setattr(module, "LOOK_S", LOOK_S * longer)
    monkeypatch.setattr(entry, "_STATUS_S", entry._STATUS_S * longer)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[dict[str, Served]]:
    cluster = Cluster(coordination="zookeeper", servers=("z:1",), shared_dir=tmp_path / "shared")
    made = {name: engine(tmp_path / name, cluster) for name in GROUPS}
    made["a"].add_vjob(12, ME, VJobState.RUNNING)
    made["a"].add_vjob(14, ME)
    made["b"].add_vjob(13, ME)
    made["b"].add_vjob(31, ME, display_id="30_1")
    yield made
    for each in made.values():
        each.close()


@pytest.fixture
def manager(tmp_path: Path, engines: dict[str, Served], patient: None) -> Iterator[Managed]:
    made = Managed(
        tmp_path,
        "m",
        {name: each.socket for name, each in engines.items()},
        dict.fromkeys(GROUPS, "m"),
        {"m": "http://127.0.0.1:9"},
        given(GROUPS, j12="a", j14="a", j13="b", j30="b"),
        base=engines["a"],
    )
    yield made
    made.close()
