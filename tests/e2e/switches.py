"""The papers' evaluation in small: jobs that compute and idle by turns, with context switches and without (issue 8, 6).

``contrib/run-campaign switches``: see the developer guide.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster
from e2e.course import Slice, course, drawn
from e2e.queued import wait_rooms
from e2e.rooms import ledger

#: A round is some work on each of its VMs, counted so that VMs that share a CPU take longer, and then a pause.
SCRIPT = """#!/bin/sh
echo started >> "started.$SLURM_JOB_ID"
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
#: A line for each half minute.
_SLICE_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a run of the jobs went; seconds from the first submission."""

    ended_s: Sequence[float]  # of each job, head of the queue first
    actions: dict[str, int]
    slices: Sequence[Slice]
    suspended: Sequence[int]  # how often each was, head of the queue first
    failed_starts: int  # on a machine with too much other work guests are not up in time, and are booted again

    @property
    def total_s(self) -> float:
        """Until the last one has ended."""
        return max(self.ended_s)

    @property
    def mean_s(self) -> float:
        """The mean completion."""
        return sum(self.ended_s) / len(self.ended_s)


def run(cluster: Cluster, sizes: Sequence[int], rounds: int, work: int, idle_s: int) -> Outcome:
    """Submit a vjob of each size, head of the queue first, wait for all, and look at what they printed and who waited.

    Raises:
        AssertionError: an output is not whole, a script ran twice, a job did not end well, or the queue was not kept.
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
    cluster.wait("the end of all jobs", lambda: len(_ended(cluster, jobs)) == len(jobs), _PATIENCE_S, every_s=2)
    for job in jobs:
        _check_whole(cluster, job, rounds)
    _check_queue(cluster, jobs)
    after = _actions(cluster)
    return Outcome(
        ended_s=[_ended(cluster, jobs)[job] - began for job in jobs],
        actions={kind: after[kind] - before.get(kind, 0) for kind in sorted(after)},
        slices=course(lambda sql, *values: ledger(cluster, sql, *values), jobs, began, _SLICE_S),
        suspended=[len(_suspends(cluster, job)) for job in jobs],
        failed_starts=sum(_failed_starts(cluster, job) for job in jobs),
    )


def _check_whole(cluster: Cluster, job: int, rounds: int) -> None:
    """See that a job ended well, that its output is whole, and that it ran once."""
    assert cluster.accounted(job, "JobID")[0]["State"] == "COMPLETED"
    expected = [*(f"round {number}" for number in range(1, rounds + 1)), "end"]
    assert cluster.output(job).splitlines() == expected, f"the output of job {job} is not whole"
    assert (cluster.home() / f"started.{job}").read_text() == "started\n", f"the script of job {job} ran twice"
    assert ledger(cluster, "select losses from vjobs where job_id = ?", job) == [(0,)]


def _check_queue(cluster: Cluster, jobs: Sequence[int]) -> None:
    """See that the head of the queue was never suspended, and nobody for one that is behind it."""
    assert not _suspends(cluster, jobs[0]), f"{jobs[0]}, the head of the queue, was suspended"
    for job in jobs:
        for reason in _suspends(cluster, job):
            needed = re.search(r"needed by (\d+)", reason)
            assert not needed or jobs.index(int(needed[1])) < jobs.index(job), f"{job} was suspended: {reason}"


def _suspends(cluster: Cluster, job: int) -> list[str]:
    """Why a vjob was suspended, once for each time."""
    sql = "select message from events where kind = 'vjob-suspending' and vjob = ? order by id"
    return [message for (message,) in ledger(cluster, sql, str(job))]


def _failed_starts(cluster: Cluster, job: int) -> int:
    """How many starts of a vjob failed."""
    sql = "select count(*) from events where kind = 'start-failed' and vjob = ?"
    return int(ledger(cluster, sql, str(job))[0][0])


def _ended(cluster: Cluster, jobs: Sequence[int]) -> dict[int, float]:
    """When those of the jobs that have ended did so, seconds since the epoch."""
    rows = ledger(cluster, "select job_id, state_since from vjobs where state = 'terminated'")
    return {job: since for job, since in rows if job in jobs}


def _actions(cluster: Cluster) -> dict[str, int]:
    """How many actions of each kind the ledger has."""
    return dict(ledger(cluster, "select kind, count(*) from actions where state = 'done' group by kind"))


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
    assert not sum(found["without"].suspended), "nothing is suspended without context switches"
    for line in _table(sizes, found["with"], found["without"]):
        say(line)
    say("")
    for line in drawn({name: each.slices for name, each in found.items()}, _SLICE_S):
        say(line)


def _table(sizes: Sequence[int], on: Outcome, off: Outcome) -> list[str]:
    lines = [f"{'':24}{'with':>10}{'without':>10}{'ratio':>8}"]
    for label, one, other in (("total, s", on.total_s, off.total_s), ("mean completion, s", on.mean_s, off.mean_s)):
        lines.append(f"{label:24}{one:10.0f}{other:10.0f}{one / other:8.2f}")
    for kind in sorted(on.actions.keys() | off.actions.keys()):
        lines.append(f"{kind:24}{on.actions.get(kind, 0):10}{off.actions.get(kind, 0):10}")
    lines.append(f"{'starts that failed':24}{on.failed_starts:10}{off.failed_starts:10}")
    # Of two of one size the one ahead begins first; when it ends is also a matter of how soon its guests boot.
    pairs = [(one, two) for one, two in combinations(range(len(sizes)), 2) if sizes[one] == sizes[two]]
    late = [sum(run.ended_s[one] > run.ended_s[two] for one, two in pairs) for run in (on, off)]
    lines.append(f"{'ended out of order':24}{late[0]:10}{late[1]:10}   of {len(pairs)} pairs of one size")
    lines += ["", f"{'vjob':>4}{'VMs':>5}{'with, s':>10}{'without, s':>12}{'suspended':>11}"]
    for place, size in enumerate(sizes):
        times = f"{on.ended_s[place]:10.0f}{off.ended_s[place]:12.0f}{on.suspended[place]:11}"
        lines.append(f"{place + 1:4}{size:5}{times}")
    return lines


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
