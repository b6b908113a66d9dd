"""One large site in a process of its own, so that its memory and threads are those of nothing else; prints JSON."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.large_site import WIDE, LargeSite
from bench.measure import median
from rmsplugin.client import EngineClient
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.latency import keep_for_good, switch_threads_often
from rmsplugin.model.vjob import VJobState

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1 << 20
_SIGNS = 300
#: How long each save, restore and stop of the crowd takes.
_ACTION_S = 0.5


def main(nodes: int, running: int, waiting: int, cycles: int) -> dict[str, Any]:
    """Measure all rows of the table."""
    switch_threads_often()  # as the daemon does
    base_mib = _memory_mib()
    with tempfile.TemporaryDirectory() as directory:
        site = LargeSite(Path(directory), nodes, running, waiting)
        with contextlib.closing(site):  # Its threads would keep a process that failed from ending.
            keep_for_good()  # as the daemon does; and the simulated neighbours are no garbage of the engine's
            first = site.cycle.run()  # what is done once is not counted: the first look, a process that is new
            if first.begun or first.problems:
                raise RuntimeError(f"nothing was to be begun: {first.sentence} {first.problems}")
            site.signs_of_life()
            found = {"nodes": nodes, "vms": running, "waiting": waiting, "base_mib": base_mib}
            found |= _cycles(site, cycles)
            found |= answers(site)
            found |= _signs(site)
            found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found |= _crowd(site)
    return found


def _cycles(site: LargeSite, count: int) -> dict[str, Any]:
    """CPU seconds of cycles that change nothing, without the simulated neighbours; and of the proposing process."""
    own, child, calls = [], [], site.rms.calls.copy()
    before = site.ledger.transactions
    for _ in range(count):
        adapters_s, child_s, began = site.adapters_cpu_s(), children_cpu_s(), time.process_time()
        report = site.cycle.run()
        own.append(time.process_time() - began - (site.adapters_cpu_s() - adapters_s))
        child.append(children_cpu_s() - child_s)
        if report.begun or report.problems or report.waiting == 0:
            raise RuntimeError(f"the cycle was to change nothing: {report.sentence} {report.problems}")
        site.signs_of_life()
    asked = (site.rms.calls - calls).total()
    return {
        "cycle_s": median(own),
        "propose_s": median(child),
        "questions": asked / count,
        "transactions": (site.ledger.transactions - before) / count,
    }


def answers(site: LargeSite) -> dict[str, Any]:
    """How long requests wait while a cycle with the solver is under way: in seconds, and in CPU of the engine."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    asker = context.Process(target=_ask, args=(site.socket, theirs))
    asker.start()
    theirs.close()  # so that one that failed ends the pipe
    ours.recv()  # it is up
    site.proposes.solver = True
    ours.send("begin")
    with Neighbour() as neighbour:
        site.cycle.preview()  # the same, up to the checked plan; nothing is changed by it
    ours.send("end")
    times: list[float] = sorted(ours.recv())
    asker.join()
    site.proposes.solver = False
    return {
        "answers": len(times),
        "answer_s": median(times),
        "slowest_s": times[-1],
        "waited_s": neighbour.waited_s,
    }


def _ask(socket: str, pipe: Any) -> None:
    """Ask for the status, again and again; send how long each answer took."""
    client, times = EngineClient.unix(socket), []
    pipe.send("up")
    pipe.recv()
    while not pipe.poll() or not times:
        began = time.perf_counter()
        client.request("GET", "/v1/status")
        times.append(time.perf_counter() - began)
        time.sleep(0.01)
    pipe.send(times)


class Neighbour:
    """A thread that wants to do something every millisecond.

    ``waited_s``: how much the engine's process computed at worst between two such moments. What else runs on the
    machine does not count in that.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        last = time.process_time()
        while not self._over.wait(0.001):
            now = time.process_time()
            self.waited_s = max(self.waited_s, now - last)
            last = now

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _signs(site: LargeSite) -> dict[str, Any]:
    """Transactions for signs of life, and their CPU."""
    running = next(vjob for vjob in site.ledger.vjobs() if vjob.state is VJobState.RUNNING)
    client = EngineClient.unix(site.socket)
    client.request("POST", f"/v1/jobs/{running.display_id}/attached")
    before = site.ledger.transactions
    for _ in range(_SIGNS):
        client.request("POST", f"/v1/jobs/{running.display_id}/attached")
    return {"signs": _SIGNS, "sign_transactions": site.ledger.transactions - before}


def _crowd(site: LargeSite) -> dict[str, Any]:
    """Threads while vjobs of many VMs are suspended, resumed and ended, and a cycle runs, all at once."""
    site.durations_s.update(dict.fromkeys(("save", "restore", "stop", "boot"), _ACTION_S))
    wide = [vjob.job_id for vjob in site.ledger.vjobs() if vjob.geometry.vms == WIDE]
    half = len(wide) // 2
    most = 0
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.002):
            most = max(most, threading.active_count())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for job_id in wide[:half]:
        site.executor.begin(job_id, OperationKind.SUSPEND, "measured")
    for job_id in wide[half:]:
        site.executor.begin(job_id, OperationKind.STOP, "measured")
    site.switch.close()  # nobody starts where room has become free: that would not end
    site.cycle.run()
    while site.executor.busy():
        time.sleep(0.05)
    over.set()
    watcher.join()
    return {"threads": most - 1}  # without the one that watches


def _memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def children_cpu_s() -> float:
    """CPU seconds of the processes that this one has started and that run."""
    return sum(of_each_child(cpu_s_of))


def of_each_child(measure: Callable[[int], float]) -> list[float]:
    """Measure each child; all again if a thread or a child has ended meanwhile."""
    while True:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            tasks = Path("/proc/self/task").iterdir()
            listed = [(task / "children").read_text(encoding="ascii").split() for task in tasks]
            return [measure(int(pid)) for children in listed for pid in children]


def cpu_s_of(pid: int) -> float:
    """CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    print(json.dumps(main(*(int(argument) for argument in sys.argv[1:5]))))
