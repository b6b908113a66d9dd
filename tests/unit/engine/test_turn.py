"""A new leader's turn: all nodes that answer obey it; those that do not are said, and it goes on without them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmsplugin.engine import turn
from rmsplugin.errors import DeposedError, OperationFailedError, UnavailableError
from rmsplugin.settings import Settings

SETTINGS = cast(Settings, SimpleNamespace(hosts_partitions=("vmhosts",)))


class Cluster:
    """Slurm with nodes n1 to n3, of which two are VM hosts, and their node agents."""

    def __init__(self) -> None:
        self.slurm_answers = True
        self.obeying: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.stuck: set[str] = set()
        self.let_go = threading.Event()

    def snapshot(self) -> Any:
        if not self.slurm_answers:
            raise UnavailableError("no slurmctld")
        nodes = dict.fromkeys(("n1", "n2", "n3"))
        return SimpleNamespace(nodes=nodes, partitions={"vmhosts": SimpleNamespace(nodes=("n1", "n2"))})

    def obey(self, node: str) -> None:
        if node in self.stuck:
            self.let_go.wait()
        if node in self.errors:
            raise self.errors[node]
        self.obeying.add(node)

    def take_turn(self) -> None:
        turn.obeyed_by_all(SETTINGS, cast(Any, self), self)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.let_go.set()


def test_all_vm_hosts_obey(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cluster.take_turn()
    assert cluster.obeying == {"n1", "n2"}
    assert not caplog.records


@pytest.mark.parametrize("error", [UnavailableError("no way"), OperationFailedError("not a command of the node agent")])
def test_a_node_that_cannot_be_told_is_said(
    cluster: Cluster, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.errors["n1"] = error
    cluster.take_turn()
    assert cluster.obeying == {"n2"}
    assert "1 of 2 nodes have not taken the epoch of this turn yet: n1" in caplog.text


def test_a_node_that_is_stuck_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(turn, "_WITHIN_S", 0.2)
    cluster.stuck = {"n2"}
    cluster.take_turn()
    assert "1 of 2 nodes have not taken the epoch of this turn yet: n2" in caplog.text


def test_a_node_that_has_heard_of_a_higher_epoch_ends_the_turn(cluster: Cluster) -> None:
    cluster.errors["n2"] = DeposedError("an engine of epoch 9 has acted here")
    with pytest.raises(DeposedError, match="epoch 9"):
        cluster.take_turn()


def test_without_slurm_nodes_learn_it_one_by_one(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.slurm_answers = False
    cluster.take_turn()
    assert "Slurm does not tell their names: no slurmctld" in caplog.text
