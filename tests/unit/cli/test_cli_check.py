"""The rules of ``rmsplugin check``: a site in order has no fault, and each fault is found, with a remedy."""

from __future__ import annotations

import argparse
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from others import open_directory, runs_commands_as_others
from patience import PATIENCE_S
from unit.check_facts import SLURM, faults, settings
from unit.cli.json_documents import answer_of
from unit.served import until

from rmsplugin import __version__
from rmsplugin.adapters.nodes.base import MemoryReport, NodeCheck, NodeLooks, Reach
from rmsplugin.adapters.platform.base import HostInfo, Platform
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles
from rmsplugin.adapters.simulated.nodes.agents import SimulatedNodes
from rmsplugin.cli.check import probe, unknown_vms
from rmsplugin.cli.check.command import _look_at_all
from rmsplugin.cli.check.host import FileFact, HostFacts, judge_host
from rmsplugin.cli.check.memory import judge_bound, judge_partitions
from rmsplugin.cli.check.node_facts import NodeFacts, PairFacts
from rmsplugin.cli.check.nodes import judge_mounts_of, judge_node, judge_nodes, judge_pair
from rmsplugin.cli.check.slurm import judge_slurm
from rmsplugin.cli.check.within import Look
from rmsplugin.engine.serve.ears import silent_doors
from rmsplugin.errors import (
    HostKeyError,
    KeyRefusedError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
    UnreachableError,
)
from rmsplugin.finding import Finding, Level
from rmsplugin.settings import Settings

HOST = HostFacts(
    user="slurm",
    settings_file=FileFact("/etc/rmsplugin/rmsplugin.toml", "root", 0o644),
    state_dir=FileFact("/var/lib/rmsplugin", "slurm", 0o700),
    agent_key=FileFact("/etc/rmsplugin/agent_key", "slurm", 0o600),
    known_hosts=FileFact("/etc/rmsplugin/known_hosts", "root", 0o644),
    known_hosts_text="n1,10.0.0.11 ssh-ed25519 AAAA\nn2 ssh-ed25519 BBBB\n",
    engine="",
    held=(),
    paused="",
    munge="",
)

DIRECTORY = {"path": "/store", "exists": True, "owner": "root", "mode": "0700", "free_bytes": 1 << 40}
AGENT = NodeCheck(
    version=__version__,
    directories={"store": DIRECTORY, "vm_dir": DIRECTORY | {"mode": "0711"}, "node_key": DIRECTORY | {"mode": "0600"}},
    images={"/k": True, "/i": True},
    time=0.0,
    bridge=True,
    save_format="lzop",
    restorable_formats=frozenset({"raw", "gzip", "lzop"}),
    vm_hook=True,
    guest_filter=True,
)
MACHINES = frozenset({"pc-i440fx-7.2", "pc-q35-7.2"})
NEWER_MACHINES = frozenset({"pc-q35-8.2", "pc-q35-9.0", "pc-q35-9.2", "pc-q35-10.0", "pc-q35-10.1", "pc-i440fx-11.0"})
INFO = HostInfo("n1", 4, 8192, "QEMU 8, libvirt 9", "kvm", MACHINES)
NODE = NodeFacts("n1", INFO, AGENT)


def judged_host(facts: HostFacts = HOST, given: Settings | None = None, cpus: int = 4) -> list[Finding]:
    return faults(judge_host(given or settings(), facts, ("n1", "n2"), cpus))


def test_an_engine_or_a_manager_that_cannot_hear_is_an_error() -> None:
    said = "this engine cannot hear, since 12:00:00 UTC: munged does not answer."
    (fault,) = judged_host(replace(HOST, deaf=(said,)))
    assert (fault.level, fault.subject, fault.what) == (Level.ERROR, "hearing", said) and "munged" in fault.remedy
    found = [*judge_host(settings(), HOST, ("n1", "n2"), 4)]
    assert [each.level for each in found if each.subject == "hearing"] == [Level.OK]
    silent = judge_host(settings(), replace(HOST, engine="it is not there"), ("n1", "n2"), 4)
    assert not [each for each in silent if each.subject == "hearing"], "nobody was asked"


