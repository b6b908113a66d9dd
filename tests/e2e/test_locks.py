"""Locks of SQLite and HDF5 between VMs, elements, vjobs, native jobs, and of sleepers (decisions 0054, 0072, 0199)."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from minicluster_lib.layout import USERS

pytestmark = pytest.mark.e2e

_SOURCES = Path(__file__).with_name("locks")
_SQLITE = "libsqlite3.so.0"
_HDF5 = Path("/usr/include/hdf5/serial/hdf5.h")
_HDF5_WORDS = ("-I/usr/include/hdf5/serial", "-L/usr/lib/x86_64-linux-gnu/hdf5/serial", "-lhdf5")
_with_hdf5 = pytest.mark.skipif(not _HDF5.exists(), reason="Debian's libhdf5-dev is not installed")
_TIMES = 12
# Whoever comes first waits for the others, so that all write at the same time; but not for ever. What is in a file that
# is there from the beginning is asked of the server each time it is opened; a directory's names may be a minute old.
_WRITER = """#!/bin/bash
cat > write-$SLURM_JOB_ID <<X
cd ~/locks && echo came > here-\\$(({first} + SLURM_PROCID + ${{SLURM_ARRAY_TASK_ID:-0}}))
n=0; i=0
while [ \\$n -lt {together} ] && [ \\$i -lt 480 ]; do
    i=\\$((i + 1))
    if [ -n "\\$(cat here-\\$n)" ]; then n=\\$((n + 1)); else sleep 0.5; fi
