"""A thousand vjobs arrive in a minute on real Slurm: the engine stays awake for everything else, and loses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import WHOLE, nothing_left, wait_rooms
from e2e.rooms import count, engine_pid, finish, ledger, wait_number
from e2e.slurm_conf import edited
from e2e.test_deciding import set_mode

from rmsplugin.engine.observe.queue_watch import CYCLES_MOST_S, CYCLES_SHARE

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

ARRIVALS, AT_ONCE = 1000, 4
#: The period of cycles without a reason.
CYCLE_S = 60
#: More than the engine remembers of one that waits.
VJOB_MIB = 0.1
LEFT = "select count(*) from vjobs where job_id > ? and state != 'terminated'"


class Watcher:
    """Asks the engine for its status all the time, as an operator's display would: does it answer?"""

    def __init__(self, cluster: Cluster) -> None:
        self.answers = 0
        self.silences = 0
        self._cluster = cluster

    @contextmanager
    def asks(self) -> Iterator[None]:
        """In the block."""
        over = threading.Event()

        def ask() -> None:
            while not over.wait(0.1):
                answered = self._cluster.ask("/v1/status") is not None
                self.answers += answered
                self.silences += not answered

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def cycles_so_far(cluster: Cluster) -> tuple[int, float]:
    """How many cycles the engine has run, and how many seconds they took together."""
    status = cluster.ask("/v1/status")
    assert status is not None
    return status["cycles"]["number"], status["cycles"]["seconds"]


def memory_mib(cluster: Cluster) -> float:
    """What the engine holds of the host's memory."""
    said = Path(f"/proc/{engine_pid(cluster)}/status").read_text()
    return int(said.partition("VmRSS:")[2].split()[0]) / 1024


def storm(cluster: Cluster) -> float:
    """Submit them all, some at a time; how many seconds that took."""
    script = cluster.home() / "storm.sh"
    script.write_text("#!/bin/sh\necho never\n")
    submit = " ".join(("sbatch", "-J", "storm", "-p", "vjob", "-t", "600", "-o", "/dev/null", *WHOLE, "storm.sh"))
    each = f"for i in $(seq {ARRIVALS // AT_ONCE}); do {submit} >>storm.out || exit 1; done"
    began = time.time()
    words = f"cd ~ && for n in $(seq {AT_ONCE}); do ({each}) & done; wait"
    cluster.ok("sh", "-c", words, user="alice", timeout_s=600)
    submitted_s = time.time() - began
    assert len(submitted(cluster.home() / "storm.out")) == ARRIVALS
    return submitted_s


def submitted(output: Path) -> set[int]:
    """The ids that sbatch said."""
    return {int(line.split()[-1]) for line in output.read_text().splitlines()}


def known(cluster: Cluster, longs: list[int]) -> set[int]:
    """The ids of those that the ledger has, of all that came after the long ones."""
    return {job for (job,) in ledger(cluster, "select job_id from vjobs where job_id > ?", max(longs))}


def test_a_thousand_arrivals_in_a_minute_cause_no_storm_of_cycles_and_none_is_lost(cluster: Cluster) -> None:
    """Those that arrive find a full cluster where nobody makes way, and are cancelled all at once."""
    wait_rooms(cluster)
    with configured(cluster, "engine", f"cycle_s = {CYCLE_S}"), edited(cluster) as change:
        wait_rooms(cluster)
        set_mode(cluster, change, "OFF")
        longs = [count(cluster, *WHOLE) for _ in cluster.nodes]
        for job in longs:
            wait_number(cluster, job, 3)
        watcher, memory_before_mib = Watcher(cluster), memory_mib(cluster)
        number_before, seconds_before = cycles_so_far(cluster)
        with watcher.asks():
            took_s = storm(cluster)
            number_after, seconds_after = cycles_so_far(cluster)
            cluster.wait("the engine to know them all", lambda: len(known(cluster, longs)) >= ARRIVALS, 120)
        number, storm_s = number_after - number_before, seconds_after - seconds_before
        more_mib = memory_mib(cluster) - memory_before_mib
        print(
            f"{ARRIVALS} arrivals in {took_s:.0f} s: {number} cycles, {storm_s:.1f} s together; {watcher.answers} "
            f"answers meanwhile; {more_mib:.0f} MiB more"
        )
        assert watcher.silences == 0
        assert more_mib < ARRIVALS * VJOB_MIB
        # The allowance, the cycle that overdraws it, and those that have another reason: one may be twice the mean.
        others = 2 + took_s / CYCLE_S
        assert storm_s <= CYCLES_MOST_S + CYCLES_SHARE * took_s + others * 2 * storm_s / number
        assert known(cluster, longs) == submitted(cluster.home() / "storm.out")
        for job in longs:
            wait_number(cluster, job, 2)
        cluster.ok("scancel", "-n", "storm", "-u", "alice")
        last = max(longs)
        cluster.wait("the end of all", lambda: ledger(cluster, LEFT, last) == [(0,)], 300, lambda: len(cluster.vjobs()))
        finish(cluster, *longs)
    nothing_left(cluster, longs)
