"""i. Latency: where the time goes between sbatch and the end of a job, for vjobs beside native jobs of the same script.

On a minicluster of its own (root needed), whose nodes have as many CPUs and as much memory in Slurm as all jobs want at
once; the machine has what it has. The phases of a vjob, by the clock of this machine:

- to the VM's start: sbatch has returned, until the engine has its VM begin to start;
- to the running VM: until all its VMs answer and Slurm has started the job;
- to the first line: until the first byte is in the job's output file;
- to the end: from the script's last line, until Slurm shows the job as ended.

A native job has no VM: its time to the first line is one phase. VMs start from a template, which the first job made,
and once more by a boot.
"""

from __future__ import annotations

import math
import os
import shlex
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster import Cluster

from bench.measure import Report

#: Jobs at once, and how often.
SIZES: Mapping[str, Sequence[tuple[int, int]]] = {
    "full": ((1, 5), (30, 1)),
    "quick": ((1, 3), (30, 1)),
    "tiny": ((1, 1),),
}

_SCRIPT = "#!/bin/sh\necho begun\nsleep 3\necho over\n"
_MEMORY_MIB = 96
_POLL_S = 0.02
_PATIENCE_S = 900.0
_FIELDS = ("vm_start", "running_vm", "first_line", "end")
_PHASES = ("to the VM's start", "to the running VM", "to the first line", "to the end")


@dataclass
class _Job:
    """What was seen of one job; times in seconds since the epoch."""

    path: Path
    submitted: float
    begun: float = 0.0
    over: float = 0.0
    ended: float = 0.0
    events: dict[str, float] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """Look at its output."""
        if self.over or not self.path.exists():
            return
        text = self.path.read_text(errors="replace")
        self.begun = self.begun or (now if text else 0.0)
        self.over = now if "over\n" in text else 0.0

    def phases(self) -> list[float | None]:
        """Seconds of each phase; None where a native job has none."""
        started, running = self.events.get("vm"), self.events.get("vjob-running")
        if started is None or running is None:
            return [None, None, self.begun - self.submitted, self.ended - self.over]
        return [
            started - self.submitted,
            running - started,
            self.begun - running,
            self.ended - self.over,
        ]


def run(sizes: Sequence[tuple[int, int]], report: Report) -> None:
    """Measure on a minicluster, which is taken down at the end."""
    report.title("i", "latency: the phases of a job, from sbatch to its end")
    if os.geteuid() != 0:
        report.say("needs root for its minicluster: left out")
        return
    most = max(count for count, _ in sizes)
    with tempfile.TemporaryDirectory(prefix="rmsplugin-bench-", dir="/var/tmp") as directory:
        cluster = Cluster(Path(directory) / "cluster")
        try:
            size = ("--cpus", str(most), "--memory", str(most * 384))
            done = cluster.manage("up", "--nodes", "3", "--cycle-s", "30", *size)
            if done.code != 0:
                raise RuntimeError(done.err)
            rooms = ("squeue", "-h", "-a", "-p", "vmhosts", "-t", "R")
            cluster.wait("rooms", lambda: cluster.ok(*rooms).count("\n") == 3, 60)
            _measure(cluster, "vjob", [(1, 1)])  # fetches what is fetched once
            rows = _measure(cluster, "vjob", sizes)
            _switch_templates_off(cluster)
            booted = _measure(cluster, "vjob", sizes)
            # Rooms give way to native jobs; what is measured here is a native job on a free node.
            cluster.kill("head", "engine")
            cluster.ok("scancel", "-p", "vmhosts", "-u", "slurm")
            beside = _measure(cluster, "plain", sizes)
            _tell({"vjobs": rows, "booted vjobs": booted, "native jobs": beside}, report)
        finally:
            cluster.manage("down")


def _measure(cluster: Cluster, partition: str, sizes: Sequence[tuple[int, int]]) -> dict[int, list[_Job]]:
    found: dict[int, list[_Job]] = {}
    for count, times in sizes:
        for _ in range(times):
            found.setdefault(count, []).extend(_at_once(cluster, partition, count))
    return found


