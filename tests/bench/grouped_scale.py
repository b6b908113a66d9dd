"""x. Groups at scale: a cycle of the engine on 1,000 to 10,000 nodes, in groups and as one; on simulated neighbours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.asking import ASKED
from bench.grouped_case import CHANGES, VMS, WAITING
from bench.measure import Report, progress, ratio


@dataclass(frozen=True, slots=True)
class Sizes:
    """Nodes, and hosts of a group; the sizes that are measured as one group, too; cycles."""

    nodes: Sequence[int] = (1000, 5000, 10_000)
    as_one: Sequence[int] = (1000, 5000, 10_000)
    group_hosts: int = 1000
    cycles: int = 3


SIZES = {
    "full": Sizes(),
    "quick": Sizes((1000, 2000), (2000,), 1000, 3),
    "tiny": Sizes((8, 16), (16,), 8, 1),
}

_ROWS = (
    ("groups", "groups", ""),
    ("a cycle that changes nothing: wall", "wall_s", "s"),
    ("the same: the engine", "cycle_s", "CPU s"),
    ("the same: all proposing processes", "propose_s", "CPU s"),
    ("the same: the simulated platform, in the engine's process", "neighbours_s", "CPU s"),
    ("the same: the simulated Slurm, a process of its own", "slurm_s", "CPU s"),
    ("the same: computed at worst before another thread has its turn", "waited_ms", "ms"),
    (f"{CHANGES} jobs end and {CHANGES} arrive: wall", "little_wall_s", "s"),
    ("the same: the engine", "little_cycle_s", "CPU s"),
    ("the same: computed at worst before another thread has its turn", "little_waited_ms", "ms"),
    *((f"a request meanwhile ({word}): median", f"little_{word}_50_ms", "ms") for word in ASKED),
    *((f"a request meanwhile ({word}): one of a hundred", f"little_{word}_99_ms", "ms") for word in ASKED),
    *((f"a request meanwhile ({word}): the slowest", f"little_{word}_100_ms", "ms") for word in ASKED),
    ("memory, the simulated site and Python included", "peak_mib", "MiB"),
    ("memory of all proposing processes", "children_mib", "MiB"),
)


def run(sizes: Sizes, report: Report) -> None:
    """Measure all sites, each in a process of its own."""
    report.title("x", f"groups at scale: {VMS} VMs that run and {WAITING} vjobs that wait a node")
    cases = [(nodes, sizes.group_hosts) for nodes in sizes.nodes] + [(nodes, 0) for nodes in sizes.as_one]
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for case in cases:
        progress(f"x: {case[0]:,} nodes, {'groups' if case[1] else 'one group'}")
        found[case] = _measured(*case, sizes.cycles)
        report.record(**found[case])
    progress("")
    headers = ["", *(f"{nodes:,}{'' if hosts else ' as one'}" for nodes, hosts in found), "unit"]
    rows = [[what, *(results[key] for results in found.values()), unit] for what, key, unit in _ROWS]
    report.table(headers, rows)
    least, most = sizes.nodes[0], sizes.nodes[-1]
    for key in ("wall_s", "cycle_s", "little_cycle_s", "propose_s"):
        few, many = (found[nodes, sizes.group_hosts][key] for nodes in (least, most))
        report.ratio(f"{key} of {most:,} nodes / that of {least:,}, per node", ratio(few * most / least, many))
    for nodes in sizes.as_one:
        groups, one = found.get((nodes, sizes.group_hosts)), found[nodes, 0]
        if groups is not None:
            report.ratio(
                f"{nodes:,} nodes: wall of a cycle, in groups / as one", ratio(one["wall_s"], groups["wall_s"])
            )


def _measured(nodes: int, group_hosts: int, cycles: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.grouped_case", *(str(number) for number in (nodes, group_hosts, cycles))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"the engine could not be measured: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {f"{name[:-1]}ms": 1000 * value for name, value in found.items() if name.endswith("_s")}