def test_deafness_is_found_in_the_status_and_at_doors_that_take_connections(tmp_path: Path) -> None:
    own, other = "this engine cannot hear, since 12:00:00 UTC: munge.", "the manager c2:7 cannot hear: munge."
    cluster = {"degraded": ["nobody stands by", other]}
    assert probe._deaf({"problems": ["a node is silent", own], "cluster": cluster}) == [own, other]
    assert probe._deaf({"problems": [], "cluster": None}) == []
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        engine = {"socket": str(tmp_path / "engine.sock"), "listen": f"127.0.0.1:{port}"}
        (said,) = silent_doors(settings(engine=engine))
    assert f"127.0.0.1:{port} cannot hear: nobody is served" in said
    assert silent_doors(settings(engine=engine)) == [], "nobody listens"


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        (KeyRefusedError, "authorise the public half"),
        (HostKeyError, "n1's host key"),
        (UnreachableError, "whether n1 is up"),
        (TimedOutError, "what does not end"),
        (OperationFailedError, "mend there what it says"),
        (UnavailableError, "mend there what it says"),
    ],
)
def test_the_remedy_of_a_node_agent_that_fails_fits_its_fault(fault: type[RmspluginError], remedy: str) -> None:
    class Agents:
        def check(self, node: str) -> NodeCheck:
            raise fault("said so")

    class Hypervisor:
        def host_info(self, node: str) -> HostInfo:
            return INFO

    looked: list[str] = []
    [facts] = probe.probe_nodes(cast(Platform, Hypervisor()), cast(NodeLooks, Agents()), ["n1"], done=looked.append)
    (found,) = faults(judge_node(settings(), facts))
    assert found.what == "node agent: said so" and remedy in found.remedy and looked == ["n1"]


OBSERVED = settings(partition={"vjob": {"hosts": "vmhosts", "memory": "observed"}})


def test_observed_memory_without_context_switches_is_told() -> None:
    assert faults(judge_partitions(OBSERVED, SLURM)) == []
    off = {"vjob": {**SLURM.partitions["vjob"], "PreemptMode": "OFF"}}
    (fault,) = faults(judge_partitions(OBSERVED, replace(SLURM, partitions={**SLURM.partitions, **off})))
    assert "no context switches" in fault.what and "PreemptMode=REQUEUE" in fault.remedy
    assert list(judge_partitions(settings(), SLURM)) == []


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (MemoryReport(False, "no memory controller", None, None, False, None), "no memory controller"),
        ("no such verb: bound-memory", "no such verb"),
    ],
)
def test_a_node_where_nothing_bounds_observed_vms_is_told(report: MemoryReport | str, said: str) -> None:
    (fault,) = faults(judge_bound("n1", report))
    assert fault.level is Level.WARNING and said in fault.what
    assert faults(judge_bound("n1", MemoryReport(True, "", 900, 300, False, 0.0))) == []


def test_a_site_in_order_has_no_fault() -> None:
    assert judged_host() == []
    assert faults(judge_slurm(settings(), SLURM)) == []
    assert faults(judge_node(settings(), NODE)) == []
    assert faults(judge_pair(settings(), PairFacts("n1", "n2", Reach("")))) == []


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"settings_file": FileFact("/f", "alice", 0o644)}, Level.ERROR, "may change it"),
        ({"settings_file": FileFact("/f", "root", 0o664)}, Level.ERROR, "may change it"),
        ({"settings_file": FileFact("/f", "root", 0o640)}, Level.ERROR, "not readable by all"),
        ({"state_dir": FileFact("/d")}, Level.ERROR, "does not exist"),
        ({"state_dir": FileFact("/d", "slurm", 0o750)}, Level.ERROR, "slurm's alone"),
        ({"agent_key": FileFact("/k", "root", 0o600)}, Level.ERROR, "slurm's alone"),
        ({"known_hosts": FileFact("/h")}, Level.ERROR, "does not exist"),
        ({"known_hosts": FileFact("/h", "root", 0o666)}, Level.ERROR, "may change it"),
        ({"known_hosts_text": "n1 ssh-ed25519 AAAA\n"}, Level.ERROR, "no host key of n2"),
        ({"engine": "cannot be reached"}, Level.ERROR, "cannot be reached"),
        ({"munge": "munged does not answer"}, Level.ERROR, "munged does not answer"),
    ],
)
def test_each_fault_of_this_host_is_found(change: dict[str, Any], level: Level, words: str) -> None:
    (fault,) = judged_host(replace(HOST, **change))
    assert fault.level is level and words in fault.what


