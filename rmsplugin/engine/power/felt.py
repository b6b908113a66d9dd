"""Felt: how late vjobs are because nodes were off, as each cycle sees it. An engine that begins knows nothing of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rmsplugin.energy.lateness import Lateness, Sight, kept_from_s
from rmsplugin.energy.switching import IdleNode
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState, comes_on
from rmsplugin.engine.power.demand import NEEDED, PowerDemand
from rmsplugin.settings import Settings

#: A longer time between two cycles is not counted, unless cycles are as long: nobody knows what was then.
_GAP_S = 600.0
#: A node that failed to come on is none of these: it is broken, and saves nothing.
_SAVES = (SwitchState.OFF, SwitchState.GOING_OFF)


class FeltLateness:
    """The lateness, and what it asks of nodes that are idle."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        """Nothing is counted unless ``power.late_at_most`` is set."""
        self._ledger = ledger
        self._gap_s = max(_GAP_S, 2 * settings.engine.cycle_s)
        self.lateness = Lateness(settings.power.late_at_most)

    def note(
        self, demand: PowerDemand, switches: Mapping[str, NodeSwitch], idle: Iterable[IdleNode], now: float
    ) -> None:
        """Take in what a cycle sees.

        Args:
            demand: of vjobs left waiting.
            switches: the nodes that are not simply on.
            idle: the nodes that are on and may be switched off.
            now: when it was seen.
        """
        if self.lateness.at_most is None:
            return
        alive = {vjob.display_id for vjob in self._ledger.vjobs() if vjob.state.is_live}
        off = sum(each.state in _SAVES for each in switches.values())
        kept = [kept_from_s(node) for node in idle]
        sight = Sight(len(alive.union(demand.left)), behind(demand, switches), off, kept)
        self.lateness.see(sight, now, self._gap_s)


def behind(demand: PowerDemand, switches: Mapping[str, NodeSwitch]) -> int:
    """How many vjobs wait, from the first one on whose place has a node that is not on. One that failed is left out.

    Places are not looked for where nothing but what comes on is left: then it is taken for that of the first one.
    """
    waits = [at for at, name in enumerate(demand.left) if _boots(demand.places.get(name, ()), switches)]
    if not waits and any(each.why == NEEDED for node, each in switches.items() if comes_on(switches, node)):
        return len(demand.left)
    return len(demand.left) - min(waits, default=len(demand.left))


def _boots(places: Collection[str], switches: Mapping[str, NodeSwitch]) -> bool:
    return any(node in switches and switches[node].state is not SwitchState.FAILED for node in places)
