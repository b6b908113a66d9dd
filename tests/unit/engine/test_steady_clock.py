"""The engine's clock never jumps, whatever is done to the host's."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsReservation, RmsSnapshot
from rmsplugin.engine.context.steady_clock import SteadyClock, of_the_rms
from rmsplugin.engine.periodic import Periodic

HOURS_S = 6 * 3600.0


class Host:
    """Its two clocks."""

    def __init__(self) -> None:
        self.wall_s, self.passed_s = 1_000_000.0, 50.0

    def passes(self, seconds: float) -> None:
        self.wall_s += seconds
        self.passed_s += seconds

    def clock(self) -> SteadyClock:
        return SteadyClock(wall=lambda: self.wall_s, monotonic=lambda: self.passed_s)


def test_it_tells_the_hosts_time_as_long_as_nobody_sets_that() -> None:
    host = Host()
    clock = host.clock()
    for seconds in (0.001, 3.0, 1000.0):
        host.passes(seconds)
        assert clock.now() == host.wall_s
    assert (clock.ahead_s(), clock.problem()) == (0.0, "")


@pytest.mark.parametrize("jump_s", [HOURS_S, -HOURS_S])
def test_a_jump_changes_its_pace_and_nothing_else(jump_s: float) -> None:
    host = Host()
    clock = host.clock()
    before = clock.now()
    host.wall_s += jump_s
    assert clock.now() == before
    assert clock.ahead_s() == -jump_s
    assert "set forward" in clock.problem() if jump_s > 0 else "set back" in clock.problem()
    host.passes(100.0)
    assert clock.now() - before == pytest.approx(110.0 if jump_s > 0 else 90.0)
    for _ in range(2200):  # at a tenth of the pace
        host.passes(100.0)
        clock.now()
    assert (clock.ahead_s(), clock.problem()) == (0.0, "")


def test_it_is_never_before_what_is_known_to_have_happened() -> None:
    host = Host()
    clock = host.clock()
    clock.not_before(host.wall_s + 100.0)
    assert clock.now() == host.wall_s + 100.0
    clock.not_before(5.0)
    assert clock.now() == host.wall_s + 100.0


def test_it_never_goes_back_whatever_the_host_does() -> None:
    host = Host()
    clock = host.clock()
    told = []
    for jump_s in (1.0, -0.5, 86400.0, -86400.0, 0.0, -1e-6):
        host.wall_s += jump_s
        host.passes(0.01)
        told.append(clock.now())
    assert all(before <= after for before, after in itertools.pairwise(told))


def test_times_of_the_rms_are_brought_to_it_and_none_stays_none() -> None:
    found = RmsSnapshot(jobs=(), reservations={"r": RmsReservation("r", 0, 1000, (), {}, (), ())})
    moved = of_the_rms(found, 300.4).reservations["r"]
    assert (moved.start_time, moved.end_time) == (0, 1300)
    assert of_the_rms(found, 0.2) is found


def test_a_periodic_act_goes_on_after_a_fault_and_at_once_when_it_is_woken() -> None:
    acted = threading.Semaphore(0)

    def act() -> None:
        acted.release()
        raise ValueError("a fault of ours")

    periodic = Periodic("test", act, 3600.0)
    periodic.start()
    assert acted.acquire(timeout=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not acted.acquire(timeout=0.05):  # a wake while it is under way makes it act once more
        periodic.wake()
        assert time.monotonic() < deadline
    periodic.close()


def test_a_periodic_act_is_repeated() -> None:
    acted = threading.Semaphore(0)
    periodic = Periodic("test", acted.release, 0.01)
    periodic.start()
    assert all(acted.acquire(timeout=PATIENCE_S) for _ in range(3))
    periodic.close()


def test_who_is_kept_waiting_while_it_looks_sees_no_jump() -> None:
    now = [1000.0]

    def wall() -> float:
        now[0] += 3.0  # the thread has its turn again only then
        return now[0] + 1e6

    clock = SteadyClock(wall=wall, monotonic=lambda: now[0])
    for _ in range(3):
        assert round(clock.ahead_s()) == 0


def test_the_order_of_the_queue_is_slurms_whatever_the_clock_does() -> None:
    job = RmsJob(
        *("7", 7, "vjob", "alice", 1000, "count", JobState.PENDING, "PENDING", "Licenses", False, True, False),
        *(1, 96, 1, 5000, True, (), "", 0),
        start_time=6000,
    )
    [moved] = of_the_rms(RmsSnapshot(jobs=(job,)), 300.0).jobs
    assert (moved.submit_time, moved.start_time) == (5000, 6300)


def test_a_turn_that_takes_long_is_followed_by_a_rest_that_keeps_it_at_its_share_of_the_time() -> None:
    began: list[float] = []
    thrice = threading.Event()

    def act() -> None:
        began.append(time.monotonic())
        time.sleep(0.05)
        if len(began) == 3:
            thrice.set()

    periodic = Periodic("test", act, 0.01, most=0.2)
    periodic.start()
    assert thrice.wait(PATIENCE_S)
    periodic.close()
    assert min(later - earlier for earlier, later in itertools.pairwise(began)) >= 0.05 / 0.2 * 0.9
