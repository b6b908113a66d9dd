"""Tests of the suite run on a minicluster: a copy in a user's home, the default partition, one test after the other."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import Cluster
from e2e.slurm_suite.kept import keep, kept
from e2e.slurm_suite.limited import run_limited
from e2e.slurm_suite.results import Ending, Run, ending_of
from e2e.slurm_suite.sources import Sources
from minicluster_lib.layout import USERS

NATIVE, VJOB = "plain", "vjob"

_USER = "alice"
#: What tests that call Slurm's libraries need; there if the checkout was configured.
_MADE = ("config.h", "slurm")

# In place of what the checkout has for its own site. Programs have the paths that they have in VMs, too; what `sleep`
# complains of is told as GNU's program does, or as that of the small image (BusyBox).
_LOCAL = """\
set slurm_dir "/usr"
set bin_bash "/bin/bash"
set max_job_delay 60
set testsuite_cleanup_on_failure true
set sleep_error_message "(invalid time interval)|(invalid number)"
"""

_QUIET_S = 120.0

#: The partitions take turns: a campaign that is broken off has run its first tests in both.
_TOGETHER = 10


def run_both(
    cluster: Cluster, sources: Sources, tests: Sequence[str], limit_s: float, logs: Path
) -> tuple[dict[str, Run], dict[str, Run]]:
    """Run tests natively, and those that passed in VMs: the others could not be compared, whatever became of them."""
    native: dict[str, Run] = {}
    vjob = {test: Run(Ending.NOT_RUN) for test in tests}
    for first in range(0, len(tests), _TOGETHER):
        some = tests[first : first + _TOGETHER]
        native |= run_all(cluster, sources, some, NATIVE, limit_s, logs)
        passing = [test for test in some if native[test].ending is Ending.PASSED]
        vjob |= run_all(cluster, sources, passing, VJOB, limit_s, logs)
    return native, vjob


def run_all(
    cluster: Cluster, sources: Sources, tests: Sequence[str], partition: str, limit_s: float, logs: Path
) -> dict[str, Run]:
    """Run tests with a partition as the default one; what became of each.

    Logs and endings are written below ``logs``, and what an earlier run left there is not run again.
    """
    (logs / partition).mkdir(parents=True, exist_ok=True)
    runs = {test: run for test in tests if (run := kept(logs / partition, test))}
    left = [test for test in tests if test not in runs]
    if not left:
        return runs
    directory = _place(cluster, sources, partition)
    _clear(cluster)
    with _default(cluster, partition):
        for test in left:
            runs[test] = _run(cluster, directory, test, limit_s, logs / partition)
            print(f"{partition}: test{test} {runs[test].ending.value}", flush=True)
            _clear(cluster)
    return runs


def _run(cluster: Cluster, directory: str, test: str, limit_s: float, logs: Path) -> Run:
    log = logs / f"test{test}.log"
    line = f"cd {shlex.quote(directory)} && exec expect test{test}"
    code = run_limited(cluster.entering("sh", "-c", line, user=_USER), limit_s, log)
    run = Run(ending_of(code), log.read_text(errors="replace"))
    keep(logs, test, run)
    return run


def _place(cluster: Cluster, sources: Sources, partition: str) -> str:
    """Copy the suite into the user's home, for tests write beside themselves; returns its path on the login node."""
    inside = f"slurm-suite/{partition}"
    top = cluster.home(_USER) / inside
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(sources.suite, top / sources.suite.relative_to(sources.directory), symlinks=True)
    for name in _MADE:
        source = sources.directory / name
        if source.is_dir():
            shutil.copytree(source, top / name, symlinks=True)
        elif source.is_file():
            shutil.copy(source, top / name)
    suite = top / sources.suite.relative_to(sources.directory)
    (suite / "globals.local").write_text(_LOCAL)
    for path in (top.parent, top, *top.rglob("*")):
        os.chown(path, USERS[_USER], USERS[_USER], follow_symlinks=False)
    return f"/home/{_USER}/{inside}/{suite.relative_to(top)}"


@contextmanager
def _default(cluster: Cluster, partition: str) -> Iterator[None]:
    """Slurm has one default partition: that one meanwhile, the native one afterwards."""
    cluster.ok("scontrol", "update", f"PartitionName={partition}", "Default=YES")
    try:
        yield
    finally:
        cluster.ok("scontrol", "update", f"PartitionName={NATIVE}", "Default=YES")


def _clear(cluster: Cluster) -> None:
    """Nothing of a test is in the way of the next one: jobs are cancelled, nodes that it drained are able again."""
    cluster.run("scancel", "--user", _USER)
    queue = ("squeue", "-h", "-u", _USER)
    cluster.wait(
        "the jobs of a test to go", lambda: not cluster.ok(*queue).strip(), _QUIET_S, lambda: cluster.ok(*queue)
    )
    for line in cluster.unable_nodes():
        if "drain" in line:
            cluster.run("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
    cluster.wait("idle nodes", lambda: not _busy(cluster), _QUIET_S, lambda: _busy(cluster))


def _busy(cluster: Cluster) -> list[str]:
    """A line for each node of both partitions that is not idle: it runs something, it has a room, or it is ill."""
    lines = cluster.ok("sinfo", "-h", "-N", "-p", f"{NATIVE},{VJOB}", "-o", "%N %t").splitlines()
    return [line for line in lines if line.split()[1:] != ["idle"]]