@pytest.mark.parametrize(
    ("sections", "level", "words"),
    [
        ({"engine": {"listen": ""}}, Level.ERROR, "cannot reach the engine"),
        ({"network": {"prefix_length": 25}}, Level.ERROR, "does not lie in one network"),
        ({"network": {"gateway": "192.168.0.1"}}, Level.ERROR, "is not in 10.0.0.0/16"),
        ({"network": {"pool": "10.0.1.10-10.0.1.12"}}, Level.WARNING, "3 addresses"),
    ],
)
def test_each_fault_of_the_settings_is_found(sections: dict[str, Any], level: Level, words: str) -> None:
    (fault,) = judged_host(given=settings(**sections))
    assert fault.level is level and words in fault.what


SEVERAL = {"coordination": "zookeeper", "servers": ("head:2181",), "shared_dir": Path("/shared")}
ADDRESSES = {"listen": "0.0.0.0:6830", "url": "http://head:6830 http://head2:6830"}


@pytest.mark.parametrize(
    ("shared", "engine", "words"),
    [
        (FileFact("/shared"), ADDRESSES, "does not exist"),
        (FileFact("/shared", "slurm", 0o755), ADDRESSES, "slurm's alone"),
        (FileFact("/shared", "slurm", 0o700), {**ADDRESSES, "url": "http://head:6830"}, "names one address"),
    ],
)
def test_each_fault_of_engines_on_several_hosts_is_found(shared: FileFact, engine: dict[str, str], words: str) -> None:
    whole = replace(HOST, shared_dir=FileFact("/shared", "slurm", 0o700))
    assert judged_host(whole, settings(cluster=SEVERAL, engine=ADDRESSES)) == []
    (fault,) = judged_host(replace(HOST, shared_dir=shared), settings(cluster=SEVERAL, engine=engine))
    assert words in fault.what


def test_hashed_host_names_are_not_called_missing() -> None:
    assert judged_host(replace(HOST, known_hosts_text="|1|salt|hash ssh-ed25519 AAAA\n")) == []


def agent(**directories: Mapping[str, Any]) -> NodeFacts:
    return replace(NODE, agent=replace(AGENT, directories={**AGENT.directories, **directories}))


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (replace(NODE, hypervisor="no route"), Level.ERROR, "libvirt: no route"),
        (replace(NODE, agent="permission denied"), Level.ERROR, "node agent: permission denied"),
        (replace(NODE, hypervisor=HostInfo("n1", 4, 8192, "QEMU", "qemu", MACHINES)), Level.WARNING, "emulated"),
        (
            replace(NODE, hypervisor=HostInfo("n1", 4, 8192, "QEMU", "kvm", NEWER_MACHINES)),
            Level.ERROR,
            "no machine type pc-q35-7.2",
        ),
        (replace(NODE, agent=replace(AGENT, version="0.0.1")), Level.WARNING, "has rmsplugin 0.0.1"),
        (replace(NODE, agent=replace(AGENT, images={"/k": False, "/i": True})), Level.ERROR, "/k is not there"),
        (replace(NODE, agent=replace(AGENT, bridge=False)), Level.ERROR, "no bridge br0"),
        (replace(NODE, skew_s=-5.0), Level.WARNING, "off by -5.0 s"),
        (replace(NODE, skew_s=100.0), Level.ERROR, "off by +100 s"),
        (agent(store=DIRECTORY | {"exists": False}), Level.ERROR, "does not exist"),
        (agent(store=DIRECTORY | {"owner": "alice"}), Level.ERROR, "belongs to alice"),
        (agent(store=DIRECTORY | {"mode": "0750"}), Level.ERROR, "mode 0750"),
        (agent(store=DIRECTORY | {"free_bytes": 1 << 30}), Level.WARNING, "1024 MiB free"),
        (agent(vm_dir=DIRECTORY | {"mode": "0755"}), Level.ERROR, "mode 0755"),
        (agent(node_key=DIRECTORY | {"mode": "0644"}), Level.ERROR, "others may read"),
        (agent(node_key={"path": "/key", "exists": False}), Level.ERROR, "no key for the other nodes"),
        (replace(NODE, agent=replace(AGENT, save_format="raw")), Level.WARNING, "saves VMs uncompressed"),
        (replace(NODE, agent=replace(AGENT, save_format="sparse")), Level.WARNING, "saves VMs uncompressed"),
        (replace(NODE, agent=replace(AGENT, save_format="gzip")), Level.WARNING, "gzip, which is slow"),
        (replace(NODE, agent=replace(AGENT, save_format="zstd")), Level.ERROR, "no program zstd"),
    ],
)
def test_each_fault_of_a_node_is_found(facts: NodeFacts, level: Level, words: str) -> None:
    (fault,) = faults(judge_node(settings(), facts))
    assert fault.level is level and words in fault.what and fault.subject == "node n1"


