"""Simulated BMCs: transition times, faults, and what the world of a test learns of them."""

from __future__ import annotations

import pytest

from rmsplugin.adapters.power.base import PowerState
from rmsplugin.adapters.simulated.power import SimulatedPower
from rmsplugin.errors import TimedOutError

NODE = "n1"


class Site:
    """One node, and what was told of it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.told: list[tuple[str, float]] = []
        self.power = SimulatedPower(
            [NODE],
            clock=lambda: self.time,
            off_s=30.0,
            on_s=120.0,
            when_off=lambda node: self.told.append(("off", self.time)),
            when_booted=lambda node, boot_time: self.told.append(("booted", boot_time)),
        )
        self.bmc = self.power.bmcs[NODE]

    def at(self, time: float) -> PowerState:
        """What the BMC says at this time."""
        self.time = time
        return self.power.reading(NODE).state

    def off(self) -> None:
        """Have it off at 1030."""
        self.power.off(NODE)
        assert self.at(1030.0) is PowerState.OFF


def test_transitions_take_their_times() -> None:
    site = Site()
    site.power.off(NODE)
    assert site.at(1029.0) is PowerState.ON
    assert site.told == []
    assert site.at(1030.0) is PowerState.OFF
    site.power.on(NODE)
    assert site.at(1031.0) is PowerState.ON
    assert not site.bmc.booted
    site.time = 1200.0
    site.power.settle()
    assert site.bmc.booted
    assert site.told == [("off", 1030.0), ("booted", 1150.0)]


def test_a_repeated_order_does_not_put_off_the_end() -> None:
    site = Site()
    site.power.off(NODE)
    site.time = 1020.0
    site.power.off(NODE)
    assert site.at(1030.0) is PowerState.OFF


def test_an_order_to_come_on_does_not_call_off_a_shutdown() -> None:
    site = Site()
    site.power.off(NODE)
    site.power.on(NODE)
    assert site.at(1030.0) is PowerState.OFF


def test_a_node_that_does_not_come_up() -> None:
    site = Site()
    site.bmc.boots = False
    site.off()
    site.power.on(NODE)
    assert site.at(9999.0) is PowerState.ON
    assert not site.bmc.booted
    assert site.told == [("off", 1030.0)]


def test_a_boot_time_that_is_not_the_true_one() -> None:
    site = Site()
    site.bmc.boot_lag_s = 5000.0
    site.off()
    site.power.on(NODE)
    site.at(1150.0)
    assert site.told[-1] == ("booted", 1150.0 - 5000.0)


def test_switched_by_hand() -> None:
    site = Site()
    site.off()
    site.power.switch_by_hand(NODE, on=True)
    assert site.at(1030.0) is PowerState.ON
    assert site.at(1150.0) is PowerState.ON
    assert site.told[-1] == ("booted", 1150.0)
    site.power.switch_by_hand(NODE, on=False)
    assert site.told[-1] == ("off", 1150.0)


def test_a_bmc_that_takes_orders_and_does_nothing() -> None:
    site = Site()
    site.bmc.deaf = True
    site.power.off(NODE)
    assert site.at(9999.0) is PowerState.ON


@pytest.mark.parametrize(("after", "state"), [(False, PowerState.ON), (True, PowerState.OFF)])
def test_an_order_fails_before_or_after_its_effect(after: bool, state: PowerState) -> None:
    site = Site()
    site.power.fail_next("off", TimedOutError("slow"), node=NODE, after=after)
    with pytest.raises(TimedOutError):
        site.power.off(NODE)
    assert site.at(1030.0) is state


def test_off_means_few_watts_and_no_temperature() -> None:
    site = Site()
    site.off()
    reading = site.power.reading(NODE)
    assert reading.watts is not None and reading.watts.value == site.bmc.off_watts
    assert reading.temperature_c is None
