"""Metrics: puts figures, exposition and listener together, where the settings name an address."""

from __future__ import annotations

import logging

from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.context.agents_told import AgentsTold
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.metrics.exposition import content_type_and_writer, families
from rmsplugin.engine.metrics.figures import Accounts, take_quietly
from rmsplugin.engine.metrics.listener import Listener

log = logging.getLogger(__name__)


class Metrics:
    """What one engine tells to Prometheus."""

    def __init__(self, capacities: Capacities, cycle: Cycle, agents_told: AgentsTold) -> None:
        """Listen to nobody yet.

        Raises:
            SettingsError: prometheus_client is not installed.
        """
        self._settings, self._ledger, self._clock = capacities.settings, capacities.ledger, capacities.clock
        self._accounts = Accounts(capacities, cycle, agents_told)
        self._since = self._clock.now()
        content_type, self._write = content_type_and_writer()
        self.listener = Listener(self._settings.metrics.listen, content_type, self.text)
        self._fault = ""

    def text(self) -> bytes:
        """All metrics as they are; asks nobody, and waits for no lock that is held for long."""
        now, counts = self._clock.now(), self._ledger.tally.now()
        told = families(self._accounts.newest, counts, now, self._since, self._settings.territory)
        return self._write(told)

    def cycle_ended(self) -> None:
        """Sum up the cycle that has just ended; called in its thread. No fault of it reaches the cycle."""
        try:
            fault = take_quietly(self._accounts)
        except Exception as bug:
            log.exception("the figures of the cycle")
            fault = repr(bug)
        if fault and fault != self._fault:
            log.warning("metrics are of an older cycle: %s", fault)
        self._fault = fault


def open_metrics(capacities: Capacities, cycle: Cycle, agents_told: AgentsTold) -> Metrics | None:
    """The metrics; None where the settings name no address.

    Raises:
        SettingsError: prometheus_client is not installed.
    """
    return Metrics(capacities, cycle, agents_told) if capacities.settings.metrics.listen else None
