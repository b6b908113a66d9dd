"""Native jobs and vjobs, mixed at random on shared nodes (issue 7, 6.b): a few in CI, as many as one likes by hand.

``contrib/run-campaign mixed --native 30 --vjobs 30``: see the developer guide.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster
from e2e.rooms import COUNT, Watch, explain, ledger, native, output_is_whole

#: What vjobs took a VM off its node for, as events say it.
_TAKEN = "Slurm takes it back for a job of a higher tier"

#: A native job waits no longer for vjobs to start before it is submitted.
_PACE_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What happened in a mix."""

    seconds: float
    looks: int
    looks_at_both: int
    peak_mib: int
    rooms: Counter[str]  # events about rooms, by kind
    taken: int  # rooms that native jobs took
    migrated: int
    suspended: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s; {self.rooms['room-requested']} rooms requested, {self.taken} of them taken by "
            f"native jobs; {self.migrated} VMs migrated, {self.suspended} vjobs suspended, none lost; natives and VMs "
            f"seen at once in {self.looks_at_both} of {self.looks} looks; at most {self.peak_mib} MiB of a node in use"
        )


def mix(cluster: Cluster, natives: int, vjobs: int, seed: int, say: Callable[[str], object] = print) -> Outcome:
    """Run them. AssertionError: more memory used than there is, lost work, native jobs that do not end well."""
    chance = random.Random(seed)
    begun = time.monotonic()
    [(last_event,)] = ledger(cluster, "select coalesce(max(id), 0) from events")
    order = ["native"] * natives + ["vjob"] * vjobs
    chance.shuffle(order)
    jobs: dict[str, list[int]] = {"native": [], "vjob": []}
    started = "select count(distinct vjob) from events where kind = 'script-started' and id > ?"
    with Watch(cluster) as watch:
        for kind in order:
            if kind == "vjob":
                jobs[kind].append(_vjob(cluster, chance))
                continue
            # Vjobs boot slowly: native jobs come as they start, or all would be over before most VMs run.
            due = min(len(jobs["vjob"]), vjobs * len(jobs["native"]) // natives) - 2
            deadline = time.monotonic() + _PACE_S
            while ledger(cluster, started, last_event)[0][0] < due and time.monotonic() < deadline:
                time.sleep(0.5)
            time.sleep(chance.uniform(0, 3))
            jobs[kind].append(_native(cluster, chance))
        say(f"all are submitted after {time.monotonic() - begun:.0f} s")
        for partition, what in (("plain", "native jobs"), ("vjob", "vjobs")):
            cluster.wait(
                f"all {what} to end",
                lambda partition=partition: not cluster.ok("squeue", "-h", "-p", partition),
                60 * (natives + vjobs),
                lambda: explain(cluster),
            )
            say(f"all {what} have ended after {time.monotonic() - begun:.0f} s")
    watch.check()
    for job in jobs["native"]:
        # Slurm itself forgets a job some minutes after its end; its accounting has a row for each requeue.
        assert [row["State"] for row in cluster.sacct(job, "state", "--duplicates")] == ["COMPLETED"], job
    for job in jobs["vjob"]:
        assert cluster.accounted(job, "JobID")[0]["State"] == "COMPLETED", cluster.events(job)
        output_is_whole(cluster, job)
    events = ledger(cluster, "select kind, message from events where id > ?", last_event)
    kinds = Counter(kind for kind, _ in events)
    return Outcome(
        time.monotonic() - begun,
        watch.looks,
        watch.mixed,
        watch.peak_mib,
        Counter({kind: number for kind, number in kinds.items() if kind.startswith("room-")}),
        sum(kind == "room-given-back" and _TAKEN in message for kind, message in events),
        kinds["migrated"],
        kinds["vjob-sleeping"],
    )


def _native(cluster: Cluster, chance: random.Random) -> int:
    memory = ("--exclusive", "--mem=0") if chance.random() < 0.2 else (f"--mem={chance.choice((256, 1024, 1536))}",)
    where = ("-w", chance.choice(cluster.nodes)) if chance.random() < 0.3 else ()
    return native(cluster, "-c", str(chance.randint(1, 2)), *memory, *where, seconds=chance.randint(5, 20))


def _vjob(cluster: Cluster, chance: random.Random) -> int:
    nodes = 2 if chance.random() < 0.2 else 1
    options = ("-N", str(nodes), "-c", str(chance.randint(1, 2)), f"--mem={chance.choice((96, 128, 384))}")
    return cluster.sbatch(COUNT, *options, arguments=(str(chance.randint(5, 25)),))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign mixed",
        description="Native jobs and vjobs mixed at random on three shared nodes of a minicluster of their own: native "
        "memory and VMs are never more than a node has, no VM is on a node without a room, and no work is lost.",
    )
    parser.add_argument("--native", type=int, default=30, help="how many native jobs (default: %(default)s)")
    parser.add_argument("--vjobs", type=int, default=30, help="how many vjobs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.native < 0 or arguments.vjobs < 0:
        parser.error("--native and --vjobs are numbers of jobs")

    def act(cluster: Cluster) -> None:
        print(mix(cluster, arguments.native, arguments.vjobs, arguments.seed), flush=True)

    return on_minicluster(act, "elastic")


if __name__ == "__main__":
    sys.exit(main())
