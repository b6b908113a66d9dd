"""The rules of ``rmsplugin check`` for several engines: each fault is found, and a cluster in order has none."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.check_facts import settings
from unit.hosts import Hosts

from rmsplugin.adapters.coordination.candidates import Standing
from rmsplugin.adapters.coordination.servers import ServerFact
from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.adapters.nodes.base import NodeCheck
from rmsplugin.cli.check import cluster_probe
from rmsplugin.cli.check.cluster import judge_cluster, judge_epochs, judge_way
from rmsplugin.cli.check.cluster_facts import ClusterFacts, SharedFacts
from rmsplugin.cli.check.cluster_probe import file_system_of, probe_cluster
from rmsplugin.cli.check.node_facts import NodeFacts
from rmsplugin.finding import Finding, Level

PLACE = "the shared directory 0a"
MOUNTED = frozenset({"rw", "vers=4.2", "hard", "local_lock=none"})
SHARED = SharedFacts("/shared", PLACE, "nfs4", 0.004, "", 10 << 30, 50 << 20, mounted=MOUNTED)
MODES = ("leader", "follower", "follower")
SERVERS = tuple(ServerFact(f"zoo{number}:2181", "", "3.8.0", mode, 0.01) for number, mode in enumerate(MODES, 1))


def engine(host: str, ahead_s: float = 0.0, place: str = PLACE, **about: str) -> Standing:
    said = {**Hosts.about(host), "agent_key": "SHA256:k", **about}
    return Standing(f"{host}-0", f"{host}:1", place, said, ahead_s, "")


HEAD, BACKUP = engine("head"), engine("backup")
FACTS = ClusterFacts(dict(HEAD.about), SERVERS, (HEAD, BACKUP), "head", 7, SHARED)


def faults(facts: ClusterFacts) -> list[Finding]:
    return [finding for finding in judge_cluster(facts) if finding.level is not Level.OK]


def test_a_cluster_in_order_has_no_fault_and_says_what_it_is() -> None:
    assert faults(FACTS) == []
    said = "\n".join(f"{finding.subject}: {finding.what}" for finding in judge_cluster(FACTS))
    for words in (
        "ensemble: 3 servers of ZooKeeper 3.8.0 serve, led by zoo1:2181; the slowest answers in 10 ms",
        "controllers: the engine on head leads; backup stand by",
        "controllers: have the same key for nodes: SHA256:k",
        "clocks: those of the controllers and of the ensemble's leader differ by 0.00 s at most",
        "/shared: is the one of all controllers (nfs4); a small write takes 4.0 ms",
    ):
        assert words in said
    assert "munge" not in said, "the leader asks itself"


@pytest.mark.parametrize(
    ("shared_dir", "connect", "level"),
    [
        (None, "auto", None),
        ("/shared", "auto", Level.OK),
        ("/shared", "agent", Level.OK),
        ("/shared", "uri", Level.WARNING),
    ],
)
def test_the_way_to_vms_is_closed_to_an_engine_that_is_followed(
    shared_dir: str | None, connect: str, level: Level | None
) -> None:
    several = {"coordination": "zookeeper", "servers": ["zoo1:2181"], "shared_dir": shared_dir}
    found = list(judge_way(settings(cluster=several, hypervisor={"connect": connect})))
    assert [finding.level for finding in found] == ([] if level is None else [level])


def test_one_that_stands_by_and_has_asked_the_leader_has_the_same_key_of_munge() -> None:
    facts = replace(FACTS, about=dict(BACKUP.about))
    assert faults(facts) == []
    assert any(finding.subject == "munge" and "head" in finding.what for finding in judge_cluster(facts))


def silent(*numbers: int) -> tuple[ServerFact, ...]:
    return tuple(replace(each, problem="refused") if n in numbers else each for n, each in enumerate(SERVERS, 1))


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({"servers": silent(2)}, Level.WARNING, "zoo2:2181 (refused) cannot be asked; 2 of 3 servers serve"),
        ({"servers": silent(1, 2)}, Level.WARNING, "1 of 3 servers serve, 2 are needed"),
        ({"servers": SERVERS[:1]}, Level.WARNING, "has 1 servers: the loss of one ends it"),
        ({"servers": (*SERVERS, SERVERS[2])}, Level.WARNING, "an even number bears no more losses"),
        ({"servers": (*SERVERS[:2], replace(SERVERS[2], version="3.9.1"))}, Level.WARNING, "releases 3.8.0, 3.9.1"),
        ({"standing": ()}, Level.ERROR, "no engine is there"),
        ({"standing": (HEAD,)}, Level.WARNING, "the engine on head is alone"),
        ({"standing": (BACKUP, engine("third"))}, Level.WARNING, "no engine of this host is there"),
        ({"standing": (HEAD, engine("backup", settings="77"))}, Level.WARNING, "the settings of backup differ"),
        ({"standing": (HEAD, engine("backup", agent_key="SHA256:x"))}, Level.WARNING, "nodes.agent_key of backup"),
        ({"standing": (HEAD, engine("backup", ledger="m001"))}, Level.WARNING, "backup cannot take over"),
        (
            {"standing": (HEAD, engine("backup", -3.0))},
            Level.WARNING,
            "the clock of head is 3.0 s ahead of",
        ),
        ({"standing": (HEAD, engine("backup", 100.0))}, Level.ERROR, "the clock of backup is 100.0 s ahead"),
        ({"standing": (engine("head", 4.0), engine("backup", 4.0))}, Level.WARNING, "are off by +4.0 s from that"),
        ({"standing": (HEAD, engine("backup", place="other"))}, Level.ERROR, "another directory than that of backup"),
    ],
)
def test_each_fault_of_ensemble_and_controllers_is_found(facts: dict[str, Any], level: Level, words: str) -> None:
    (fault,) = faults(replace(FACTS, **facts))
    assert fault.level is level and words in fault.what and fault.remedy


def test_without_a_quorum_nobody_leads() -> None:
    both = faults(replace(FACTS, servers=silent(1, 2), standing="no server answers", shared=None))
    assert [fault.level for fault in both] == [Level.ERROR, Level.ERROR]
    assert "1 of 3 servers serve, 2 are needed: nobody leads" in both[0].what


@pytest.mark.parametrize(
    ("shared", "level", "words"),
    [
        (SharedFacts("/shared", "does not answer within 20 s"), Level.ERROR, "does not answer within 20 s"),
        (replace(SHARED, lock="No locks available"), Level.ERROR, "no file can be locked there: No locks available"),
        (replace(SHARED, write_s="Read-only file system"), Level.ERROR, "cannot be written: Read-only"),
        (replace(SHARED, write_s=0.2), Level.WARNING, "a small write takes 200 ms"),
        (replace(SHARED, write_s=2.0), Level.ERROR, "a small write takes 2000 ms"),
        (replace(SHARED, free_bytes=100 << 20), Level.WARNING, "has 100 MiB free; the ledger has 50"),
        (replace(SHARED, free_bytes=10 << 20), Level.ERROR, "has 10 MiB free"),
        (replace(SHARED, mounted=frozenset({"soft", "rw"})), Level.ERROR, "is mounted soft"),
        (replace(SHARED, mounted=frozenset({"softerr"})), Level.ERROR, "is mounted softerr"),
        (replace(SHARED, mounted=frozenset({"nolock"})), Level.WARNING, "is mounted with nolock: locks hold on"),
        (replace(SHARED, mounted=frozenset({"local_lock=posix"})), Level.WARNING, "with local_lock=posix"),
        (replace(SHARED, mounted=frozenset({"hard", "local_lock=all"})), Level.WARNING, "with local_lock=all"),
        (replace(SHARED, root_key="x"), Level.ERROR, "the key of root in guests cannot be used: x"),
    ],
)
def test_each_fault_of_the_shared_directory_is_found(shared: SharedFacts, level: Level, words: str) -> None:
    (fault,) = faults(replace(FACTS, shared=shared))
    assert fault.level is level and words in fault.what and fault.remedy


def test_a_file_system_of_one_host_is_no_shared_one_unless_another_host_uses_it() -> None:
    local = replace(SHARED, file_system="ext4")
    assert faults(replace(FACTS, shared=local)) == []
    alone, fault = faults(replace(FACTS, shared=local, standing=(HEAD,)))
    assert "is alone" in alone.what and "a file system of this host alone" in fault.what


def node(name: str, epoch: int | None) -> NodeFacts:
    return NodeFacts(name, "", NodeCheck("1", {}, {}, 0.0, True, "raw", frozenset(), epoch=epoch))


@pytest.mark.parametrize(
    ("epochs", "level", "words"),
    [
        ((7, 7), Level.OK, "all 2 nodes that answer obey no engine before epoch 7"),
        ((7, 8), Level.ERROR, "n2 obeyed an engine of a higher epoch"),
        ((7, 3), Level.WARNING, "n2 has not heard of this turn (epoch 7)"),
        ((7, None), Level.WARNING, "n2 has not heard"),
    ],
)
def test_the_epochs_of_nodes_are_compared(epochs: tuple[int | None, ...], level: Level, words: str) -> None:
    nodes = [node(f"n{number}", epoch) for number, epoch in enumerate(epochs, 1)]
    (found,) = judge_epochs(FACTS, [*nodes, NodeFacts("n3", "", "no way")])
    assert found.level is level and words in found.what
    assert list(judge_epochs(replace(FACTS, epoch=0), nodes)) == [], "no engine answered"


def test_with_managers_each_node_obeys_the_engine_of_its_group() -> None:
    facts = replace(FACTS, epochs={"n1": 7, "n2": 40, "n3": 0})
    nodes = [node("n1", 7), node("n2", 40), node("n3", 3)]
    (found,) = judge_epochs(facts, nodes)
    assert found.what == "all 2 nodes that answer obey no engine before that of its group"
    (found,) = judge_epochs(facts, [node("n1", 8), *nodes[1:]])
    assert (found.level, found.what.startswith("n1 obeyed an engine of a higher epoch")) == (Level.ERROR, True)


# -- what is seen --------------------------------------------------------------------------------------------------


MOUNTS = """\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /shared rw,relatime shared:2 - nfs4 server:/export rw,hard,local_lock=none
31 22 0:41 / /with\\040blank rw - tmpfs tmpfs rw
32 22 0:42 / /für\\040alle rw - xfs /dev/sdb1 rw
"""


def test_the_file_system_of_a_path_is_that_of_the_nearest_mount() -> None:
    for mounts in (MOUNTS, "\n".join(reversed(MOUNTS.splitlines()))):
        assert file_system_of(Path("/shared/rmsplugin"), mounts) == ("nfs4", {"rw", "hard", "local_lock=none"})
    assert file_system_of(Path("/sharedother"), MOUNTS) == ("ext4", {"rw"})
    assert file_system_of(Path("/with blank/x"), MOUNTS) == ("tmpfs", {"rw"})
    assert file_system_of(Path("/für alle/x"), MOUNTS) == ("xfs", {"rw"})


def looked(tmp_path: Path) -> SharedFacts:
    """What is seen of a shared directory here, with no ensemble and no engine."""
    user = {"user": pwd.getpwuid(os.geteuid()).pw_name, "socket": tmp_path / "none.sock", "url": ""}
    cluster = {"coordination": "zookeeper", "servers": ["127.0.0.1:1"], "shared_dir": tmp_path / "shared"}
    facts = probe_cluster(settings(engine={**user, "listen": ""}, cluster=cluster))
    assert facts is not None and facts.shared is not None and facts.epoch == 0
    assert isinstance(facts.standing, str) and "no server of ZooKeeper answers" in facts.standing
    assert facts.servers[0].problem == "Connection refused"
    return facts.shared


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cluster_probe, "_ANSWER_S", 0.1)
    (tmp_path / "shared").mkdir(mode=0o700)
    return tmp_path / "shared"


def test_what_is_seen_of_a_shared_directory_leaves_nothing_there(shared: Path, tmp_path: Path) -> None:
    keys, other = generate_keypair(), generate_keypair()
    (shared / "guest_root_key").write_text(keys.private_openssh)
    (shared / "guest_root_key.pub").write_text(f"{keys.public}\n")
    found = looked(tmp_path)
    assert found.place.startswith("the shared directory ") and isinstance(found.write_s, float)
    assert (found.lock, found.root_key, found.ledger_bytes) == ("", "", 0) and found.free_bytes > 0
    assert {path.name for path in shared.iterdir()} == {"guest_root_key", "guest_root_key.pub", "identity"}
    (shared / "guest_root_key.pub").write_text(f"{other.public}\n")
    assert "is not its public half" in looked(tmp_path).root_key


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mounts of its own")
@pytest.mark.parametrize(
    ("options", "filled", "words"),
    [
        ("size=1m", True, ["has 0 MiB free", "cannot be written: No space left on device"]),
        ("size=1g,ro", False, ["no file can be locked there: Read-only", "cannot be written: Read-only file system"]),
        ("size=1g", False, []),
    ],
    ids=["full", "read-only", "in order"],
)
def test_a_file_system_that_takes_no_write_is_seen_as_it_is(
    tmp_path: Path, options: str, filled: bool, words: list[str]
) -> None:
    (tmp_path / "shared").mkdir()
    writable = ",".join(each for each in options.split(",") if each != "ro")
    steps = [f"mount -t tmpfs -o mode=700,{writable} none shared", "echo 0a > shared/identity"]
    steps += ["head -c 2m /dev/zero > shared/filler 2>/dev/null || true"] if filled else []
    steps += [f"mount -o remount,{options} shared", 'exec "$0" -c "$1"']
    look = f"""
