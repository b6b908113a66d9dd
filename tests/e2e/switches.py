"""The papers' evaluation in small: jobs that compute and idle by turns, with context switches and without (issue 8, 6).

``contrib/run-campaign switches``: see the developer guide.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster
from e2e.queued import wait_rooms

#: A round is some work on each of its VMs, counted so that VMs that share a CPU take longer, and then a pause.
SCRIPT = """#!/bin/sh
round=0
while [ "$round" -lt "$1" ]; do
    round=$((round + 1))
    echo "round $round"
    srun -n "$SLURM_NTASKS" sh -c 'i=0; while [ "$i" -lt "$0" ]; do i=$((i + 1)); done' "$2"
    sleep "$3"
done
echo end
"""

#: No campaign takes longer without KVM.
_PATIENCE_S = 2 * 3600.0
_VMS = (1, 2, 3)


@dataclass(frozen=True)
class Outcome:
    """How a run of the jobs went; seconds from the first submission."""

    total_s: float
    mean_s: float
    actions: dict[str, int]


def run(cluster: Cluster, sizes: list[int], rounds: int, work: int, idle_s: int) -> Outcome:
    """Submit a vjob of each size, wait for all, and compare what they printed.

    Raises:
        AssertionError: an output is not whole, a script ran twice, or a job did not end well.
    """
    before = _actions(cluster)
    began = time.time()
    jobs = [
        cluster.sbatch(
            SCRIPT,
            "-N",
            str(size),
            "--ntasks-per-node=1",
            "--mem=96",
            f"--nice={100 * place}",
            arguments=(str(rounds), str(work), str(idle_s)),
        )
        for place, size in enumerate(sizes)
    ]
    ended: dict[int, float] = {}

    def all_ended() -> bool:
        for job in jobs:
            if job not in ended and (cluster.vjob(job) or {"state": ""})["state"] == "terminated":
                ended[job] = time.time() - began
        return len(ended) == len(jobs)

    cluster.wait("the end of all jobs", all_ended, _PATIENCE_S, every_s=1)
    for job in jobs:
        assert cluster.sacct(job, "State")[0]["State"] == "COMPLETED"
        expected = [*(f"round {number}" for number in range(1, rounds + 1)), "end"]
        assert cluster.output(job).splitlines() == expected, f"the output of job {job} is not whole"
        vjob = cluster.vjob(job)
        assert vjob is not None and vjob["losses"] == 0
    after = _actions(cluster)
    done = {kind: after[kind] - before.get(kind, 0) for kind in sorted(after)}
    return Outcome(max(ended.values()), sum(ended.values()) / len(ended), done)


def _actions(cluster: Cluster) -> dict[str, int]:
    """How many actions of each kind the ledger has."""
    path = cluster.host_path("head", "/var/lib/rmsplugin/ledger.sqlite")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as ledger:
        return dict(ledger.execute("select kind, count(*) from actions where state = 'done' group by kind"))


def compare(cluster: Cluster, arguments: argparse.Namespace, say: Callable[[str], object] = print) -> None:
    """Run the same jobs with context switches and without, and print both side by side."""
    dice = random.Random(arguments.seed)
    sizes = [dice.choice(_VMS) for _ in range(arguments.vjobs)]
    say(f"{len(sizes)} vjobs of {', '.join(map(str, sizes))} VMs, {arguments.rounds} rounds each")
    found: dict[str, Outcome] = {}
    for name, mode in (("with", "REQUEUE"), ("without", "OFF")):
        wait_rooms(cluster)
        cluster.ok("scontrol", "update", "PartitionName=vjob", f"PreemptMode={mode}")
        found[name] = run(cluster, sizes, arguments.rounds, arguments.work, arguments.idle_s)
        say(f"{name} context switches: all ended after {found[name].total_s:.0f} s")
    on, off = found["with"], found["without"]
    say(f"{'':24}{'with':>10}{'without':>10}{'ratio':>8}")
    for label, one, other in (("total, s", on.total_s, off.total_s), ("mean completion, s", on.mean_s, off.mean_s)):
        say(f"{label:24}{one:10.0f}{other:10.0f}{one / other:8.2f}")
    for kind in sorted(on.actions.keys() | off.actions.keys()):
        say(f"{kind:24}{on.actions.get(kind, 0):10}{off.actions.get(kind, 0):10}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign switches",
        description="Jobs that compute and idle by turns on a minicluster of 3 nodes of 2 CPUs, the same jobs with "
        "context switches and without: total and mean completion side by side. The machine has to have more CPUs "
        "than the jobs keep busy: without KVM those of the nodes are this machine's.",
    )
    parser.add_argument("--vjobs", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default: %(default)s)")
    parser.add_argument("--work", type=int, default=200_000, help="turns of a loop in a round (default: %(default)s)")
    parser.add_argument("--idle-s", type=int, default=60, help="pause after each round (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes (default: %(default)s)")
    arguments = parser.parse_args()
    if min(arguments.vjobs, arguments.rounds, arguments.work) < 1 or arguments.idle_s < 0:
        parser.error("--vjobs, --rounds and --work are 1 or more, --idle-s is 0 or more")
    return on_minicluster(lambda cluster: compare(cluster, arguments), "hold", "--demand-window-s", "10")


if __name__ == "__main__":
    sys.exit(main())
