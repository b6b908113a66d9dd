"""Vjobs in Slurm's queue as the e2e tests see them: many at once, in Slurm's order, and native jobs beside them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from e2e.cluster import Cluster, files_below

GATE = "vjobgate"
LOOP = "#!/bin/sh\necho up\nwhile :; do sleep 1; done\n"
#: A vjob that takes a node alone is as small as this, and so is a native one.
WHOLE = ("-c", "2", "--mem=96")
SMALL = ("-c", "1", "--mem=96")


@dataclass(frozen=True)
class Queued:
    """A pending job as squeue prints it."""

    job: str
    reason: str
    licences: str

    @property
    def kept(self) -> bool:
        """Whether Slurm itself would not start it now, whatever were free."""
        return self.reason.startswith(("JobHeld", "Dependency", "BeginTime", "JobArrayTaskLimit"))


def queue(cluster: Cluster) -> list[Queued]:
    """The pending vjobs in the order of their priority and then their ids, which is Slurm's own."""
    words = ("squeue", "-h", "-r", "-p", "vjob", "-t", "PD", "--sort=-p,i", "-o", "%i|%r|%W")
    return [Queued(*line.split("|")) for line in cluster.ok(*words).splitlines()]


def submit_all(cluster: Cluster, *jobs: Iterable[str], user: str = "alice", script: str = LOOP) -> list[int]:
    """Submit a vjob for each tuple of options, with one command; returns their ids."""
    path = cluster.home(user) / "queued.sh"
    path.write_text(script)
    lines = [
        shlex.join(["sbatch", "--parsable", "-p", "vjob", *options, f"/home/{user}/{path.name}"]) for options in jobs
    ]
    out = cluster.ok("sh", "-ec", "\n".join([f"cd /home/{user}", *lines]), user=user, timeout_s=300)
    return [int(word) for word in out.split()]


def native(cluster: Cluster, *options: str, user: str = "bob") -> int:
    """Submit a job of an ordinary partition that sleeps."""
    words = ("sbatch", "--parsable", "-p", "plain", "-o", "/dev/null", *options, "--wrap", "exec sleep 3600")
    return int(cluster.ok("sh", "-c", f"cd /home/{user} && exec {shlex.join(words)}", user=user))


def vjobs(cluster: Cluster) -> dict[str, dict[str, str]]:
    """All vjobs that the engine knows, ended ones too, by their ids."""
    return {each["display_id"]: each for each in cluster.vjobs()}


def begun(cluster: Cluster, jobs: Collection[object]) -> set[str]:
    """Those of the jobs that are not waiting any more."""
    known = vjobs(cluster)
    return {str(job) for job in jobs if str(job) in known and known[str(job)]["state"] != "waiting"}


def wait_begun(cluster: Cluster, job: object, timeout_s: float = 120) -> None:
    """Wait until the engine has begun to start a vjob."""
    cluster.wait(f"vjob {job} to begin", lambda: begun(cluster, [job]), timeout_s, lambda: cluster.describe(str(job)))


def wait_reason(cluster: Cluster, job: int, text: str, timeout_s: float = 60) -> None:
    """Wait until a vjob waits for this reason."""

    def there() -> bool:
        vjob = cluster.vjob(job)
        return vjob is not None and vjob["state"] == "waiting" and text in vjob["reason"]

    cluster.wait(f"vjob {job} to wait because of {text!r}", there, timeout_s, lambda: cluster.describe(job))


def wait_rooms(cluster: Cluster, timeout_s: float = 120) -> None:
    """Wait until VMs may run on every node."""

    def rooms() -> int:
        return len(cluster.ok("squeue", "-h", "-a", "-p", "vmhosts", "-t", "R", "-o", "%N").split())

    cluster.wait("a room on each node", lambda: rooms() == len(cluster.nodes), timeout_s, rooms)


def nothing_left(cluster: Cluster, jobs: Collection[int]) -> None:
    """Wait until nothing of the vjobs is left: VMs, files of theirs on nodes, rows that have not ended."""

    def left() -> list[str]:
        known = vjobs(cluster)
        found = [f"vjob {job} is {known[str(job)]['state']}" for job in jobs if str(job) in known
                 and known[str(job)]["state"] != "terminated"]  # fmt: skip
        for node in cluster.nodes:
            vms = cluster.ok("virsh", "-q", "list", "--all", "--name", host=node).split()
            files = [path.name for path in files_below(cluster.host_path(node, "/var/lib/rmsplugin"))]
            names = {name for name in (*vms, *files) if (match := re.match(r"vjob(\d+)-", name))
                     and int(match[1]) in jobs}  # fmt: skip
            found += [f"{name} on {node}" for name in sorted(names)]
        return found

    cluster.wait("nothing left", lambda: not left(), 120, left)
