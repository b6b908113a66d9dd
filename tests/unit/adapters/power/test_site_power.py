"""SitePower: operating systems are shut down before the power is cut, and one order is given at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmsplugin.adapters.power.base import Measured, PowerState
from rmsplugin.adapters.power.bmc import Sensors
from rmsplugin.adapters.power.site_power import Reached, SitePower
from rmsplugin.errors import (
    DeposedError,
    ForbiddenError,
    OperationFailedError,
    RefusedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)

NODE = "n1"


class FakeBmc:
    """A node that is off a while after it was asked to shut down."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.orders: list[str] = []
        self.power = PowerState.ON
        self.off_at: float | None = None
        self.takes_s: float | None = 10.0  # to shut down; None: it never does
        self.shut_down_error: RmspluginError | None = None
        self.state_error: RmspluginError | None = None
        self.may_shut_down = True
        self.deposed_after = 99

    def state(self) -> PowerState:
        if self.state_error is not None:
            raise self.state_error
        if self.off_at is not None and self.time >= self.off_at:
            self.power = PowerState.OFF
        return self.power

    def sensors(self) -> Sensors:
        self.time += 1.0
        return Sensors(180.0, 30.0)

    def shut_down(self) -> bool:
        if not self.may_shut_down:
            return False
        self.orders.append("shut down")
        if self.shut_down_error is not None:
            raise self.shut_down_error
        self.off_at = None if self.takes_s is None else self.time + self.takes_s
        return True

    def cut(self) -> None:
        self.orders.append("cut")
        self.power = PowerState.OFF

    def switch_on(self) -> None:
        self.orders.append("on")
        self.power = PowerState.ON

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    @contextmanager
    def permit(self) -> Iterator[None]:
        if len(self.orders) >= self.deposed_after:
            raise DeposedError("over")
        yield


def power(bmc: FakeBmc, shutdown_s: float = 60.0) -> SitePower:
    def reach(node: str) -> Reached | None:
        return Reached(bmc, shutdown_s) if node == NODE else None

    return SitePower(reach, permit=bmc.permit, clock=lambda: bmc.time, sleep=bmc.sleep)


def test_a_node_that_shuts_down_is_not_cut() -> None:
    bmc = FakeBmc()
    power(bmc).off(NODE)
    assert bmc.orders == ["shut down"]
    assert bmc.time == 1010.0


def test_a_node_that_does_not_shut_down_is_cut_after_its_time() -> None:
    bmc = FakeBmc()
    bmc.takes_s = None
    power(bmc).off(NODE)
    assert bmc.orders == ["shut down", "cut"]
    assert bmc.time == 1060.0


def test_without_time_to_shut_down_the_power_is_cut_at_once() -> None:
    bmc = FakeBmc()
    power(bmc, 0.0).off(NODE)
    assert (bmc.orders, bmc.time) == (["cut"], 1000.0)


def test_a_bmc_that_cannot_shut_down_cuts_at_once() -> None:
    bmc = FakeBmc()
    bmc.may_shut_down = False
    power(bmc).off(NODE)
    assert (bmc.orders, bmc.time) == (["cut"], 1000.0)


def test_a_node_that_is_off_is_ordered_nothing() -> None:
    bmc = FakeBmc()
    bmc.power = PowerState.OFF
    power(bmc).off(NODE)
    assert bmc.orders == []


@pytest.mark.parametrize("error", [RefusedError("no"), OperationFailedError("no agent")])
def test_a_shutdown_that_is_refused_ends_in_a_cut_at_once(error: RmspluginError) -> None:
    bmc = FakeBmc()
    bmc.shut_down_error = error
    power(bmc).off(NODE)
    assert (bmc.orders, bmc.time) == (["shut down", "cut"], 1000.0)


def test_a_shutdown_of_unknown_outcome_is_waited_for() -> None:
    bmc = FakeBmc()
    bmc.shut_down_error = TimedOutError("slow")
    power(bmc).off(NODE)
    assert (bmc.orders, bmc.time) == (["shut down", "cut"], 1060.0)


@pytest.mark.parametrize("error", [ForbiddenError("who?"), UnavailableError("silent")])
def test_nothing_is_cut_where_the_bmc_knows_us_not_or_is_silent(error: RmspluginError) -> None:
    bmc = FakeBmc()
    bmc.shut_down_error = error
    with pytest.raises(type(error)):
        power(bmc).off(NODE)
    assert bmc.orders == ["shut down"]
    bmc.state_error = error
    with pytest.raises(type(error)):
        power(bmc).off(NODE)
    assert bmc.orders == ["shut down"]


def test_an_engine_that_is_deposed_while_a_node_shuts_down_does_not_cut() -> None:
    bmc = FakeBmc()
    bmc.takes_s, bmc.deposed_after = None, 1
    with pytest.raises(DeposedError):
        power(bmc).off(NODE)
    assert bmc.orders == ["shut down"]


def test_a_second_order_meanwhile_is_refused() -> None:
    bmc = FakeBmc()
    shuts_down, goes_on = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        shuts_down.set()
        assert goes_on.wait(60)
        bmc.sleep(seconds)

    driver = SitePower(lambda node: Reached(bmc, 60.0), clock=lambda: bmc.time, sleep=sleep)
    thread = threading.Thread(target=driver.off, args=(NODE,))
    thread.start()
    try:
        assert shuts_down.wait(60)
        for order in (driver.on, driver.off):
            with pytest.raises(RefusedError, match="n1 is being switched already"):
                order(NODE)
    finally:
        goes_on.set()
        thread.join()
    driver.on(NODE)
    assert bmc.orders == ["shut down", "on"]


def test_a_reading_has_the_times_of_its_questions() -> None:
    bmc = FakeBmc()
    reading = power(bmc).reading(NODE)
    assert (reading.state, reading.at) == (PowerState.ON, 1000.0)
    assert (reading.watts, reading.temperature_c) == (Measured(180.0, 1000.0), Measured(30.0, 1000.0))


def test_a_reading_from_before_the_order_proves_nothing() -> None:
    bmc = FakeBmc()
    bmc.power = PowerState.OFF
    reading = power(bmc).reading(NODE)
    assert reading.proves_off(1000.0)
    assert not reading.proves_off(1000.5)
