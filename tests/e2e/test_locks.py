"""Locks of SQLite between two VMs of a job and a native job beside (decision 0054)."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from minicluster_lib.layout import USERS

pytestmark = pytest.mark.e2e

_SOURCES = Path(__file__).with_name("locks")
_SQLITE = "libsqlite3.so.0"
_TIMES = 12
# Whoever comes first waits for the others, so that all write at the same time; but not for ever.
_WRITER = """#!/bin/bash
cat > write-$SLURM_JOB_ID <<X
cd ~/locks && : > here-\\$(hostname)-\\$SLURM_PROCID-$SLURM_JOB_ID
i=0; while [ \\$(ls here-* | wc -l) -lt {together} ] && [ \\$i -lt 240 ]; do i=\\$((i + 1)); sleep 0.5; done
exec ./{program}
X
{srun}sh write-$SLURM_JOB_ID
"""


def programs(cluster: Cluster, name: str, *words: str) -> Path:
    """A program with its libraries in alice's home, so that it runs in any guest; returns its directory."""
    place = cluster.home() / "locks"
    shutil.rmtree(place, ignore_errors=True)
    (place / "lib").mkdir(parents=True)
    source, program = str(_SOURCES / f"{name}.c"), str(place / f"{name}.bin")
    subprocess.run(["gcc", "-O1", "-D_GNU_SOURCE", "-o", program, source, *words], check=True)
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(", said):
        shutil.copy(library, place / "lib")
    loader = next((place / "lib").glob("ld-linux*"))
    start = f'#!/bin/sh\nexec ~/locks/lib/{loader.name} --library-path ~/locks/lib ~/locks/{name}.bin "$@"\n'
    (place / name).write_text(start)
    (place / name).chmod(0o755)
    give(place)
    return place


def give(place: Path) -> None:
    """To alice, who is another user on the machine that runs the minicluster."""
    for path in (place, *place.rglob("*")):
        os.chown(path, USERS["alice"], USERS["alice"])


def write_at_once(cluster: Cluster, program: str, kinds: Sequence[str]) -> int:
    """Run writers of these kinds, and wait for their ends; returns how many there were."""
    options = {
        "native": ("-p", "plain"),
        "VMs of a job": ("-N", "2", "-n", "2"),
    }
    count = {"native": 1, "VMs of a job": 2}
    together = sum(count[kind] for kind in kinds)
    jobs = []
    for kind in kinds:
        script = _WRITER.format(together=together, program=program, srun="srun " if kind == "VMs of a job" else "")
        jobs.append(cluster.sbatch(script, "--chdir=/home/alice/locks", *options[kind]))
    for job in jobs:
        cluster.wait(f"job {job}", lambda job=job: not cluster.run("squeue", "-h", "-j", str(job)).out.strip(), 400)
        rows = cluster.sacct(job, "State,ExitCode")
        assert {row["State"] for row in rows} == {"COMPLETED"}, (rows, cluster.describe(job))
    return together


def test_writers_of_one_sqlite_database_in_two_vms_of_a_job_and_natively_lose_nothing(cluster: Cluster) -> None:
    library = next(Path(each) for each in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") if Path(each, _SQLITE).exists())
    place = programs(cluster, "count_sqlite", str(library / _SQLITE))
    with sqlite3.connect(place / "db") as made:
        made.execute("create table counter (n integer)")
        made.execute("insert into counter values (0)")
    made.close()
    give(place)
    writers = write_at_once(cluster, f"count_sqlite db {_TIMES}", ("native", "VMs of a job"))
    counted = sqlite3.connect(place / "db")
    assert counted.execute("select n from counter").fetchone() == (writers * _TIMES,)
    assert counted.execute("pragma integrity_check").fetchone() == ("ok",)
    counted.close()