def _at_once(cluster: Cluster, partition: str, count: int) -> list[_Job]:
    """Submit ``count`` jobs by one loop, and watch them to their end."""
    home = cluster.home()
    (home / "bench.sh").write_text(_SCRIPT)
    options = f"--parsable -p {partition} -c 1 --mem={_MEMORY_MIB} -t 30 -o bench-%j.out"
    loop = f"cd /home/alice; for i in $(seq {count}); do sbatch {options} bench.sh; date +%s.%N; done"
    words = cluster.ok("sh", "-c", loop, user="alice", timeout_s=300).split()
    ids = [int(word) for word in words[::2]]
    jobs = {
        job_id: _Job(home / f"bench-{job_id}.out", float(when)) for job_id, when in zip(ids, words[1::2], strict=True)
    }
    deadline = time.monotonic() + _PATIENCE_S
    looked = 0.0
    while not all(job.ended for job in jobs.values()):
        now = time.time()
        for job in jobs.values():
            job.look(now)
        if now - looked > 0.3 and any(job.over and not job.ended for job in jobs.values()):
            looked = now
            alive = set(cluster.ok("squeue", "-h", "-o", "%A", "-t", "PD,CF,R,S,CG").split())
            for job_id, job in jobs.items():
                if job.over and str(job_id) not in alive:
                    job.ended = job.ended or time.time()
        if time.monotonic() > deadline:
            raise RuntimeError(f"jobs did not end: {shlex.join(str(job_id) for job_id in ids)}")
        time.sleep(_POLL_S)
    if partition == "vjob":
        _read_events(cluster, jobs)
    for job in jobs.values():
        job.path.unlink()
    return list(jobs.values())


def _read_events(cluster: Cluster, jobs: Mapping[int, _Job]) -> None:
    """When the engine saw each vjob's steps, and began to start its VM."""
    path = cluster.host_path("head", "/var/lib/rmsplugin/ledger.sqlite")
    ledger = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        for job_id, job in jobs.items():
            rows = ledger.execute("select kind, min(time) from events where vjob = ? group by kind", [str(job_id)])
            job.events = dict(rows.fetchall())
            (booted,) = ledger.execute(
                "select min(created) from actions where kind = 'run' and vm like ?", [f"vjob{job_id}-%"]
            ).fetchone()
            job.events["vm"] = booted
    finally:
        ledger.close()


def _switch_templates_off(cluster: Cluster) -> None:
    """From now on all VMs boot."""
    settings = cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml")
    settings.write_text(settings.read_text().replace("[start]\n", "[start]\ntemplate = false\n"))
    cluster.kill("head", "engine")
    cluster.restart_engine()


def _tell(found: Mapping[str, Mapping[int, list[_Job]]], report: Report) -> None:
    rows = []
    for count in found["vjobs"]:
        wholes, starts = {}, {}
        for kind, of_kind in found.items():
            each = [job.phases() for job in of_kind[count]]
            medians = [_median([phases[number] for phases in each]) for number in range(len(_PHASES))]
            starts[kind] = medians[_FIELDS.index("running_vm")] or math.nan
            wholes[kind] = statistics.median(job.ended - job.submitted for job in of_kind[count])
            rows.append([f"{count} {kind}", *medians, wholes[kind]])
            seconds = {f"{name}_s": value for name, value in zip(_FIELDS, medians, strict=True)}
            report.record(at_once=count, kind=kind, **seconds, whole_s=wholes[kind])
        report.ratio(
            f"{count} at once: whole way of a vjob beside that of a native job",
            wholes["vjobs"] / wholes["native jobs"],
        )
        report.ratio(
            f"{count} at once: start of a VM by a boot beside one from a template",
            starts["booted vjobs"] / starts["vjobs"],
        )
    report.table(["median seconds", *_PHASES, "whole way"], rows)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