def test_fencing_is_told_if_nobody_says_that_a_node_is_off() -> None:
    assert not [each for each in judge_host(settings(), HOST, ("n1", "n2"), 4) if each.subject == "nodes.fence"]
    fence = {"fence": ("/sbin/f", "{node}", "--action=off")}
    (fault,) = judged_host(given=settings(nodes=fence))
    assert (fault.level, fault.subject) == (Level.WARNING, "nodes.fence") and "run twice" in fault.what
    assert "--action=status" in fault.remedy
    assert judged_host(given=settings(nodes=fence | {"fence_status": ("/sbin/f", "{node}", "--action=status")})) == []


def test_checkpoints_that_cannot_be_had_are_told() -> None:
    partition = {
        name: {"hosts": each.hosts, "checkpoint_interval_s": 60} for name, each in settings().partition.items()
    }
    given = settings(partition=partition)
    assert faults(judge_host(given, HOST, ("n1", "n2"), 4)) == []
    (alone,) = faults(judge_host(given, HOST, ("n1",), 4))
    assert alone.level is Level.ERROR and "no other node" in alone.what
    images = {
        "default": {"kind": "kernel", "kernel": "/k", "initrd": "/i"},
        "debian": {"kind": "qcow2", "base": "/b"},
    }
    (disk,) = faults(judge_host(settings(partition=partition, image=images), HOST, ("n1", "n2"), 4))
    assert disk.level is Level.WARNING and "debian" in disk.what


@pytest.mark.parametrize(
    ("chosen", "level", "words"),
    [
        ("raw", Level.WARNING, "saves checkpoints uncompressed"),
        ("zstd", Level.ERROR, "no checkpoint can be made there"),
        ("gzip", Level.WARNING, "gzip, which is slow"),
    ],
)
def test_format_of_checkpoints_is_judged_where_there_are_some(chosen: str, level: Level, words: str) -> None:
    facts = replace(NODE, agent=replace(AGENT, snapshot_format=chosen))
    assert faults(judge_node(settings(), facts)) == []
    partition = {
        name: {"hosts": each.hosts, "checkpoint_interval_s": 60} for name, each in settings().partition.items()
    }
    (fault,) = faults(judge_node(settings(partition=partition), facts))
    assert fault.level is level and words in fault.what


def test_checkpoints_must_be_restorable_on_every_node() -> None:
    here = replace(NODE, agent=replace(AGENT, snapshot_format="zstd", restorable_formats=frozenset({"lzop", "zstd"})))
    (fault,) = judge_nodes(settings(), [here, replace(NODE, name="n2", agent=replace(AGENT, snapshot_format="lzop"))])
    assert (fault.subject, "no program zstd" in fault.what) == ("node n2", True)


def test_states_must_be_restorable_on_every_node() -> None:
    other = replace(NODE, name="n2", agent=replace(AGENT, save_format="raw", restorable_formats=frozenset({"raw"})))
    old = replace(NODE, name="n3", agent=replace(AGENT, save_format="", restorable_formats=frozenset()))
    silent = replace(NODE, name="n4", agent="no route")
    assert list(judge_nodes(settings(), [NODE, replace(NODE, name="n5"), old, silent])) == []
    (fault,) = judge_nodes(settings(), [NODE, other, old, silent])
    assert (fault.level, fault.subject) == (Level.ERROR, "node n2")
    assert "no program lzop" in fault.what and "saved on n1" in fault.what


