"""contrib/slurm.conf.example: the installed slurmctld takes it, both ways, and check finds no fault in it."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit.check_facts import CONFIG, FRONT, GATE, HOLD, NODE, SLURM, faults, settings
from unit.munged import Munged

from rmsplugin.cli.check.facts import SlurmFacts
from rmsplugin.cli.check.slurm import judge_slurm

ROOT = Path(__file__).resolve().parents[3]
SLURMCTLD = shutil.which("slurmctld", path="/usr/sbin:/usr/local/sbin:/usr/bin")
DEFAULTS = {"OverSubscribe": "NO", "PreemptMode": "OFF", "PriorityTier": "1", "AllowGroups": "ALL"}


def example(way: int) -> str:
    """The text with one of its two ways: (1) as it is; (2) commented out, to be put in place of (1)."""
    common, dedicated, shared = re.split(
        r"(?=^# --- \([12]\))", (ROOT / "contrib/slurm.conf.example").read_text(), flags=re.M
    )
    return common + (dedicated if way == 1 else re.sub(r"^#(?=[A-Z]\w+=)", "", shared, flags=re.M))


def facts(text: str) -> SlurmFacts:
    """What Slurm would say of itself with this configuration."""
    lines = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in text.splitlines() if re.match(r"[A-Z]", line)]
    partitions = {row["PartitionName"]: {**DEFAULTS, **row} for row in lines if "PartitionName" in row}
    config = {key: value for row in lines if len(row) == 1 for key, value in row.items()}

    def members(nodes: str) -> str:
        return ",".join(name for name, row in partitions.items() if row["Nodes"] == nodes)

    (front, host) = (row for row in lines if "NodeName" in row)
    nodes = {
        "front1": {**FRONT, "RealMemory": front["RealMemory"], "Partitions": members(front["NodeName"])},
        "n001": {**NODE, "CPUTot": "4", "RealMemory": "4096", "Partitions": members(host["NodeName"])},
    }
    hooks = {key: CONFIG[key] for key in ("PrologSlurmctld", "EpilogSlurmctld", "Prolog", "Epilog")}
    defaults = {key: CONFIG[key] for key in ("SLURM_VERSION", "SlurmctldHost[0]", "SlurmUser", "AccountingStorageType")}
    return replace(
        SLURM,
        config={**defaults, **config, **hooks},
        partitions=partitions,
        nodes=nodes,
        reservations={"rmsplugin_gate": GATE},
    )


@pytest.mark.parametrize("way", [1, 2])
def test_check_finds_no_fault_in_the_example(way: int) -> None:
    assert faults(judge_slurm(HOLD if way == 1 else settings(), facts(example(way)))) == []


def test_the_first_way_is_not_for_shared_nodes() -> None:
    text = example(2).replace("PreemptType=preempt/partition_prio", "PreemptType=preempt/none")
    assert any("wait for its rooms" in found.what for found in faults(judge_slurm(settings(), facts(text))))


@pytest.mark.skipif(SLURMCTLD is None, reason="Slurm is not installed")
@pytest.mark.parametrize("way", [1, 2])
def test_slurmctld_takes_the_example(tmp_path: Path, munged: Munged, way: int) -> None:
    assert "Running as primary controller" in started(tmp_path, example(way), munged)


@pytest.mark.skipif(SLURMCTLD is None, reason="Slurm is not installed")
def test_slurmctld_says_so_when_it_does_not_take_a_file(tmp_path: Path, munged: Munged) -> None:
    said = started(tmp_path, example(2).replace("preempt/partition_prio", "preempt/partition_tier"), munged)
    assert "fatal" in said and "Running as primary controller" not in said


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    """Slurmctld asks for a credential before it says anything else, since Slurm 24."""
    with tempfile.TemporaryDirectory() as name:
        daemon = Munged(Path(name))
        yield daemon
        daemon.stop()


def started(directory: Path, text: str, munged: Munged) -> str:
    """What slurmctld says until it runs with this configuration, or ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for file in (ROOT / "lua").iterdir():
        shutil.copy(file, directory)
    # One node each: slurmctld looks up the address of every one.
    text = re.sub(r"^(NodeName=\w+)\[\S+\]", r"\g<1>1 NodeAddr=127.0.0.1", text, flags=re.M)
    text = re.sub(r"Nodes=(\w+)\[\S+\]", r"Nodes=\g<1>1", text)
    # Since Slurm 24 it looks for them when it starts.
    text = text.replace("/etc/rmsplugin/hooks", str(ROOT / "hooks"))
    state = directory / "state"
    state.mkdir()
    (directory / "slurm.conf").write_text(
        f"{text}\nClusterName=example\nSlurmctldHost={socket.gethostname().partition('.')[0]}(127.0.0.1)\n"
        f"SlurmUser={Path.home().owner()}\nSlurmctldPort={port}\nStateSaveLocation={state}\n"
        f"SlurmctldPidFile={directory}/pid\nAuthInfo=socket={munged.socket}\n"
    )
    words = [str(SLURMCTLD), "-D", "-i", "-f", str(directory / "slurm.conf")]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    said = ""
    try:
        assert daemon.stdout is not None
        for line in daemon.stdout:
            said += line
            if "Running as primary controller" in line:
                break
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.communicate()
    return said
