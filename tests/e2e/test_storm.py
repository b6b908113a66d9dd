"""A thousand vjobs arrive in a minute on real Slurm: the engine stays awake for everything else, and loses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.crowd import configured
from e2e.queued import WHOLE, nothing_left, wait_rooms
from e2e.rooms import count, finish, ledger, wait_number
from e2e.slurm_conf import edited
from e2e.test_deciding import set_mode

from rmsplugin.engine.queue_watch import CYCLES_MOST_S, CYCLES_SHARE

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

ARRIVALS, AT_ONCE = 1000, 4
#: So often there is a cycle without a reason.
CYCLE_S = 60
LEFT = "select count(*) from vjobs where job_id > ? and state != 'terminated'"


class Cycles:
    """The cycles that were run, as the engine tells of the last one: by when, how many seconds each took."""

    def __init__(self, cluster: Cluster) -> None:
        self.seconds: dict[float, float] = {}
        self.answers = 0
        self._cluster = cluster

    def look(self) -> None:
        """See whether there was another one."""
        status = self._cluster.ask("/v1/status")
        if status is not None:
            self.answers += 1
            self.seconds[status["last_cycle"]["time"]] = status["last_cycle"]["seconds"]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look all the time."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                self.look()

        thread = threading.Thread(target=watch)
        self.look()
        self.seconds.clear()
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


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
        cycles = Cycles(cluster)
        with cycles.watched():
            took_s = storm(cluster)
            storm_s = sum(cycles.seconds.values())
            number, longest_s = len(cycles.seconds), max(cycles.seconds.values())
            cluster.wait("the engine to know them all", lambda: len(known(cluster, longs)) >= ARRIVALS, 120)
        print(
            f"{ARRIVALS} arrivals in {took_s:.0f} s: {number} cycles, {storm_s:.1f} s in all, {longest_s:.2f} s the "
            f"longest; {cycles.answers} answers meanwhile"
        )
        regular = took_s / CYCLE_S + 1
        # The allowance, what it may be overdrawn by, and cycles that have another reason.
        assert storm_s <= CYCLES_MOST_S + CYCLES_SHARE * took_s + (1 + regular) * longest_s
        assert known(cluster, longs) == submitted(cluster.home() / "storm.out")
        for job in longs:
            wait_number(cluster, job, 2)
        cluster.ok("scancel", "-n", "storm", "-u", "alice")
        last = max(longs)
        cluster.wait("the end of all", lambda: ledger(cluster, LEFT, last) == [(0,)], 300, lambda: len(cluster.vjobs()))
        finish(cluster, *longs)
    nothing_left(cluster, longs)