def test_room_in_the_store_is_judged_by_what_may_not_compress() -> None:
    (fault,) = faults(judge_node(settings(), agent(store=DIRECTORY | {"free_bytes": 1 << 30})))
    assert "if their memory does not compress" in fault.what


def test_a_node_whose_libvirt_creates_anything_is_found() -> None:
    without = replace(NODE, agent=replace(NODE.agent, vm_hook=False))  # type: ignore[type-var]
    (fault,) = faults(judge_node(settings(), without))
    assert fault.level is Level.ERROR and "hooks/qemu" in fault.remedy
    assert faults(judge_node(settings(), replace(NODE, agent=replace(NODE.agent, vm_hook=True)))) == []  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("wanted", "has", "words"),
    [
        ("rmsplugin-guest", "not supported by the connection driver", "has no network filters"),
        ("clean-traffic", "not supported by the connection driver", "has no network filters"),
        ("clean-traffic", frozenset({"no-mac-spoofing"}), "has no network filter clean-traffic"),
    ],
)
def test_a_node_that_cannot_filter_what_vms_send_is_found(wanted: str, has: frozenset[str] | str, words: str) -> None:
    facts = replace(NODE, hypervisor=replace(INFO, filters=has))
    (fault,) = faults(judge_node(settings(network={"filter": wanted}), facts))
    assert fault.level is Level.ERROR and words in fault.what and "no VM starts there" in fault.what


def test_a_node_without_the_programs_that_filter_is_found() -> None:
    facts = replace(NODE, agent=replace(AGENT, filter_tools=("ebtables",)))
    (fault,) = faults(judge_node(settings(network={"filter": "rmsplugin-guest"}), facts))
    assert fault.level is Level.ERROR and "has no ebtables" in fault.what and "iptables" in fault.remedy
    assert [fault.level for fault in faults(judge_node(settings(network={"filter": ""}), facts))] == [Level.WARNING]


def test_a_node_whose_ports_are_open_to_vms_is_found() -> None:
    (fault,) = faults(judge_node(settings(), replace(NODE, agent=replace(AGENT, ports_closed=False))))
    assert fault.level is Level.WARNING and "VMs reach all of its ports" in fault.what and ".nft" in fault.remedy
    for closed in (True, None):
        assert faults(judge_node(settings(), replace(NODE, agent=replace(AGENT, ports_closed=closed)))) == []


@pytest.mark.parametrize("can", [None, False])
def test_a_node_that_cannot_filter_by_itself_is_found_if_it_has_to(can: bool | None) -> None:
    able = replace(NODE, agent=replace(AGENT, filter_tools=("ebtables",)))
    unable = replace(NODE, agent=replace(AGENT, guest_filter=can))
    assert faults(judge_node(settings(), able)) == []
    (fault,) = faults(judge_node(settings(), unable))
    assert fault.level is Level.ERROR and "cannot filter VMs by nftables" in fault.what
    assert "install nftables" in fault.remedy
    assert faults(judge_node(settings(network={"filter": "rmsplugin-guest"}), unable)) == []


@pytest.mark.parametrize("chosen", ["nftables", "rmsplugin-guest"])
def test_vms_that_are_filtered_no_more_are_named(chosen: str) -> None:
    """Under whatever is chosen now: a VM keeps the way that it has started with."""
    flushed = replace(NODE, agent=replace(AGENT, unfiltered=("vjob7-0", "vjob8-1")))
    (fault,) = faults(judge_node(settings(network={"filter": chosen}), flushed))
    assert fault.level is Level.ERROR and "vjob7-0, vjob8-1" in fault.what
    assert "cat /run/rmsplugin-filters/*.nft | nft -f -" in fault.remedy


def test_nodes_that_filter_by_the_sites_filter_or_ours_are_in_order() -> None:
    for wanted, has in (("rmsplugin-guest", frozenset[str]()), ("clean-traffic", frozenset({"clean-traffic"}))):
        facts = replace(NODE, hypervisor=replace(INFO, filters=has))
        assert faults(judge_node(settings(network={"filter": wanted}), facts)) == []


