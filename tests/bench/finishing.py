"""t. Finishing: from a script's last act to its job's end, and 50 MB of output; vjobs beside native jobs.

On a minicluster of its own (root needed), or one that is up (RMSPLUGIN_E2E_DIR). Each script ends by making a file in
its user's home; its time is the beginning of the end. A job has ended when Slurm's list does not show it as running or
completing any more; to ask takes some 50 ms, of both kinds alike.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Cluster

from bench.measure import Report

_MARK = ': >"$HOME/mark-$SLURM_JOB_ID"\n'
_SHORT = "#!/bin/sh\necho begun\nsleep 2\n" + _MARK
#: By two programs, so that what makes it costs next to nothing.
_MUCH = "#!/bin/sh\nhead -c {bytes} /dev/zero | tr '\\0' x\n" + _MARK
_PATIENCE_S = 900.0
_ALIVE = "PD,CF,R,CG"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    times: int = 5
    output_mb: int = 50


SIZES = {"full": Sizes(), "quick": Sizes(times=3), "tiny": Sizes(times=1, output_mb=1)}


@dataclass(frozen=True, slots=True)
class _Seen:
    """One job: seconds from its script's end to its own, and from its first byte of output to its last."""

    end_s: float
    output_s: float


def run(sizes: Sizes, report: Report) -> None:
    """Measure on a minicluster."""
    report.title("u", f"finishing: from a script's end to its job's, and {sizes.output_mb} MB of output")
    if os.geteuid() != 0:
        report.say("needs root for its minicluster: left out")
        return
    with _cluster() as cluster:
        rows = []
        found: dict[str, tuple[float, float]] = {}
        for kind, partition in (("native", "plain"), ("vjob", "vjob")):
            ends = [_job(cluster, partition, _SHORT).end_s for _ in range(sizes.times)]
            much = _job(cluster, partition, _MUCH.format(bytes=sizes.output_mb * 1_000_000), sizes.output_mb)
            found[kind] = statistics.median(ends), much.output_s
            rows.append([kind, *found[kind], sizes.output_mb / much.output_s])
            report.record(kind=kind, end_s=found[kind][0], output_mb=sizes.output_mb, output_s=much.output_s)
    report.table(["", "script's end to job's end, s (median)", f"{sizes.output_mb} MB, s", "MB/s"], rows)
    _tell(found, report)


def _tell(found: Mapping[str, tuple[float, float]], report: Report) -> None:
    native, vjob = found["native"], found["vjob"]
    report.ratio("from the script's end to the job's, beside a native job", vjob[0] / native[0])
    report.ratio("time to deliver the output, beside a native job", vjob[1] / native[1])


@contextmanager
def _cluster() -> Iterator[Cluster]:
    if known := os.environ.get("RMSPLUGIN_E2E_DIR"):
        yield Cluster(Path(known))
        return
    with tempfile.TemporaryDirectory(prefix="rmsplugin-bench-", dir="/var/tmp") as directory:
        cluster = Cluster(Path(directory) / "cluster")
        try:
            done = cluster.manage("up", "--nodes", "2")
            if done.code != 0:
                raise RuntimeError(done.err)
            yield cluster
        finally:
            cluster.manage("down")


def _job(cluster: Cluster, partition: str, script: str, output_mb: int = 0) -> _Seen:
    job = cluster.sbatch(script, "-p", partition, "-c", "1")
    out, mark = (cluster.home() / f"{name}" for name in (f"slurm-{job}.out", f"mark-{job}"))
    deadline = time.monotonic() + _PATIENCE_S
    first = 0.0
    while not first or not mark.exists():
        first = first or (time.time() if out.exists() and out.stat().st_size else 0.0)
        if time.monotonic() > deadline:
            raise RuntimeError(cluster.describe(job))
        time.sleep(0.005)
    while cluster.ok("squeue", "-h", "-a", "-o", "%T", "-j", str(job), "-t", _ALIVE).strip():
        pass
    ended = time.time()
    if output_mb and out.stat().st_size != output_mb * 1_000_000:
        raise AssertionError(f"{out.stat().st_size} bytes of {output_mb} MB were delivered")
    seen = _Seen(ended - mark.stat().st_mtime, max(out.stat().st_mtime - first, 0.001))
    for path in (out, mark):
        path.unlink()
    return seen
