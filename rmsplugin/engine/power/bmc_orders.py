"""BMC orders: what is asked of the BMC of one node, beside the cycles, since a BMC may take minutes to answer.

Each begins with what the ledger says, and ends with what it proved or how it failed: the next cycle, or the next
engine, goes on from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from rmsplugin.adapters.power.base import PowerDriver, PowerReading, PowerState
from rmsplugin.energy.power import PowerClass
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

#: After the first failure nothing is tried for ``_FIRST_S``, then for twice as long each time, up to ``_MOST_S``.
_FIRST_S, _MOST_S = 60.0, 3600.0
#: Why a node is off of which the ledger did not know that.
_UNKNOWN = "Slurm had it powered down before this engine had it"


def back_off_s(failures: int) -> float:
    """For how long a node is left alone after so many failures in a row."""
    return min(_MOST_S, _FIRST_S * 2.0 ** max(0, failures - 1))


def patience_off_s(power: PowerClass) -> float:
    """How long a node may take to go off after its order before that counts as a failure."""
    return 2 * power.off_s + 60.0


def patience_on_s(power: PowerClass) -> float:
    """The same for coming on, until Slurm has it back."""
    return 2 * power.on_s + 60.0


class BmcOrders:
    """Gives orders, one at a time for each node. Several threads may call."""

    def __init__(self, ledger: Ledger, clock: Clock, driver: PowerDriver) -> None:
        """Ask and write with these; ``start`` may be replaced by tests, which wait for the end."""
        self._ledger = ledger
        self._clock = clock
        self._driver = driver
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self.start: Callable[[Callable[[], None], str], None] = _in_a_thread

    @property
    def under_way(self) -> frozenset[str]:
        """The nodes whose BMCs are being asked now."""
        with self._lock:
            return frozenset(self._under_way)

    def check(self, switch: NodeSwitch) -> None:
        """See that the BMC answers, before anything is done that cannot be taken back."""
        self._begin(switch, self._check)

    def switch_off(self, switch: NodeSwitch, power: PowerClass) -> None:
        """Order the node off, if that is due, and ask for the proof."""
        self._begin(switch, lambda each: self._switch_off(each, power))

    def make_sure_it_is_off(self, switch: NodeSwitch, power: PowerClass) -> None:
        """The same with a node that is to come on, and may hang: only one that boots anew is back."""
        self._begin(switch, lambda each: self._make_sure(each, power))

    def switch_on(self, switch: NodeSwitch) -> None:
        """Order the node on, unless it is: Slurm's ResumeProgram may have been first."""
        self._begin(switch, self._switch_on)

    def watch(self, switch: NodeSwitch) -> None:
        """See that a node that is off is off still."""
        self._begin(switch, self._watch)

    def take_in(self, node: str, boot_time: int, *, is_ours: bool) -> None:
        """Find out whether a node is off that Slurm has powered down, and of which the ledger knows nothing.

        Args:
            node: its name.
            boot_time: that Slurm has of it.
            is_ours: whether an engine had Slurm power it down. It may be on all the same: its BMC had no order yet.
        """
        unknown = NodeSwitch(node, SwitchState.OFF, self._clock.now(), _UNKNOWN, boot_before=boot_time)
        self._begin(unknown, lambda each: self._take_in(each, is_ours))

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(self, switch: NodeSwitch, act: Callable[[NodeSwitch], None]) -> None:
        with self._lock:
            if switch.node in self._under_way:
                return
            self._under_way.add(switch.node)

        def carry_out() -> None:
            try:
                act(switch)
            except RmspluginError as error:
                self._failed(switch, str(error))
            except Exception as bug:
                log.exception("the power of %s", switch.node)
                self._failed(switch, f"internal error: {bug!r}")
            finally:
                with self._lock:
                    self._under_way.discard(switch.node)

        self.start(carry_out, f"power {switch.node}")

    def _failed(self, switch: NodeSwitch, error: str) -> None:
        """Record that the BMC did not do, or say, what it was asked; of a node without a row nothing is recorded."""
        if switch.node not in self._ledger.power.switches():
            log.warning("%s: %s: %s", switch.node, switch.why, error)
            return
        failures = switch.failures + 1
        until = self._clock.now() + back_off_s(failures)
        with self._ledger.transaction():
            if switch.state is SwitchState.GOING_OFF and not switch.told:
                self._ledger.power.forget(switch, error)  # Slurm was told nothing: the node stays on
            else:
                self._ledger.power.change(switch.node, failures=failures, error=error, not_before=until)
            self._ledger.event("power-failed", f"{switch.node}: {switch.why}: {error}", node=switch.node)

    def _check(self, switch: NodeSwitch) -> None:
        found = self._driver.reading(switch.node)
        if found.state is not PowerState.ON:
            self._failed(switch, f"its BMC says that it is {found.state}, and not on")
            return
        self._ledger.power.change(switch.node, checked=self._clock.now())

    def _switch_off(self, switch: NodeSwitch, power: PowerClass) -> None:
        if (found := self._made_off(switch, power)) is not None:
            self._is_off(switch, found)

    def _make_sure(self, switch: NodeSwitch, power: PowerClass) -> None:
        if self._made_off(switch, power) is not None:
            self._ledger.power.change(switch.node, checked=self._clock.now())

    def _made_off(self, switch: NodeSwitch, power: PowerClass) -> PowerReading | None:
        """The proof that the node is off; None: not yet. The order is given first, and again after a failure."""
        late = self._clock.of_the_host() - switch.ordered > patience_off_s(power)
        if not switch.ordered or switch.not_before:
            switch, late = self._order(switch), False
            self._driver.off(switch.node)
        found = self._driver.reading(switch.node)
        if found.proves_off(switch.ordered):
            return found
        if late:
            self._failed(switch, f"its BMC took the order to switch it off, and says that it is {found.state}")
        return None

    def _is_off(self, switch: NodeSwitch, found: PowerReading) -> None:
        power = self._ledger.power
        with self._ledger.transaction():
            took_s = found.at - power.switches()[switch.node].ordered
            power.enter(switch, SwitchState.OFF, took_s=took_s, proved=found.at, failures=0, error="", not_before=0.0)
            self._ledger.event("power-off", f"{switch.node} is off: {switch.why}", node=switch.node)

    def _switch_on(self, switch: NodeSwitch) -> None:
        found = self._driver.reading(switch.node)
        if found.state is PowerState.OFF:
            self._driver.on(self._order(switch).node)
        elif found.state is PowerState.UNKNOWN:
            self._failed(switch, "its BMC does not say whether it is on")

    def _order(self, switch: NodeSwitch) -> NodeSwitch:
        """Record an order before it is given."""
        self._ledger.power.change(switch.node, ordered=self._clock.of_the_host(), not_before=0.0)
        return self._ledger.power.switches()[switch.node]

    def _take_in(self, switch: NodeSwitch, is_ours: bool) -> None:
        found = self._driver.reading(switch.node)
        if found.state is PowerState.OFF:
            # Whoever ordered it: nothing runs there since.
            self._add(replace(switch, ordered=found.at, proved=found.at), "power-off", f"is off: {_UNKNOWN}")
        elif found.state is PowerState.ON and is_ours:
            self._add(replace(switch, state=SwitchState.FAILED), "power-failed", f"is on: {_UNKNOWN}")

    def _add(self, switch: NodeSwitch, kind: str, what: str) -> None:
        with self._ledger.transaction():
            if switch.node not in self._ledger.power.switches():
                self._ledger.power.add(switch)
                self._ledger.event(kind, f"{switch.node} {what}", node=switch.node)

    def _watch(self, switch: NodeSwitch) -> None:
        found = self._driver.reading(switch.node)
        later = self._clock.now()
        if found.state is PowerState.ON:
            why = "somebody else switched it on; the engine leaves it alone until it is needed"
            with self._ledger.transaction():
                self._ledger.power.enter(switch, SwitchState.FAILED, why, not_before=0.0, proved=0.0, error="")
                self._ledger.event("power-on", f"{switch.node} is on: somebody else switched it on", node=switch.node)
        else:
            self._ledger.power.change(switch.node, checked=later)


def _in_a_thread(act: Callable[[], None], name: str) -> None:
    threading.Thread(target=act, name=name, daemon=True).start()
