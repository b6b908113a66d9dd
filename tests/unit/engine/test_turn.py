"""A new leader's turn: all nodes that answer obey it; those that do not are said, and it goes on without them."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.engine import daemon, turn
from rmsplugin.engine.ledger.shared_files import name_of
from rmsplugin.engine.territory.territory import GIVEN, SITE_DIR
from rmsplugin.errors import DeposedError, OperationFailedError, UnavailableError
from rmsplugin.groups.given import Given, text_of
from rmsplugin.settings import Settings

SETTINGS = cast(Settings, SimpleNamespace(hosts_partitions=("vmhosts",)))


class Cluster:
    """Slurm with nodes n1 to n3, of which two are VM hosts, and their node agents."""

    def __init__(self) -> None:
        self.slurm_answers = True
        self.slurm_stands_still = False
        self.obeying: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.stuck: set[str] = set()
        self.let_go = threading.Event()

    def snapshot(self) -> Any:
        if self.slurm_stands_still:
            self.let_go.wait()
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

    def take_turn(self, remembered: Callable[[], list[str]] | None = None) -> None:
        turn.obeyed_by_all(SETTINGS, cast(Any, self), self, remembered)


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


def test_a_host_that_has_heard_of_a_higher_epoch_does_not_end_the_turn_of_a_group(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It may come from another cluster. The hosts of the group that obey have an engine."""
    cluster.errors["n2"] = DeposedError("n2: an engine of epoch 9 has acted here")
    assert turn.obeyed_by_all(SETTINGS, cast(Any, cluster), cluster, of_group=True) == {"n2"}
    assert cluster.obeying == {"n1"}
    assert "a host refuses this turn, although its epoch is above all of the ensemble: n2: an engine" in caplog.text


