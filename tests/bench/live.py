"""l. Real context switches: actions beside the model, makespans beside critical paths, the engine's share of a core.

On a minicluster of its own (root needed); RMSPLUGIN_E2E_DIR names one that is up already. Small vjobs fill it. Again
and again a vjob of a higher tier comes that needs two nodes: others are suspended for it, and resumed when it ends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.queued import wait_rooms

from bench.measure import Report, median
from rmsplugin.calibration.fit import fit
from rmsplugin.calibration.samples import samples_of
from rmsplugin.calibration.switches import MeasuredStep, SwitchTimes, times_of
from rmsplugin.engine.ledger.history import read_history

_TICKS = os.sysconf("SC_CLK_TCK")
_WAITS = "#!/bin/sh\necho up\nwhile :; do sleep 1; done\n"
_BRIEF = "#!/bin/sh\necho up\nsleep 3\n"
#: So much that a VM of the higher tier finds no memory before others have gone: steps wait for each other.
_MEMORY_MIB = (384, 640, 896)
_URGENT_MIB = 1500
_PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 8
    idle_s: float = 120.0


SIZES = {"full": Sizes(), "quick": Sizes(rounds=4, idle_s=60.0), "tiny": Sizes(rounds=1, idle_s=2.0)}


@dataclass(frozen=True, slots=True)
class _Use:
    """What the engine and its proposing process have used until now."""

    time: float
    cpu_s: float
    rss_mib: float

    @classmethod
    def now(cls, pid: int) -> _Use:
        """Of this process and its children."""
        pids = [pid, *_children(pid)]
        return cls(time.monotonic(), sum(map(cpu_s, pids)), sum(map(_rss_mib, pids)))

    def since(self, before: _Use) -> float:
        """Cores used in between."""
        return (self.cpu_s - before.cpu_s) / (self.time - before.time)


def run(sizes: Sizes, report: Report) -> None:
    """Measure on a minicluster."""
    report.title("l", "real context switches (guests under TCG; seconds)")
    if os.geteuid() != 0:
        report.say("needs root for its minicluster: left out")
        return
    for cluster in minicluster("hold", "--demand-window-s", "86400"):
        _measure(cluster, sizes, report)


def _measure(cluster: Cluster, sizes: Sizes, report: Report) -> None:
    wait_rooms(cluster)
    began = time.time()
    pid = _engine(cluster)
    small = [
        cluster.sbatch(_WAITS, "-c", "1", f"--mem={_MEMORY_MIB[number % len(_MEMORY_MIB)]}")
        for number in range(2 * len(cluster.nodes))
    ]
    for job in small:
        cluster.wait_vjob(job, "running", timeout_s=_PATIENCE_S)
    before = _Use.now(pid)
    time.sleep(sizes.idle_s)
    idle = _Use.now(pid)
    for _ in range(sizes.rounds):
        job = cluster.sbatch(_BRIEF, "-N", "2", "-c", "2", f"--mem={_URGENT_MIB}", "-p", "urgent", user="bob")
        cluster.wait_vjob(job, "terminated", timeout_s=_PATIENCE_S)
        for each in small:
            cluster.wait_vjob(each, "running", timeout_s=_PATIENCE_S)
    busy = _Use.now(pid)
    cluster.ok("scancel", *map(str, small))
    for each in small:
        cluster.wait_vjob(each, "terminated", timeout_s=_PATIENCE_S)
    ledger = cluster.host_path("head", "/var/lib/rmsplugin/ledger.sqlite")
    _tell_actions(ledger, began, report)
    _tell_switches(switches(ledger, began), report)
    rows = [["idle", idle.since(before), idle.rss_mib], ["switching", busy.since(idle), busy.rss_mib]]
    for what, cores, rss_mib in rows:
        report.record(what=what, cores=cores, rss_mib=rss_mib, cycle_s=float(cluster_cycle_s(cluster)))
    report.say(f"the engine and its proposing process, {len(small)} VMs, a cycle every {cluster_cycle_s(cluster)} s:")
    report.table(["", "share of a core", "RSS MiB"], rows)


def _tell_actions(ledger: Path, since: float, report: Report) -> None:
    history = read_history(ledger, since)
    rows = []
    for each in fit(samples_of(history.operations, history.actions)):
        if each.count:
            report.record(action=each.action, count=each.count, median_s=each.median_s, error_s=each.error_s)
            fitted = (
                [each.fitted_error_s, each.fitted.constant_s, each.fitted.s_per_mib] if each.is_fitted else [None] * 3
            )
            rows.append([each.action, each.count, each.median_s, each.p95_s, each.error_s, *fitted])
    report.table(["action", "n", "median", "p95", "error", "fitted error", "constant s", "s per MiB"], rows)


def _tell_switches(found: dict[int, SwitchTimes], report: Report) -> None:
    rows = []
    for number, times in found.items():
        report.record(
            switch=number,
            makespan_s=times.makespan_s,
            critical_path_s=times.critical_path_s,
            by_pools_s=times.by_pools_s,
        )
        ratio = times.makespan_s / times.critical_path_s
        rows.append([number, times.makespan_s, times.critical_path_s, ratio, times.by_pools_s])
    report.table(["context switch", "makespan", "critical path", "ratio", "pool after pool"], rows)
    report.ratio("makespan / critical path, median (aim: 1.15)", median(row[3] for row in rows))
    report.ratio("makespan / pool after pool, median", median(row[1] / row[4] for row in rows))


def switches(ledger: Path, since: float) -> dict[int, SwitchTimes]:
    """The times of the context switches of at least two steps whose steps were all done, by number."""
    steps = (
        "select plan_id, steps.id, operations.created, operations.ended from steps "
        "join plans on plans.id = plan_id join operations on operations.id = operation_id "
        "where plans.state = 'done' and plans.time >= ? order by steps.id"
    )
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=30)) as database:
        rows = database.execute(steps, [since]).fetchall()
        needs = defaultdict(list)
        for step, need in database.execute("select step_id, need_id from step_needs"):
            needs[step].append(need)
    by_plan = defaultdict(list)
    for plan, step, created, ended in rows:
        by_plan[plan].append((step, created, ended))
    found = {}
    for plan, own in by_plan.items():
        place = {step: index for index, (step, _, _) in enumerate(own)}
        measured = [
            MeasuredStep(created, ended, tuple(place[need] for need in needs[step])) for step, created, ended in own
        ]
        if len(measured) > 1:
            found[plan] = times_of(measured)
    return found


def cluster_cycle_s(cluster: Cluster) -> str:
    """The engine's cycle_s, as its settings have it."""
    text = cluster.ok("cat", "/etc/rmsplugin/rmsplugin.toml")
    return next(line.split("=")[1].strip() for line in text.splitlines() if line.startswith("cycle_s"))


def _engine(cluster: Cluster) -> int:
    """The engine's process, by the lock that it holds."""
    words = cluster.ok("sh", "-c", "ls -i /var/lib/rmsplugin/lock").split()
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if "FLOCK" in fields and fields[-3].rpartition(":")[2] == words[0] and "->" not in fields:
            return int(fields[4])
    raise RuntimeError("the engine does not run")


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, with those of its children that have ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0.0  # a command of Slurm's that has just ended: its parent has its time
    fields = text.rpartition(")")[2].split()
    # With what it has waited for: commands of Slurm's are part of what the engine costs.
    return sum(int(field) for field in fields[11:15]) / _TICKS


def _rss_mib(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
