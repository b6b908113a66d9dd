"""Felt: how late vjobs are because nodes were off, as each cycle sees it; the ledger keeps it for the next engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rmsplugin.energy.lateness import MEMORY_S, Lateness, LateSums, Sight, kept_from_s, sentence
from rmsplugin.energy.switching import IdleNode
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import LateSpan, NodeSwitch, SwitchState, comes_on
from rmsplugin.engine.power.demand import NEEDED, PowerDemand
from rmsplugin.settings import Settings

#: A longer time between two cycles is not counted, unless cycles are as long: nobody knows what was then.
_GAP_S = 600.0
#: What was seen is written down so often, and what is written of one span is of so long a time at most.
_WRITTEN_S, _SPAN_S = 600.0, 3600.0
#: What was seen longer ago than this hardly counts.
_RECALLED_S = 5 * MEMORY_S
#: A node that failed to come on is none of these: it is broken, and saves nothing.
_SAVES = (SwitchState.OFF, SwitchState.GOING_OFF)


class FeltLateness:
    """The lateness, and what it asks of nodes that are idle."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        """Nothing has been seen yet."""
        self._ledger = ledger
        self._gap_s = max(_GAP_S, 2 * settings.engine.cycle_s)
        self._span: LateSpan | None = None
        self._written = 0.0
        self._recalled = False
        self.lateness = Lateness(settings.power.late_at_most)

    def recall(self, now: float) -> None:
        """Take in what engines before this one have written down, once."""
        if not self._recalled:
            for span in self._ledger.power.late_spans(now - _RECALLED_S):
                self.lateness.recall(span.sums, now - span.ended)
            self._recalled = True

    def view(self) -> dict[str, Any] | None:
        """As the API tells it; None: nothing was seen yet."""
        lateness = self.lateness
        if not lateness.sums.vjobs_s:
            return None
        return {
            "share": round(lateness.share, 6),
            "at_most": lateness.at_most,
            "kept_on": lateness.reserve,
            "sentence": sentence(lateness.share, lateness.at_most),
        }

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
        alive = {vjob.display_id for vjob in self._ledger.vjobs() if vjob.state.is_live}
        off = sum(each.state in _SAVES for each in switches.values())
        kept = [kept_from_s(node) for node in idle]
        sight = Sight(len(alive.union(demand.left)), behind(demand, switches), off, kept)
        self._keep(self.lateness.see(sight, now, self._gap_s), now)

    def _keep(self, sums: LateSums, now: float) -> None:
        """Write down what was seen, now and then: a row for each hour."""
        if self._span is None or now - self._span.began > _SPAN_S:
            self._write()
            self._span, self._written = LateSpan(now - sums.seen_s, now, sums), now
        else:
            self._span = LateSpan(self._span.began, now, self._span.sums.plus(sums))
            if now - self._written >= _WRITTEN_S:
                self._write()
                self._written = now

    def _write(self) -> None:
        if self._span is not None and self._span.sums.seen_s:  # hours without vjobs tell how many nodes are off
            self._ledger.power.note_late(self._span)


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
