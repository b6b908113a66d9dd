"""A gang is paused and goes on again and again: its VMs stand still together, and TCP between them survives."""

from __future__ import annotations

import re
from statistics import median

import pytest
from e2e.cluster import PROGRAM, Cluster
from e2e.queued import nothing_left, wait_rooms
from e2e.rooms import ledger

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

#: Each VM but the first one sends numbers to the first one, over one connection, and that sends some to the last one.
#: The input of who only listens has no end: busybox' nc closes the connection at it.
TALKS = """#!/bin/sh
echo started >> started.$SLURM_JOB_ID
cat > talk.$SLURM_JOB_ID <<'END'
numbers() { i=0; while [ ! -e enough.$SLURM_JOB_ID ]; do i=$((i + 1)); echo $i; sleep 0.1; done; echo enough; }
hear() { mkfifo /tmp/quiet.$1; exec 3<>/tmp/quiet.$1; nc -l -p $1 <&3 > heard.$SLURM_JOB_ID.$1; echo "$1: $?"; }
last=$((SLURM_NTASKS - 1))
if [ "$SLURM_PROCID" = 0 ]; then
    for each in $(seq $last); do hear 500$each & done
    sleep 8
    numbers | nc "$2" 6000
else
    [ "$SLURM_PROCID" != $last ] || hear 6000 &
    sleep 8
    numbers | nc "$1" 500$SLURM_PROCID
fi
echo "said by $SLURM_PROCID: $?"
wait
END
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun sh talk.$SLURM_JOB_ID $(echo "$hosts" | sed -n '1p;$p')
echo over
"""
#: The engine's own operations, in its place: it pauses nobody by hand.
PAUSER = """
import itertools, json, sys, time
from pathlib import Path
from rmsplugin.engine.daemon import open_context
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.settings import load

settings = load(Path("/etc/rmsplugin/rmsplugin.toml"))
context = open_context(settings, settings.engine.state_dir)
executor = Executor(context, workers=8, on_end=lambda: None)
job, pauses = int(sys.argv[1]), int(sys.argv[2])


def do(kind, state, **rest):
    executor.begin(job, kind, "measured", **rest)
    while executor.busy():
        time.sleep(0.02)
    found = context.ledger.vjob(job)
    assert found.state == state, (found.state, found.reason)


for number in range(pauses):
    do(OperationKind.PAUSE, "paused", resumes=True)
    time.sleep(60 if number == pauses // 2 else 0.3 + number % 4)
    do(OperationKind.UNPAUSE, "running")
    time.sleep(0.5 + number % 3)
executor.close()
"""
TOGETHER = re.compile(r"(\d+) VMs .*, all within (\d+) ms")


def spans_ms(cluster: Cluster, job: int, kind: str, vms: int) -> list[int]:
    """Within what time all VMs were acted on, each time, as the ledger's events have it."""
    sql = "select message from events where vjob = ? and kind = ? order by id"
    found = [TOGETHER.search(message) for (message,) in ledger(cluster, sql, job, kind)]
    assert all(each is not None and int(each[1]) == vms for each in found)
    return sorted(int(each[2]) for each in found if each is not None)


@pytest.mark.parametrize(("vms", "pauses"), [(2, 20), (4, 20), (3, 90)])
def test_connections_between_vms_of_a_gang_survive_pauses_and_how_near_these_are_is_said(
    cluster: Cluster, vms: int, pauses: int
) -> None:
    wait_rooms(cluster)
    job = cluster.sbatch(TALKS, "-N", str(vms), "--ntasks-per-node=1", "-c", "1", "--mem=96", "-t", "600")
    ports = [*(5000 + each for each in range(1, vms)), 6000]
    heard = {port: cluster.home() / f"heard.{job}.{port}" for port in ports}

    def all_talk() -> bool:
        return all(path.exists() and path.read_text().count("\n") > 3 for path in heard.values())

    cluster.wait("talk", all_talk, 400, lambda: cluster.output(job)[-500:])
    cluster.manage("stop", "head", "engine")
    words = ("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", str(PROGRAM.parent / "python"), "-c", PAUSER)
    try:
        cluster.ok(*words, str(job), str(pauses), timeout_s=2000)
    finally:
        cluster.start("head", "engine")
    cluster.wait_vjob(job, "running", timeout_s=60)
    (cluster.home() / f"enough.{job}").write_text("")
    cluster.wait_output(job, "over", timeout_s=240)
    for path in heard.values():
        *numbers, last = path.read_text().split()
        assert last == "enough"
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert sorted(line for line in cluster.lines(job) if ":" in line) == sorted(
        [*(f"{port}: 0" for port in ports), *(f"said by {number}: 0" for number in range(vms))]
    )
    for kind in ("paused-together", "unpaused-together"):
        spans = spans_ms(cluster, job, kind, vms)
        assert len(spans) == pauses
        print(f"{vms} VMs {kind}: median {median(spans)} ms, the longest {spans[-5:]} ms")
    nothing_left(cluster, [job])
