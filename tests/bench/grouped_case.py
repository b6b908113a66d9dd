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

from bench.engine_case import answers, children_cpu_s, of_each_child
from bench.large_site import LargeSite
from bench.measure import median
from rmsplugin.latency import keep_for_good, switch_threads_often

VMS, WAITING = 5, 4  # of each node


def main(nodes: int, group_hosts: int, cycles: int) -> dict[str, Any]:
    """Measure cycles that change nothing, and requests meanwhile; ``group_hosts``: hosts of a group, 0: one group."""
    switch_threads_often()  # as the daemon does
    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        site = LargeSite(Path(directory), nodes, VMS * nodes, WAITING * nodes, group_hosts or nodes)
        with contextlib.closing(site):
            keep_for_good()
            filled_s = time.process_time() - began
            first = site.cycle.run()  # not counted: processes that are new
            if first.begun or first.problems:
                raise RuntimeError(f"nothing was to be begun: {first.sentence} {first.problems}")
            found = {"nodes": nodes, "filled_s": filled_s, "first_s": first.seconds} | _cycles(site, cycles)
            found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found |= answers(site)
            found["children_mib"] = sum(of_each_child(_peak_mib))
            seen = site.cycle.deciding.groups
            found["groups"] = len(seen.formed.groups) if seen else 0
    return found


def _cycles(site: LargeSite, count: int) -> dict[str, Any]:
    """Wall and CPU seconds of cycles, those of the engine without the simulated neighbours."""
    walls, own, children, neighbours = [], [], [], []
    for _ in range(count):
        site.signs_of_life()
        adapters_s, children_s = site.adapters_cpu_s(), children_cpu_s()
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        report = site.cycle.run()
        walls.append(time.perf_counter() - wall_s)
        neighbours.append(site.adapters_cpu_s() - adapters_s)
        own.append(time.process_time() - cpu_s - neighbours[-1])
        children.append(children_cpu_s() - children_s)
        if report.begun or report.problems:
            raise RuntimeError(f"the cycle was to change nothing: {report.sentence} {report.problems}")
    return {
        "wall_s": median(walls),
        "cycle_s": median(own),
        "propose_s": median(children),
        "neighbours_s": median(neighbours),
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