done
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
        "elements": ("-a", "0-1"),
        "vjob": (),
    }
    count = {"native": 1, "VMs of a job": 2, "elements": 2, "vjob": 1}
    together = sum(count[kind] for kind in kinds)
    place = cluster.home() / "locks"
    for number in range(together):
        (place / f"here-{number}").touch()
    give(place)
    jobs: dict[int, int] = {}
    first = 0
    for kind in kinds:
        srun = "srun " if kind == "VMs of a job" else ""
        script = _WRITER.format(first=first, together=together, program=program, srun=srun)
        first += count[kind]
        job = cluster.sbatch(script, "--chdir=/home/alice/locks", *options[kind])
        jobs[job] = 2 if kind == "elements" else 1
    for job, elements in jobs.items():
        cluster.wait(f"job {job}", lambda job=job: not cluster.run("squeue", "-h", "-j", str(job)).out.strip(), 400)
        rows = cluster.accounted(job, "ExitCode", elements)
        said = [path.read_text() for path in place.glob(f"slurm-{job}*.out")]
        assert {row["State"] for row in rows} == {"COMPLETED"}, (said, rows)
    return together


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("native", "VMs of a job"), id="in two VMs of a job, and natively"),
        pytest.param(("elements", "vjob", "vjob"), id="in elements of an array, and two vjobs", marks=pytest.mark.long),
    ],
)
def test_writers_of_one_sqlite_database_lose_nothing(cluster: Cluster, kinds: Sequence[str]) -> None:
    library = next(Path(each) for each in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") if Path(each, _SQLITE).exists())
    place = programs(cluster, "count_sqlite", str(library / _SQLITE))
    with sqlite3.connect(place / "db") as made:
        made.execute("create table counter (n integer)")
        made.execute("insert into counter values (0)")
    made.close()
    give(place)
    # Who is refused for a native job's lock may be told EIO by the guest's kernel (decision 0199).
    again = "again" if "native" in kinds else ""
    writers = write_at_once(cluster, f"count_sqlite db {_TIMES} {again}", kinds)
    counted = sqlite3.connect(place / "db")
    assert counted.execute("select n from counter").fetchone() == (writers * _TIMES,)
    assert counted.execute("pragma integrity_check").fetchone() == ("ok",)
    counted.close()


@pytest.mark.long
@_with_hdf5
@pytest.mark.parametrize("kinds", [("VMs of a job",), ("elements", "vjob", "vjob")], ids=", ".join)
def test_writers_of_one_hdf5_file_lose_nothing(cluster: Cluster, kinds: Sequence[str]) -> None:
    place = hdf5_file(cluster)
    writers = write_at_once(cluster, f"count_hdf5 add data.h5 {_TIMES} > out-\\$(hostname)-\\$\\$", kinds)
    said = sorted(int(line) for path in place.glob("out-*") for line in path.read_text().split())
    assert said == list(range(1, writers * _TIMES + 1)), "each saw what the others wrote"


@pytest.mark.long
@_with_hdf5
def test_second_writer_of_an_hdf5_file_is_kept_out_wherever_its_vm_is(cluster: Cluster) -> None:
    """But not a native one here: hosts have /home without NFS, and HDF5 locks with flock."""
    place = hdf5_file(cluster)
    beside = "else until [ -e data.h5.held ]; do sleep 0.5; done; ./count_hdf5 try data.h5 > beside; fi"
    script = f"cd ~/locks; if [ $SLURM_PROCID = 0 ]; then exec ./count_hdf5 hold data.h5; {beside}"
    holder = cluster.sbatch(f"#!/bin/sh\nsrun sh -c '{script}'\n", "-N", "2", "-n", "2")
    cluster.wait("the holder", (place / "data.h5.held").exists, 240, lambda: cluster.describe(holder))

    def tried(*options: str) -> str:
        job = cluster.sbatch("#!/bin/sh\ncd ~/locks && exec ./count_hdf5 try data.h5\n", "-o", "tried", *options)
        cluster.wait_job(job, "COMPLETED", timeout_s=240)
        return (cluster.home() / "tried").read_text().strip()

    assert (tried(), tried("-a", "1"), tried("-p", "plain")) == ("refused", "refused", "opened")
    cluster.wait("the other VM", lambda: (place / "beside").exists() and (place / "beside").read_text(), 60)
    assert (place / "beside").read_text() == "refused\n"
    (place / "data.h5.go").touch()
    cluster.wait_job(holder, "COMPLETED", timeout_s=240)
    assert tried() == "opened"


def hdf5_file(cluster: Cluster) -> Path:
    """A file in which `count_hdf5` counts; returns its directory, which has that program."""
    place = programs(cluster, "count_hdf5", *_HDF5_WORDS)
    subprocess.run([place / "count_hdf5.bin", "create", place / "data.h5"], check=True)
    give(place)
    return place


_KEEP = """#!/bin/sh
cd ~/locks
for lock in fcntl flock; do
    for whom in alone other; do ./keep_lock $lock $lock-$whom & done
done
wait
"""
# In this order, once it may lock again: only a new descriptor has the file and its lock.
_TOLD = [
    "read: EIO",
    "write: EIO",
    "lock again in the same descriptor: ok",
    "read after that: EIO",
    "write after that: EIO",
    "close: ok",
    "lock in a new descriptor: ok",
    "read through that: ok",
    "write through that: ok",
]


@pytest.mark.long
def test_locks_of_a_vjob_that_slept_longer_than_the_lease_are_lost_and_its_programs_are_told(cluster: Cluster) -> None:
    """A lease of 20 s: what a night is at 60 s passes in a minute. Nobody took half of the locks meanwhile."""
    place = programs(cluster, "keep_lock")
    files = [place / f"{lock}-{whom}" for lock in ("fcntl", "flock") for whom in ("alone", "other")]
    for file in files:
        file.write_text("before\n")
    give(place)
    configuration = cluster.host_path("head", "/etc/ganesha/ganesha.conf")
    before = configuration.read_text()
    try:
        short = "NFSV4 {\n    Lease_Lifetime = 20;\n    Grace_Period = 20;\n"
        restart_server(cluster, configuration, before.replace("NFSV4 {\n", short))
        job = cluster.sbatch(_KEEP)
        for file in files:
            cluster.wait_output(job, f"^{file.name}: write: ok", timeout_s=240)
            assert is_locked(file)
        cluster.plugin("suspend", str(job))
        assert all(is_locked(file) for file in files), "a lock holds while the lease does"
        cluster.wait("the lease to end", lambda: not any(is_locked(file) for file in files), 180)
        for file in files:
            if file.name.endswith("other"):
                file.write_text("other\n")
        assert cluster.plugin("resume", str(job)).code == 0
        for file in files:
            cluster.wait_output(job, f"^{file.name}: write later: EIO", timeout_s=240)
            assert file.read_text() == ("other\n" if file.name.endswith("other") else "guest\n\n")
            Path(f"{file}.again").touch()
        cluster.wait_job(job, "COMPLETED", timeout_s=240)
        for file in files:
            said = re.findall(f"^{file.name}: (.*)", cluster.output(job), re.M)
            assert said == ["lock: ok", "write: ok", "write later: EIO", *_TOLD], said
            assert file.read_text().startswith("guest\n")
    finally:
        restart_server(cluster, configuration, before)


def restart_server(cluster: Cluster, configuration: Path, content: str) -> None:
    """Have the NFS server read another configuration, while it has no clients; nobody has anything to claim back."""
    configuration.write_text(content)
    cluster.kill("head", "nfs")
    cluster.ok("sh", "-c", "rm -rf /var/lib/nfs/ganesha/*")
    log = cluster.directory / "log/head/nfs.log"
    known = log.stat().st_size
    cluster.start("head", "nfs")
    cluster.wait(
        "the end of grace", lambda: b"NOT IN GRACE" in log.read_bytes()[known:], 240, lambda: log.read_text()[-2000:]
    )


def is_locked(path: Path) -> bool:
    """Whether the server has a lock of that file, which is not taken for that."""
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with path.open("r+") as file:
        answer: bytes = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    kind: int = struct.unpack("hhqqi4x", answer)[0]
    return kind != fcntl.F_UNLCK