from dataclasses import replace
from pathlib import Path
from unit.cli import test_cli_check_cluster as tests
tests.cluster_probe._ANSWER_S = 0.1
seen = replace(tests.looked(Path({str(tmp_path)!r})), place=tests.PLACE)
for fault in tests.faults(replace(tests.FACTS, shared=seen)):
    print(fault.what)
"""
    own = ["unshare", "--mount", "sh", "-ec", "\n".join(steps), sys.executable, look]
    done = subprocess.run(own, cwd=tmp_path, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}, capture_output=True)
    said = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr.decode()
    assert len(said) == len(words) and all(word in line for word, line in zip(words, said, strict=True)), said


def test_a_shared_directory_that_is_not_mounted_is_said(shared: Path, tmp_path: Path) -> None:
    shared.rmdir()
    assert "Is it mounted?" in looked(tmp_path).place


def test_a_shared_directory_that_hangs_is_said(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(cluster_probe, "_SHARED_S", 0.1)
    monkeypatch.setattr(cluster_probe, "write_once", lambda _: float(let_go.wait(PATIENCE_S)))
    assert "does not answer within 0.1 s" in looked(tmp_path).place
    let_go.set()


def test_an_engine_that_is_alone_has_nothing_of_this() -> None:
    assert probe_cluster(settings()) is None