def test_that_no_vm_is_filtered_is_said() -> None:
    facts = replace(NODE, hypervisor=replace(INFO, filters="not supported"))
    (fault,) = faults(judge_node(settings(network={"filter": ""}), facts))
    assert fault.level is Level.WARNING and "take the address of any VM or node" in fault.what


def test_key_of_a_node_that_may_do_everything_is_found() -> None:
    (fault,) = faults(judge_pair(settings(), PairFacts("n1", "n2", Reach("", unrestricted=True))))
    assert fault.level is Level.ERROR and "n1's key may do everything" in fault.what and "--peer" in fault.remedy


def test_a_pause_is_a_warning_that_says_by_whom() -> None:
    paused = "paused since 2026-01-01T12:00:00 by alice"
    found = list(judge_host(settings(), replace(HOST, paused=paused), ("n1",), 2))
    [finding] = [finding for finding in found if "paused" in finding.what]
    assert (finding.level, "by alice" in finding.what, "rmsplugin unpause" in finding.remedy) == (
        Level.WARNING,
        True,
        True,
    )


def test_what_the_engine_holds_back_is_an_error() -> None:
    found = list(judge_host(settings(), replace(HOST, held=("12", "13_1")), ("n1",), 2))
    [wrong] = [finding for finding in found if finding.level is Level.ERROR]
    assert "holds back what it would do to 2 vjobs (12, 13_1)" in wrong.what
    assert "rmsplugin confirm" in wrong.remedy


def test_the_shared_store_is_judged_instead_of_the_local_one() -> None:
    given = settings(nodes={"shared_store": "/shared"})
    facts = agent(store={"path": "/store", "exists": False}, shared_store=DIRECTORY | {"owner": "bob"})
    (fault,) = faults(judge_node(given, facts))
    assert "bob" in fault.what


@pytest.mark.parametrize(
    ("reach", "words"),
    [
        (Reach("refused"), ["no saved state can be copied: refused"]),
        (Reach("", platform_open=True), ["libvirt on n2 obeys n1: whoever is root here is root there"]),
        (Reach("a", platform_open=True), ["copied", "root there"]),
        ("agent gone", ["could not be tried"]),
    ],
)
def test_each_fault_between_two_nodes_is_found(reach: Reach | str, words: list[str]) -> None:
    found = faults(judge_pair(settings(), PairFacts("n1", "n2", reach)))
    assert len(found) == len(words)
    for fault, word in zip(found, words, strict=True):
        assert fault.level is Level.ERROR and fault.subject == "n1 -> n2" and word in fault.what


def program(*words: str, as_nobody: bool = False) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "rmsplugin"), "check", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        user=65534 if as_nobody else None,
    )
    assert "Traceback" not in done.stderr
    return done


def test_wrong_settings_are_findings_too(tmp_path: Path) -> None:
    file = tmp_path / "rmsplugin.toml"
    file.write_text("[slurm]\npartitions = []\n[oops]\n")
    done = program("--config", str(file), "--json")
    found = answer_of(done.stdout)["findings"]
    assert done.returncode == 1
    assert {finding["level"] for finding in found} == {"error"}
    assert any(f"{file}:3: oops: unknown key" in finding["what"] for finding in found)


def test_a_person_reads_how_many_faults_there_are(tmp_path: Path) -> None:
    done = program("--config", str(tmp_path / "none.toml"))
    assert done.stdout.splitlines()[-1] == "1 error, 0 warnings, 0 in order"


def test_it_ends_whatever_hangs_and_says_what_it_was_looking_at(tmp_path: Path) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    for name in ("scontrol", "sinfo", "squeue", "sacct", "sacctmgr"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho $$ >>{tmp_path}/begun\nexec sleep 3600\n")
        (tmp_path / name).chmod(0o755)
    file = tmp_path / "rmsplugin.toml"
    file.write_text(
        f'[slurm]\npartitions = ["v"]\nbin_dir = "{tmp_path}"\ncommand_timeout_s = 600\n[partition.v]\nhosts = "h"\n'
        f'[engine]\nuser = "{user}"\n[network]\npool = "10.0.0.1-10.0.0.9"\n'
        'prefix_length = 8\n[image.default]\nkind = "kernel"\nkernel = "/k"\ninitrd = "/i"\n'
    )
    done = program("--config", str(file), "--json", "--within", "10")
    found = answer_of(done.stdout)["findings"]
    assert done.returncode == 1
    assert found[-1]["what"].startswith("did not end within 10 s: it was looking at Slurm")
    begun = (tmp_path / "begun").read_text().split()
    assert begun
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in begun), "the end of what hung")


