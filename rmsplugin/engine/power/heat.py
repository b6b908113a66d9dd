"""Heat: in each cycle, takes in what sensors showed, and records which nodes are hot.

A hot node takes no VM, and those that it has leave it (``observe.leaving``).
"""

from __future__ import annotations

from collections.abc import Iterable

from rmsplugin.adapters.power.base import Measured, PowerDriver, PowerReading
from rmsplugin.energy.heat import Heat, Thermometer
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import SwitchState
from rmsplugin.engine.ledger.sensor_book import NodeSample
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import vm_hosts
from rmsplugin.engine.power.sensing import Answer, Sensing
from rmsplugin.settings import Settings

#: A sample is recorded if it differs by so much from the last one: of watts a share, or a number.
_WATTS_SHARE, _WATTS, _CELSIUS = 0.05, 5.0, 1.0
#: Most BMCs tell no temperature of a node that is off. It has cooled after so many seconds.
_COOLS_S = 600.0


class HeatWatch:
    """Looks at sensors, once a cycle."""

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, driver: PowerDriver, sensing: Sensing) -> None:
        """Take in what ``sensing`` finds."""
        self._settings = settings
        self._ledger = ledger
        self._book = ledger.sensors
        self._clock = clock
        self._driver = driver
        self._sensing = sensing
        self._thermometers: dict[str, Thermometer] = {}
        self._recorded: dict[str, NodeSample] = {}

    def watch(self, seen: Observation | None) -> list[str]:
        """Take in the answers, and have nodes asked anew. Returns a sentence for each hot node.

        Args:
            seen: the last look at the cluster; None: there was none.
        """
        every_s = self._settings.power.sense_s
        answers = self._sensing.answers()
        self._record(answers)
        hot = {*self._book.hot()} if answers else set[str]()
        for node, reading in answers:
            self._judge(node, reading, node in hot)
        if seen is not None:
            nodes = vm_hosts(self._settings, seen.rms) if every_s else []
            self._end_others(nodes)
            self._sensing.ask((node for node in nodes if self._driver.drives(node)), self._clock.now(), every_s)
        told = self._sensing.latest()
        return [f"{node}: {hot.sentence}{_silence(told.get(node))}" for node, hot in self._book.hot().items()]

    def _judge(self, node: str, reading: PowerReading | None, is_hot: bool) -> None:
        known = self._settings.power.heat_of(node)
        if known is None:
            return
        heat = Heat(known.hot_c, known.cool_c)
        celsius = _value(reading.temperature_c if reading else None)
        thermometer = self._thermometers.setdefault(node, Thermometer())
        if thermometer.read(heat, celsius, is_hot=is_hot) is is_hot:
            return
        with self._ledger.transaction():
            if is_hot:
                self._cooled(node, f"{celsius:g} °C, and it may be {heat.cool_c:g} °C")
            else:
                hot = self._book.begins(node, celsius or 0.0, heat.hot_c)
                told = f"{node} is hot: {hot.celsius:g} °C, and {hot.hot_c:g} °C is too much; its VMs leave it"
                self._ledger.event("node-hot", told, node=node)

    def _cooled(self, node: str, why: str) -> None:
        self._book.ends(node)
        self._ledger.event("node-cool", f"{node} is hot no more: {why}", node=node)

    def _end_others(self, nodes: Iterable[str]) -> None:
        """Nodes that have no threshold any more, or have been off for long."""
        known, switches = {*nodes}, self._ledger.power.switches()
        for node in self._book.hot():
            switch = switches.get(node)
            off_s = self._clock.now() - switch.since if switch and switch.state is SwitchState.OFF else 0.0
            if node not in known or self._settings.power.heat_of(node) is None:
                with self._ledger.transaction():
                    self._cooled(node, "nobody watches its temperature")
            elif off_s > _COOLS_S:
                with self._ledger.transaction():
                    self._cooled(node, f"it has been off for {off_s:.0f} s")

    def _record(self, answers: Iterable[Answer]) -> None:
        """Record what has changed enough."""
        changed = []
        for node, reading in answers:
            if reading is None:
                continue
            now = NodeSample(node, self._clock.now(), _value(reading.watts), _value(reading.temperature_c))
            if (now.watts, now.celsius) != (None, None) and _differs(self._recorded.get(node), now):
                self._recorded[node] = now
                changed.append(now)
        if changed:
            self._book.record(changed)


def _silence(reading: PowerReading | None) -> str:
    """That a sensor tells no temperature now, to be added to a sentence."""
    return "" if reading is not None and reading.temperature_c is not None else "; its sensor tells nothing now"


def _value(measured: Measured | None) -> float | None:
    return None if measured is None else measured.value


def _differs(before: NodeSample | None, now: NodeSample) -> bool:
    if before is None:
        return True
    watts = max(_WATTS, _WATTS_SHARE * (before.watts or 0.0))
    return _apart(before.watts, now.watts, watts) or _apart(before.celsius, now.celsius, _CELSIUS)


def _apart(before: float | None, now: float | None, least: float) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(before - now) >= least