def test_without_slurm_nodes_learn_it_one_by_one(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.slurm_answers = False
    cluster.take_turn()
    assert "Slurm does not tell their names: no slurmctld" in caplog.text


@pytest.mark.parametrize("stands_still", [True, False])
def test_without_slurm_nodes_of_the_last_turn_obey(
    cluster: Cluster, stands_still: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: a new leader waited 20 s for the names of nodes, as slurmctld was on the host that had gone."""
    monkeypatch.setattr(turn, "_NAMES_S", 0.2)
    cluster.slurm_answers, cluster.slurm_stands_still = False, stands_still
    cluster.take_turn(lambda: ["n2"])
    assert cluster.obeying == {"n2"}
    assert "1 nodes are known from the ledger, others learn the epoch" in caplog.text


def test_slurm_is_asked_for_all_nodes_before_the_ledger_is(cluster: Cluster) -> None:
    def remembered() -> list[str]:
        raise AssertionError("Slurm answers")

    cluster.take_turn(remembered)
    assert cluster.obeying == {"n1", "n2"}


# -- the engine of a host among several ----------------------------------------------------------------------------


def on_several_hosts(directory: Path, **sections: Any) -> Settings:
    (directory / "shared").mkdir(exist_ok=True)
    several = {"coordination": "zookeeper", "servers": ["head:2181"], "shared_dir": directory / "shared"}
    return Settings.model_validate(
        {
            "cluster": several,
            "slurm": {"partitions": ["vjob"], "adapter": "cli"},
            "partition": {"vjob": {"hosts": "vmhosts"}},
            "network": {"pool": "10.0.0.10-10.0.0.20", "prefix_length": 24},
            "image": {"default": {"kind": "kernel", "kernel": "/k", "initrd": "/i"}},
            **sections,
        }
    )


class Led:
    """A lease that is held."""

    epoch = 7

    def held(self) -> bool:
        return True

    def held_until(self) -> float:
        return math.inf

    def lost(self) -> bool:
        return False


def test_nodes_obey_before_the_ledger_of_the_last_leader_is_copied(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last leader does until then is in its ledger; what it does after that no node takes from it."""
    order: list[str] = []
    take_over = daemon.take_over

    def obey(node: str) -> None:
        order.append(f"{node} obeys")

    def copy(*words: Any, **options: Any) -> Path:
        order.append("copy")
        return take_over(*words, **options)

    agents: list[dict[str, Any]] = []
    monkeypatch.setattr(cluster, "obey", obey)
    monkeypatch.setattr(turn, "_PARALLEL", 1)
    monkeypatch.setattr(daemon, "open_rms", lambda *_, **__: cluster)
    monkeypatch.setattr(daemon, "open_platform", lambda *_: SimpleNamespace(capabilities=frozenset()))
    monkeypatch.setattr(daemon, "NodeAgents", lambda *_, **options: agents.append(options) or cluster)
    monkeypatch.setattr(daemon, "take_over", copy)
    (tmp_path / "state").mkdir()
    context = daemon.open_context(on_several_hosts(tmp_path), tmp_path / "state", cast(Any, Led()))
    assert order == ["n1 obeys", "n2 obeys", "copy"]
    assert context.epoch == 7 and agents == [{"epoch": 7, "group": "", "permit": context.acts.one}]
    assert context.ledger.path == tmp_path / "shared" / "groups" / "all" / name_of(7)
    assert context.knock is not None, "a front whose wrappers are silent is looked for"
    context.ledger.close()


@pytest.mark.parametrize(("nodes", "group"), [({"shared_store": "/states"}, "left"), ({}, "")])
def test_agents_are_told_the_group_where_nodes_share_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: dict[str, str], group: str
) -> None:
    agents: list[dict[str, Any]] = []
    monkeypatch.setattr(daemon, "NodeAgents", lambda *_, **options: agents.append(options))
    settings = on_several_hosts(tmp_path, nodes=nodes).of_group("left")
    daemon._agents(settings, 7, nullcontext)
    assert agents == [{"epoch": 7, "group": group, "permit": nullcontext}]


def test_nodes_of_the_last_turn_obey_where_slurm_does_not_tell_their_names(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.slurm_answers = False
    monkeypatch.setattr(daemon, "open_rms", lambda *_, **__: cluster)
    monkeypatch.setattr(daemon, "open_platform", lambda *_: SimpleNamespace(capabilities=frozenset()))
    monkeypatch.setattr(daemon, "NodeAgents", lambda *_, **options: cluster)
    asked: list[Path] = []
    monkeypatch.setattr(daemon, "nodes_of_last_turn", lambda directory: asked.append(directory) or ["n2"])
    (tmp_path / "state").mkdir()
    daemon.open_context(on_several_hosts(tmp_path), tmp_path / "state", cast(Any, Led())).ledger.close()
    assert asked == [tmp_path / "shared" / "groups" / "all"]
    assert cluster.obeying == {"n2"}
    assert re.search(r"to obey in \d+\.\d s, and the ledger was taken over in \d+\.\d s", caplog.text)


def test_nodes_of_other_groups_that_the_ledger_names_never_learn_the_epoch(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sleeping vjob that goes to another group leaves actions in the ledger that name its hosts."""
    cluster.slurm_answers = False
    monkeypatch.setattr(daemon, "open_rms", lambda *_, **__: cluster)
    monkeypatch.setattr(daemon, "open_platform", lambda *_: SimpleNamespace(capabilities=frozenset()))
    monkeypatch.setattr(daemon, "NodeAgents", lambda *_, **options: cluster)
    monkeypatch.setattr(daemon, "nodes_of_last_turn", lambda directory: ["n1", "n2", "n3"])
    (tmp_path / "state").mkdir()
    settings = on_several_hosts(tmp_path).of_group("left")
    site = tmp_path / "shared" / SITE_DIR
    site.mkdir()
    EpochFiles(site, GIVEN).write(3, text_of(Given(3, 0, {"left": ("n1", "n3"), "right": ("n2",)})))
    daemon.open_context(settings, tmp_path / "state", cast(Any, Led())).ledger.close()
    assert cluster.obeying == {"n1", "n3"}


def test_the_key_of_the_first_host_in_guests_becomes_that_of_all(tmp_path: Path) -> None:
    settings = on_several_hosts(tmp_path)
    hosts = [tmp_path / name for name in ("one", "two", "three")]
    for host in hosts:
        host.mkdir()
    first, second = daemon.root_keys(hosts[0]), daemon.root_keys(hosts[1])
    assert first != second
    assert [daemon.shared_root_keys(settings, host) for host in hosts] == [first] * 3
    assert (tmp_path / "shared" / daemon.ROOT_KEY).stat().st_mode & 0o777 == 0o600