@runs_commands_as_others
def test_who_may_not_look_is_told_so() -> None:
    with open_directory() as place:
        file = place / "rmsplugin.toml"
        file.write_text(
            '[slurm]\npartitions = ["v"]\n[partition.v]\nhosts = "h"\n[engine]\nuser = "daemon"\n'
            '[network]\npool = "10.0.0.1-10.0.0.9"\n'
            'prefix_length = 8\n[image.default]\nkind = "kernel"\nkernel = "/k"\ninitrd = "/i"\n'
        )
        done = program("--config", str(file), as_nobody=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "rmsplugin check: the check has to be run by daemon, or by root: try sudo rmsplugin check\n"


def test_a_node_without_the_machine_type_is_told_its_newest() -> None:
    facts = replace(NODE, hypervisor=HostInfo("n1", 4, 8192, "QEMU", "kvm", NEWER_MACHINES))
    (fault,) = [finding for finding in judge_node(settings(), facts) if finding.level is Level.ERROR]
    assert fault.remedy.endswith("newest here: pc-q35-9.0, pc-q35-9.2, pc-q35-10.0, pc-q35-10.1")
    wanted = settings(hypervisor={"machine": "pc-q35-10.0"})
    assert not [finding for finding in judge_node(wanted, facts) if finding.level is Level.ERROR]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("vers=3,nolock", ["with nolock a lock holds within one VM only"]),
        ("vers=4.1,local_lock=flock", ["with local_lock=flock a lock holds within one VM only"]),
        ("vers=3", ["rpc.statd"]),
        ("vers=4.2,suid", ["suid lets files there make a user root"]),
        ("vers=4.2,dev", ["dev lets"]),
        ("vers=4.2", []),
        ("vers=4.2,local_lock=none,nosuid,nodev", []),
    ],
)
def test_a_mount_that_gives_up_locks_or_takes_devices_is_warned_of(options: str, words: list[str]) -> None:
    mount = {"source": "10.0.0.1:/home", "target": "/home", "options": options}
    found = judged_host(given=settings(guest={"mounts": [mount]}))
    assert [finding.level for finding in found] == [Level.WARNING] * len(words)
    assert [finding.subject for finding in found] == ["mount /home"] * len(words)
    for finding, word in zip(found, words, strict=True):
        assert word in finding.what and finding.remedy


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        ({"source": "home", "type": "virtiofs", "options": "ro"}, "a VM cannot mount home (virtiofs)"),
        ({"source": "home", "type": "9p", "options": "ro"}, "a VM cannot mount home (9p)"),
        ({"source": "/home", "type": "none", "options": "bind"}, "a VM cannot mount /home (none)"),
        ({"source": "/home", "type": "ext4", "options": "rw,rbind"}, "a VM cannot mount /home (ext4)"),
        ({"source": "/dev/sdb1", "type": "xfs", "options": "rw"}, "a VM cannot mount /dev/sdb1 (xfs)"),
        ({"source": "/home"}, "/home names no server and directory"),
        ({"source": "files:"}, "files: names no server and directory"),
        ({"source": "srv..x:/home"}, "srv..x:/home names no server and directory"),
        ({"source": f"{'s' * 64}.x:/home"}, "names no server and directory"),
        ({"source": "s:/home", "options": "port=65536"}, "port=65536 is no port"),
        ({"source": "s:/home", "options": f"vers=4.2,port={'9' * 5000}"}, "is no port"),
        ({"source": "s:/home", "options": "port=x"}, "port=x is no port"),
    ],
)
def test_a_mount_that_no_vm_can_make_is_an_error(mount: dict[str, str], says: str) -> None:
    [found] = judged_host(given=settings(guest={"mounts": [{"target": "/home", **mount}]}))
    assert (found.level, found.subject) == (Level.ERROR, "mount /home")
    assert says in found.what and found.remedy


