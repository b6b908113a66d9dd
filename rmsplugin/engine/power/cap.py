"""Cap: closes the nodes to VMs that the site's bound on watts leaves no room for."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.energy.cap import CappedNode, Use, capped
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import vm_hosts
from rmsplugin.engine.power.classes import PowerClasses
from rmsplugin.engine.power.idle import is_used, used_first, with_something
from rmsplugin.settings import Settings

_USES = {
    SwitchState.OFF: Use.OFF,
    SwitchState.GOING_OFF: Use.SWITCHING,
    SwitchState.COMING_ON: Use.SWITCHING,
    SwitchState.FAILED: Use.SWITCHING,  # nobody knows whether it is on
}


class PowerCap:
    """Obeys ``power.cap_w``."""

    def __init__(self, settings: Settings, ledger: Ledger, classes: PowerClasses) -> None:
        self._settings = settings
        self._ledger = ledger
        self._classes = classes

    def obeyed(self, seen: Observation) -> Observation:
        """The same look, with the nodes that may not be used by VMs."""
        cap_w = self._settings.power.cap_w
        if cap_w is None:
            return seen
        found = capped(self._nodes(seen), cap_w)
        told = f"nodes may take {found.watts:.0f} W as they are used, of {cap_w:g} W in all (power.cap_w)"
        over = f"{told}: vjobs that run go on, and none begins on another node" if found.watts > cap_w else ""
        why = f"VMs there could exceed the site's bound: {told}"
        return replace(seen, capped=dict.fromkeys(sorted(found.closed), why), over_cap=over)

    def _nodes(self, seen: Observation) -> list[CappedNode]:
        switches, something = self._ledger.power.switches(), with_something(self._ledger, seen)
        known = {node: node for node in vm_hosts(self._settings, seen.rms) if self._settings.power.watts_of(node)}
        return [
            CappedNode(node, self._classes.of(node)[1], _use(seen, node, switches.get(node), something))
            for node in used_first(seen, known)
        ]


def _use(seen: Observation, node: str, switch: NodeSwitch | None, something: frozenset[str]) -> Use:
    if is_used(seen, node, something):
        return Use.USED
    return Use.IDLE if switch is None else _USES[switch.state]
