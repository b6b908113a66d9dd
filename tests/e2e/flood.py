"""More output than anything could keep, through a VM of 128 MiB (issue 7, 3): gigabytes, as many as one likes by hand.

``contrib/run-campaign flood --gigabytes 10``: see the developer guide.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from e2e.campaign import on_minicluster
from e2e.cluster import Cluster

_MIB = 1 << 20

#: In the VM: there may be an end.
_ENOUGH = "/tmp/enough"

#: Numbered blocks of a mebibyte: a piece that is lost or repeated, of whatever length, is seen. To make them costs next
#: to nothing, so that the output's way is what takes time. There are more than asked for where switches take longer.
SCRIPT = """#!/bin/sh
block=$(mktemp)
trap 'rm "$block"' EXIT
seq 100000 999999 | head -c 1048576 >"$block"
number=0
while [ "$number" -lt "$1" ] || [ ! -e "$2" ]; do
    number=$((number + 1))
    echo "block $number"
    cat "$block"
done
echo "$number blocks"
"""
_BLOCK = b"".join(b"%d\n" % number for number in range(100_000, 250_000))[:_MIB]

#: Between two bytes, whatever happens to the VM meanwhile.
_PATIENCE_S = 300.0


def flood(cluster: Cluster, blocks: int, switches: int, say: Callable[[str], object] = print) -> float:
    """Deliver so many blocks across so many context switches, suspends and migrations in turn; returns MB/s.

    Raises:
        AssertionError: a byte of it is missing, repeated or wrong, or the job does not end well.
    """
    job = cluster.sbatch(SCRIPT, "-c", "2", "--open-mode=append", arguments=(str(blocks), _ENOUGH))
    path = cluster.home() / f"slurm-{job}.out"

    def delivered() -> int:
        return path.stat().st_size if path.exists() else 0

    def wait_for(what: str, there: Callable[[], bool]) -> None:
        """However long it takes, as long as there is more output each time that one looks."""
        before = -1
        while not there():
            assert delivered() > before, f"stalled before {what}: {describe_streams(cluster, job)}"
            before = delivered()
            deadline = time.monotonic() + _PATIENCE_S
            while not there() and delivered() == before and time.monotonic() < deadline:
                time.sleep(1)

    wait_for("the first output", lambda: delivered() > 0)
    began = time.monotonic()
    for switch in range(1, switches + 1):
        wanted = blocks * _MIB * switch // (switches + 1)
        wait_for(f"byte {wanted}", lambda wanted=wanted: delivered() >= wanted)  # type: ignore[misc]
        words = ("migrate",) if switch % 2 == 0 else ("suspend", "resume")
        say(f"{delivered() // 1_000_000} MB after {time.monotonic() - began:.0f} s: {words[0]}")
        for word in words:
            done = cluster.plugin(word, str(job), timeout_s=600)
            assert done.code == 0, done.err
    told = cluster.plugin("ssh", str(job), "--", "touch", _ENOUGH, timeout_s=600)
    assert told.code == 0, told.err
    # By accounting, and not by Slurm's list of jobs, which forgets them.
    wait_for("the end of the job", lambda: not cluster.ok("squeue", "-h", "-u", "alice"))
    took_s = time.monotonic() - began
    assert cluster.accounted(job, "JobID")[0]["State"] == "COMPLETED", cluster.describe(job)
    assert compare(path) >= blocks
    return path.stat().st_size / 1e6 / took_s


def describe_streams(cluster: Cluster, job: int) -> str:
    """Where the output may be stuck: on both sides of the wrapper's connection, and in between."""
    guest = "cd /run/rmsplugin; ps; ls -l output/ state/; head output/*.acked output/*.kept state/ack.*; free; df -k"
    wrapper = cluster.job(job).get("BatchHost", "head")
    parts = [
        cluster.describe(job),
        str(cluster.plugin("ssh", str(job), "--", "sh", "-c", shlex.quote(guest))),
        cluster.run("ss", "-tnoi", host="head" if wrapper == "front1" else wrapper).out,
    ]
    return "\n".join(parts)


def compare(path: Path) -> int:
    """See that a file is numbered blocks, byte for byte, and then their number, which is returned."""
    number = 0
    with path.open("rb") as file:
        while (line := file.readline()) == b"block %d\n" % (number + 1):
            number += 1
            assert file.read(_MIB) == _BLOCK, f"block {number} differs"
        assert line + file.read(1) == b"%d blocks\n" % number, (
            f"after block {number} comes what the script did not write"
        )
    return number


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run-campaign flood",
        description="Gigabytes of output through a VM of 128 MiB on a minicluster of their own, across suspends and "
        "migrations, compared byte for byte. Without KVM a gigabyte takes two minutes.",
    )
    parser.add_argument("--gigabytes", type=int, default=10, help="how much (default: %(default)s)")
    parser.add_argument("--switches", type=int, default=4, help="suspends and migrations (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.gigabytes < 1 or arguments.switches < 0:
        parser.error("--gigabytes is 1 or more, --switches 0 or more")

    def act(cluster: Cluster) -> None:
        rate = flood(cluster, arguments.gigabytes * 1000, arguments.switches)
        print(f"{arguments.gigabytes} GB, byte for byte, at {rate:.1f} MB/s", flush=True)

    return on_minicluster(act, "hold")


if __name__ == "__main__":
    sys.exit(main())
