"""One large site, in groups or as one, in a process of its own, so that its memory is that of nothing else; JSON."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.asking import asking
from bench.engine_case import Neighbour, children_cpu_s, cpu_s_of, of_each_child
from bench.large_site import LargeSite
from bench.measure import median
from rmsplugin.latency import keep_for_good, switch_threads_often
from rmsplugin.model.vjob import VJobState

VMS, WAITING = 5, 4  # of each node
#: So many jobs end, and as many arrive, before a cycle in which little changes.
CHANGES = 10
_LATE = "the cluster has changed since the plan was made; the next cycle decides anew"


def main(nodes: int, group_hosts: int, cycles: int) -> dict[str, Any]:
    """Measure cycles, and requests meanwhile; ``group_hosts``: hosts of a group, 0: one group."""
    switch_threads_often()  # as the daemon does
    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        site = LargeSite(Path(directory), nodes, VMS * nodes, WAITING * nodes, group_hosts or nodes, apart=True)
        with contextlib.closing(site):
            keep_for_good()
            filled_s = time.process_time() - began
            first = site.cycle.run()  # not counted: processes that are new
            if first.begun or first.problems:
                raise RuntimeError(f"nothing was to be begun: {first.sentence} {first.problems}")
            found = {"nodes": nodes, "filled_s": filled_s, "first_s": first.seconds}
            found |= _cycles(site, cycles, 0, "")
            found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found |= _cycles(site, cycles, CHANGES, "little_")
            slurm_mib = _peak_mib(site.slurm_apart.pid) if site.slurm_apart is not None else 0.0
            found["children_mib"] = sum(of_each_child(_peak_mib)) - slurm_mib
            seen = site.cycle.deciding.groups
            found["groups"] = len(seen.formed.groups) if seen else 0
    return found


def _cycles(site: LargeSite, count: int, changes: int, prefix: str) -> dict[str, Any]:
    """Wall and CPU seconds of cycles, those of the engine without the simulated neighbours.

    So many jobs end, and as many arrive, before each of them. If any do, requests are made meanwhile. Their answers
    cost CPU seconds, too, so that a cycle in which nothing changes is measured by itself.
    """
    running = [vjob for vjob in site.ledger.vjobs() if vjob.state is VJobState.RUNNING]
    singles = [vjob for vjob in running if vjob.geometry.vms == 1][changes * count :]  # the first ones end
    stay = [vjob.display_id for vjob in (*singles, *(vjob for vjob in running if vjob.geometry.vms > 1))]
    measured: list[dict[str, float]] = []
    answers: dict[str, list[float]] = {}
    for _ in range(count):
        site.signs_of_life()
        site.change(changes)
        asked: dict[str, list[float]] = {}
        with contextlib.ExitStack() as meanwhile:
            if changes:
                asked = meanwhile.enter_context(asking(site.socket, stay))
            neighbour = meanwhile.enter_context(Neighbour())
            measured.append(_cycle(site, changes))
        measured[-1]["waited_s"] = neighbour.waited_s
        for word, times in asked.items():
            answers.setdefault(word, []).extend(times)
        site.settle()
    found = {f"{prefix}{key}": median([each[key] for each in measured]) for key in measured[0]}
    found[f"{prefix}waited_s"] = max(each["waited_s"] for each in measured)
    for word, times in answers.items():
        times.sort()
        found |= {f"{prefix}{word}_{part}_s": times[int(part / 100 * (len(times) - 1))] for part in (50, 99, 100)}
    return found


def _cycle(site: LargeSite, changes: int) -> dict[str, float]:
    assert site.slurm_apart is not None
    slurm = site.slurm_apart.pid
    adapters_s, slurm_s = site.adapters_cpu_s(), cpu_s_of(slurm)
    children_s = children_cpu_s() - slurm_s
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    report = site.cycle.run()
    neighbours_s, slurm_s = site.adapters_cpu_s() - adapters_s, cpu_s_of(slurm) - slurm_s
    # What was begun first, the stops, may end while the cycle decides. Then it has decided, and the next one begins it.
    problems = [each for each in report.problems if not (changes and each.endswith(_LATE))]
    if (report.begun and not changes) or problems:
        raise RuntimeError(f"the cycle was to change nothing: {report.sentence} {report.problems}")
    return {
        "wall_s": time.perf_counter() - wall_s,
        "cycle_s": time.process_time() - cpu_s - neighbours_s,
        "propose_s": children_cpu_s() - cpu_s_of(slurm) - children_s,
        "neighbours_s": neighbours_s,
        "slurm_s": slurm_s,
    }


def _peak_mib(pid: int) -> float:
    """The most memory that a process has had; 0 if it has just ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmHWM")), 0.0)


if __name__ == "__main__":
    print(json.dumps(main(*(int(argument) for argument in sys.argv[1:4]))))
