"""v. Reaction: a short vjob arrives on a full cluster, and somebody is paused for it; where do the seconds go?

On a minicluster of its own (root needed), whose two nodes long vjobs fill; the engine decides by ``slowdown`` and
pauses. Short ones come one by one. The times of a round are those of the ledger, of the engine's log and of the
job's output file as the front has it, from the moment before ``sbatch`` was started. Beside each a native job of the
same script, on the same front at another moment of the same minute. All of it with each of the ways to filter VMs,
by turns. Then a thousand vjobs arrive within a minute: how many cycles does that cause, and how long do they take?
"""

from __future__ import annotations

import os
import re
import shlex
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import WHOLE, wait_rooms
from e2e.rooms import count, engine_pid, ledger, wait_number

from bench.live import cpu_s
from bench.measure import Report
from rmsplugin.adapters.platform.base import NODE_FILTER, OUR_FILTER


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: in each turn so many rounds with each way to filter VMs."""

    turns: int
    rounds: int
    arrivals: int
    within_s: float


SIZES = {"full": Sizes(3, 4, 1000, 60.0), "quick": Sizes(2, 3, 1000, 60.0), "tiny": Sizes(1, 1, 20, 2.0)}

_SCRIPT = "#!/bin/sh\necho begun\nsleep 2\necho over\n"
_NATIVE = "native"
_POLL_S = 0.005
_PATIENCE_S = 300.0
#: A bit more than PreemptExemptTime of the minicluster: no vjob that has just gone on is paused again.
_EXEMPT = 12
_FILTERS = (OUR_FILTER, NODE_FILTER)
#: What happens in a round, in this order; and then, from the end of the script on.
_POINTS = (
    "sbatch ends",
    "decided",
    "paused",
    "VM begins",
    "VM up",
    "running",
    "script starts",
    "first line",
)
_AFTER = ("VM goes on", "shown running")

_EVENT = "select min(time) from events where vjob = ? and kind = ? and time >= ?"
_PLAN = """select min(plans.time) from plans join steps on plan_id = plans.id
    where steps.vjob = ? and steps.kind = 'start'"""
_ACTION = """select min(actions.created), max(actions.ended) from actions
    join operations on operations.id = operation_id where job_id = ? and actions.kind = ? and actions.created >= ?"""
_STAGE = re.compile(r"(\w+) ([0-9.]+) s\b")

Times = dict[str, float]


def run(sizes: Sizes, report: Report) -> None:
    """Measure on a minicluster, which is taken down at the end."""
    report.title("v", "reaction: a short vjob arrives on a full cluster (seconds)")
    if os.geteuid() != 0:
        report.say("needs root for its minicluster: left out")
        return
    with tempfile.TemporaryDirectory(prefix="rmsplugin-bench-", dir="/var/tmp") as directory:
        cluster = Cluster(Path(directory) / "cluster")
        try:
            done = cluster.manage("up", "--nodes", "2", "--cycle-s", "30", "--demand-window-s", "86400")
            if done.code != 0:
                raise RuntimeError(done.err)
            with configured(cluster, "decision", 'policy = "slowdown"', "pause_limit_s = 600"):
                measure(cluster, sizes, report)
        finally:
            cluster.manage("down")


def measure(cluster: Cluster, sizes: Sizes, report: Report) -> None:
    """On a cluster that is up, and that this fills."""
    wait_rooms(cluster)
    fronts = ",".join(cluster.ok("sinfo", "-h", "-N", "-p", "vjob", "-o", "%N").split())
    cluster.ok("scontrol", "create", f"PartitionName={_NATIVE}", f"Nodes={fronts}", "State=UP")
    longs = [count(cluster, *WHOLE, "-t", "600") for _ in cluster.nodes]
    for job in longs:
        wait_number(cluster, job, _EXEMPT)
    rounds: dict[str, list[tuple[Times, float]]] = {way: [] for way in _FILTERS}
    for _ in range(sizes.turns):
        for way, found in rounds.items():
            with configured(cluster, "network", f'filter = "{way}"'):
                _round(cluster, longs)  # the engine is new, and asks more the first time
                found += [(_round(cluster, longs), _native(cluster)) for _ in range(sizes.rounds)]
    medians = []
    for way, found in rounds.items():
        report.say(f"network.filter is {way}")
        medians.append(_tell(found, report))
    report.ratio(f"sbatch to the first line: filtered by {_FILTERS[1]} beside {_FILTERS[0]}", medians[1] / medians[0])
    _storm(cluster, sizes, report)
    cluster.ok("scancel", *map(str, longs))
    cluster.ok("scontrol", "delete", f"PartitionName={_NATIVE}")


def _round(cluster: Cluster, longs: Sequence[int]) -> Times:
    """One short vjob, from its submission until the one that was paused for it goes on."""
    times: Times = {}
    began = time.time()
    job, output = _submit(cluster, "vjob", "-t", "2", *WHOLE)
    times["sbatch ends"] = time.time() - began
    times["first line"] = _begins(output) - began
    cluster.wait_job(job, "COMPLETED", timeout_s=_PATIENCE_S)
    [paused] = [each for each in longs if _at(cluster, _EVENT, each, "vjob-paused", began)]
    cluster.wait("it to run", lambda: _at(cluster, _EVENT, paused, "vjob-running", began), 60)
    [(pause, _)] = ledger(cluster, _ACTION, paused, "pause", began)
    [(_, goes_on)] = ledger(cluster, _ACTION, paused, "unpause", began)
    [(vm_begins, vm_up)] = ledger(cluster, _ACTION, job, "run", began)
    ended = _at(cluster, _EVENT, job, "script-ended", began)
    times |= {
        "decided": _at(cluster, _PLAN, job) - began,
        "paused": pause - began,
        "VM begins": vm_begins - began,
        "VM up": vm_up - began,
        "running": _at(cluster, _EVENT, job, "vjob-running", began) - began,
        "script starts": _at(cluster, _EVENT, job, "script-started", began) - began,
        "VM goes on": goes_on - ended,
        "shown running": _at(cluster, _EVENT, paused, "vjob-running", began) - ended,
    }
    log = cluster.manage("logs", "head", "engine", "-n", "400").out
    if found := re.search(rf"vjob{job}-0 is up on \S+: (.*)", log):
        times |= {f"- {name}": float(seconds) for name, seconds in _STAGE.findall(found[1])}
    for each in longs:
        wait_number(cluster, each, _EXEMPT)
    return times


def _native(cluster: Cluster) -> float:
    """A native job of the same script on a front: from sbatch to its first line."""
    began = time.time()
    job, output = _submit(cluster, _NATIVE, "-c", "1", "--mem=96")
    first_line = _begins(output) - began
    cluster.wait_job(job, "COMPLETED", timeout_s=_PATIENCE_S)
    return first_line


def _submit(cluster: Cluster, partition: str, *options: str) -> tuple[int, Path]:
    """A job of the script; its id, and its output as this machine sees it."""
    home = cluster.home()
    (home / "bench.sh").write_text(_SCRIPT)
    words = ["sbatch", "--parsable", "-p", partition, *options, "-o", "bench-%j.out", "bench.sh"]
    job = int(cluster.ok("sh", "-c", f"cd /home/alice && exec {shlex.join(words)}", user="alice"))
    return job, home / f"bench-{job}.out"


def _begins(output: Path) -> float:
    """When the first line of a script was there."""
    deadline = time.monotonic() + _PATIENCE_S
    while not output.exists() or not output.stat().st_size:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no output in {output.name}")
        time.sleep(_POLL_S)
    return time.time()


def _at(cluster: Cluster, sql: str, *parameters: object) -> float:
    """When something happened first; 0.0 if it has not yet."""
    [(when,)] = ledger(cluster, sql, *parameters)
    return float(when or 0.0)


def _tell(rounds: Sequence[tuple[Times, float]], report: Report) -> float:
    """Report the rounds; the median of the first lines."""
    names = [*_POINTS, *(name for name in rounds[0][0] if name.startswith("- ")), *_AFTER]
    rows = []
    for name in names:
        values = [times[name] for times, _ in rounds if name in times]
        rows.append([name, statistics.median(values), min(values), max(values)])
    natives = [native for _, native in rounds]
    rows.append(["native: first line", statistics.median(natives), min(natives), max(natives)])
    report.say(
        "from before sbatch; what a VM's start consists of (-); from the script's end until the paused one goes on"
    )
    report.table(["seconds", f"median of {len(rounds)}", "least", "most"], rows)
    for times, native in rounds:
        report.record(first_line_s=times["first line"], native_s=native, goes_on_s=times["VM goes on"])
    median = statistics.median(times["first line"] for times, _ in rounds)
    report.ratio("sbatch to the first line: a vjob beside a native job", median / statistics.median(natives))
    return median


# -- many at once ------------------------------------------------------------------------------------------------------


@contextmanager
def _cycles_seen(cluster: Cluster) -> Iterator[dict[float, float]]:
    """How long each cycle took that was seen meanwhile, by when it began."""
    found: dict[float, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.03):
            if status := cluster.ask("/v1/status"):
                found[status["last_cycle"]["time"]] = status["last_cycle"]["seconds"]

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _storm(cluster: Cluster, sizes: Sizes, report: Report) -> None:
    """Many vjobs arrive at even distances, and there is no room for any of them."""
    (cluster.home() / "bench.sh").write_text(_SCRIPT)
    line = f"sbatch --parsable -p vjob -t 600 -o /dev/null {shlex.join(WHOLE)} bench.sh"
    pause = sizes.within_s / sizes.arrivals
    loop = f"cd /home/alice; for i in $(seq {sizes.arrivals}); do {line} & sleep {pause:.3f}; done; wait"
    before = cpu_s(engine := engine_pid(cluster))
    began = time.time()
    with _cycles_seen(cluster) as cycles:
        cluster.ok("sh", "-c", loop, user="alice", timeout_s=900)
        took_s = time.time() - began
    used_s = cpu_s(engine) - before
    seconds = sorted(value for when, value in cycles.items() if when >= began)
    _tell_storm(seconds, {"arrivals": sizes.arrivals, "took_s": took_s, "engine_cpu_s": used_s}, report)
    cluster.ok("scancel", "-u", "alice", "-t", "PD", timeout_s=600)


def _tell_storm(seconds: Sequence[float], about: Mapping[str, float], report: Report) -> None:
    report.say(f"{about['arrivals']} vjobs arrived within {about['took_s']:.0f} s on a full cluster")
    whole = sum(seconds)
    rows = [[len(seconds), statistics.median(seconds), max(seconds), whole, about["engine_cpu_s"]]]
    report.table(["cycles seen", "median s", "longest s", "all s", "CPU s of the engine"], rows)
    report.record(cycles=len(seconds), cycles_s=whole, **about)
    report.ratio("share of the time that cycles took", whole / about["took_s"])