@pytest.mark.parametrize(
    ("mount", "needs"),
    [
        ({"source": "files:{home}"}, False),
        ({"source": "files:/home", "options": "port=65535"}, False),
        ({"source": "files:/home", "options": "port=0"}, False),
        ({"source": "[fe80::1]:/home", "type": "nfs4"}, False),
        ({"source": "10.0.0.1@tcp:/lustre", "type": "lustre", "options": "flock"}, True),
    ],
)
def test_a_mount_of_a_server_is_in_order_and_says_what_the_image_needs(mount: dict[str, str], needs: bool) -> None:
    given = settings(guest={"mounts": [{"target": "/home", **mount}]})
    [found] = [each for each in judge_host(given, HOST, ("n1", "n2"), 4) if each.subject == "mount /home"]
    assert found.level is Level.OK and ("the image has to have" in found.what) is needs


def test_a_node_that_does_not_reach_a_file_server_is_told_so() -> None:
    (fault,) = judge_mounts_of(settings(), "n1", {"file_servers": {"10.0.0.1:2049": "No route to host"}})
    assert (fault.level, fault.subject) == (Level.WARNING, "node n1") and "No route to host" in fault.what


def test_a_node_whose_mounts_were_not_looked_at_keeps_its_other_findings() -> None:
    agents = SimulatedNodes(SimulatedFiles())
    agents.mounts = lambda node: (_ for _ in ()).throw(UnavailableError("it did not end in time"))  # type: ignore[method-assign]
    assert probe.probe_mounts(agents, ["n1"]) == {"n1": "it did not end in time"}
    (fault,) = judge_mounts_of(settings(), "n1", "it did not end in time")
    assert fault.level is Level.WARNING and "what guests mount was not looked at: it did not end" in fault.what


@pytest.mark.parametrize(("target", "asked"), [("/home", ["n1"]), ("", [])])
def test_check_has_nodes_look_at_mounts_where_guests_mount_something_and_the_node_answers(
    monkeypatch: pytest.MonkeyPatch, target: str, asked: list[str]
) -> None:
    """Of n2 no more is told than that its agent is silent."""
    mounts = [{"source": "10.0.0.1:/home", "target": target}] if target else []
    looked: list[str] = []

    def probed(agents: object, names: Sequence[str]) -> dict[str, str]:
        looked.extend(names)
        return dict.fromkeys(names, "it did not end in time")

    nodes = [replace(NODE), replace(NODE, name="n2", agent="cannot be reached", fault=UnreachableError)]
    seen: dict[str, object] = {"probe_slurm": SLURM, "probe_host": HOST, "probe_nodes": nodes}
    seen |= {"become_engine_user": None, "probe_bounds": {}, "probe_pairs": []}
    for name, answer in seen.items():
        monkeypatch.setattr(probe, name, lambda *_, answer=answer, **__: answer)
    monkeypatch.setattr(probe, "probe_mounts", probed)
    monkeypatch.setattr(unknown_vms, "probe_unknown", lambda *_: {})
    monkeypatch.setattr(unknown_vms, "judge_unknown", lambda _: [])
    look = Look()
    _look_at_all(settings(guest={"mounts": mounts}), argparse.Namespace(config=None, quick=True), look)
    told = [found.subject for found in look.found if "what guests mount was not looked at" in found.what]
    assert (looked, told) == (asked, [f"node {name}" for name in asked])
    assert [found.what for found in look.found if found.subject == "node n2"][-1] == "node agent: cannot be reached"


def test_what_containers_have_of_the_site_is_their_nodes_mount() -> None:
    mount = {"source": "s:/home", "target": "/home", "options": "vers=3,nolock"}
    containers = {"default": {"kind": "container", "reference": "localhost/guest:1"}}
    given = settings(hypervisor={"platform": "podman"}, image=containers, guest={"mounts": [mount]})
    (found,) = [each for each in judge_host(given, HOST, ("n1", "n2"), 4) if each.subject == "mount /home"]
    assert found.level is Level.OK and "bound from each node" in found.what
